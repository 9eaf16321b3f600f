"""Whether the configuration of a repository can make a git command that only reads start a program."""

import re
from pathlib import Path
from typing import Final

_LARGEST: Final = 100_000
_SECTION: Final = re.compile(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"[^"\\\n]*"\s*)?\]')
_SETTING: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")
_CONTINUED: Final = re.compile(r"\\$")
_CORE: Final = frozenset(
    {
        *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks", "autocrlf"),
        *("eol", "safecrlf", "quotepath", "abbrev", "longpaths", "trustctime", "untrackedcache", "preloadindex"),
    }
)
_SETTINGS: Final[dict[str, frozenset[str]]] = {
    "core": _CORE,
    "remote": frozenset({"url", "pushurl", "fetch", "push", "tagopt", "prune", "gh-resolved"}),
    "branch": frozenset({"remote", "merge", "rebase", "description", "pushremote", "gh-merge-base", "vscode-merge-base"}),
    "user": frozenset({"name", "email", "signingkey"}),
    "submodule": frozenset({"active", "url"}),
    "init": frozenset({"defaultbranch"}),
    "pull": frozenset({"rebase", "ff"}),
    "push": frozenset({"default", "autosetupremote"}),
    "fetch": frozenset({"prune"}),
    "color": frozenset({"ui", "diff", "status", "branch"}),
    "gc": frozenset({"auto", "autodetach"}),
    "maintenance": frozenset({"auto"}),
    "commit": frozenset({"gpgsign"}),
    "tag": frozenset({"gpgsign"}),
    "extensions": frozenset({"objectformat", "refstorage"}),
}


def git_only_reads(folder: Path) -> bool:
    """Whether git commands that read start no program of the repository that a folder belongs to, or there is no repository.

    Git runs what `core.fsmonitor`, `diff.*.textconv`, `filter.*.clean` and others name in `.git/config`, which an archive or a command
    can bring along, so every setting must be one that is known to start nothing.
    """
    try:
        return _only_reads(folder.resolve())
    except (OSError, RuntimeError, UnicodeError, ValueError):
        return False


def _only_reads(folder: Path) -> bool:
    for place in (folder, *folder.parents):
        # Git takes a folder of this shape for a bare repository, with a configuration of its own.
        if (place / "HEAD").exists() and (place / "objects").exists():
            return False
        entry = place / ".git"
        if entry.is_dir():
            if not _plain(entry):
                return False
            # Git goes on above a folder that only has the name of a repository.
            if (entry / "HEAD").exists() and (entry / "objects").exists():
                return True
        elif entry.exists() or entry.is_symlink():
            return _linked(entry)
    return True


def _linked(entry: Path) -> bool:
    """The check for a work tree or submodule, whose `.git` is a file that names the folder."""
    text = _bounded(entry)
    if not text.startswith("gitdir: "):
        return False
    folder = (entry.parent / text.removeprefix("gitdir: ").strip()).resolve()
    common = folder / "commondir"
    shared = (folder / _bounded(common).strip()).resolve() if common.is_file() else folder
    return _plain(folder) if shared == folder else _plain(shared) and _hooks_are_quiet(folder)


def _plain(folder: Path) -> bool:
    config = folder / "config"
    return (
        _hooks_are_quiet(folder)
        and not (folder / "config.worktree").exists()
        and (not config.exists() or _starts_nothing(_bounded(config)))
    )


def _hooks_are_quiet(folder: Path) -> bool:
    # The only hook that reading runs: git refreshes the index.
    return not (folder / "hooks" / "post-index-change").exists()


def _bounded(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise ValueError(path)
    return path.read_text(encoding="utf-8")


def _starts_nothing(config: str) -> bool:
    section = ""
    for raw in config.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if _CONTINUED.search(line):
            return False
        if line[0] == "[":
            found = _SECTION.fullmatch(line)
            if found is None:
                return False
            section = found[1].lower()
        else:
            setting = _SETTING.fullmatch(line)
            if setting is None or setting[1].lower() not in _SETTINGS.get(section, frozenset()):
                return False
    return True
