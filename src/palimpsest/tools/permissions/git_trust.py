"""Whether the configuration of a repository can make a git command that only reads start a program."""

import os
from pathlib import Path
from typing import Final

from palimpsest.core.tokens.patterns import lazy_pattern

_LARGEST: Final = 100_000
_LARGEST_INDEX: Final = 64_000_000
_DEEPEST: Final = 4
# The mode of an index entry that stands for a commit of another repository.
_GITLINK: Final = b"\x00\x00\xe0\x00"
_SECTION: Final = lazy_pattern(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"[^"\\\n]*"\s*)?\]')
_SETTING: Final = lazy_pattern(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")
_CONTINUED: Final = lazy_pattern(r"\\$")
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
    can bring along, so every setting must be one that is known to start nothing. It also looks into nested repositories that the index
    names, by their own configuration.
    """
    try:
        return _only_reads(folder.resolve())
    except (OSError, RuntimeError, UnicodeError, ValueError, IndexError):
        return False


def _only_reads(folder: Path) -> bool:
    for place in (folder, *folder.parents):
        # Git takes a folder of this shape for a bare repository, with a configuration of its own.
        if _there(place / "HEAD") and any(_there(place / name) for name in ("objects", "commondir")):
            return False
        entry = place / ".git"
        if entry.is_dir():
            if not _plain(entry):
                return False
            # Git goes on above a folder that only has the name of a repository.
            if _there(entry / "HEAD") and _there(entry / "objects"):
                return _nested_are_plain(place, entry)
        elif entry.exists() or entry.is_symlink():
            return _linked(entry)
    return True


def _there(path: Path) -> bool:
    """Whether there is a name: for git, a link to nothing is a HEAD too."""
    return os.path.lexists(path)


def _linked(entry: Path, depth: int = 0) -> bool:
    """The check for a work tree or submodule, whose `.git` is a file that names the folder."""
    folder = _git_folder(entry)
    common = folder / "commondir"
    shared = (folder / _bounded(common).rstrip("\r\n")).resolve() if common.is_file() else folder
    # A submodule names its work tree, which matters only to commands that run in it.
    plain = _plain(folder, nested=depth > 0) if shared == folder else _plain(shared) and _hooks_are_quiet(folder)
    return plain and _nested_are_plain(entry.parent, folder, depth)


def _git_folder(entry: Path) -> Path:
    """The folder that a file `.git` names. Only line ends are no part of the name. Raises `ValueError` if it names none."""
    text = _bounded(entry)
    if not text.startswith("gitdir: "):
        raise ValueError(entry)
    return (entry.parent / text.removeprefix("gitdir: ").rstrip("\r\n")).resolve()


def _plain(folder: Path, *, nested: bool = False) -> bool:
    config = folder / "config"
    return (
        _hooks_are_quiet(folder)
        and not (folder / "config.worktree").exists()
        # Git reads the configuration of the folder that this file names instead.
        and not (folder / "commondir").exists()
        and (not config.exists() or _starts_nothing(_bounded(config), nested=nested))
    )


def _nested_are_plain(place: Path, folder: Path, depth: int = 0) -> bool:
    """Whether the repositories that the index of a git folder names start nothing; `status` and `diff` ask each of them."""
    if any(folder.glob("sharedindex.*")):
        return False
    for name in gitlinks(folder / "index"):
        entry = place / name / ".git"
        if entry.is_symlink() or depth >= _DEEPEST:
            return False
        if entry.is_dir():
            if not (_plain(entry) and _nested_are_plain(entry.parent, entry, depth + 1)):
                return False
        elif entry.exists() and not _linked(entry, depth + 1):
            return False
    return True


def gitlinks(index: Path) -> tuple[str, ...]:
    """The paths of nested repositories in an index file; none if there is no such file. Raises `ValueError` if it is not understood."""
    data = _index_bytes(index)
    # Most repositories have none, and searching is a hundred times faster than reading the entries.
    if _GITLINK not in data:
        return ()
    return tuple(name for mode, name in _index_entries(data, index) if mode == _GITLINK)


def follows_no_link(folder: Path) -> bool:
    """Whether all files of the index lie in real folders of the work tree: `git grep` would follow a link that took the place of one."""
    try:
        place = next((each for each in (folder, *folder.parents) if (each / ".git").is_file() or repository_of(each) == each), None)
        if place is None:
            return True
        entry = place / ".git"
        index = (entry if entry.is_dir() else _git_folder(entry)) / "index"
        entries = _index_entries(data, index) if (data := _index_bytes(index)) else ()
        folders = {name.rpartition("/")[0] for _, name in entries}
        return not any(index.parent.glob("sharedindex.*")) and all(os.path.realpath(place / each) == str(place / each) for each in folders)
    except (OSError, ValueError, IndexError, UnicodeError):
        return False


def tracked_files(folder: Path) -> tuple[Path, ...] | None:
    """The files in the index of the repository or work tree that a folder belongs to, none outside; `None` if it is not understood."""
    top = repository_of(folder)
    try:
        if top is not None:
            git = top / ".git"
        elif pointer := next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").is_file()), None):
            top, git = pointer.parent, pointer.parent / _bounded(pointer).removeprefix("gitdir: ").rstrip("\n")
        else:
            return None if any((each / ".git").is_symlink() for each in (folder, *folder.parents)) else ()
        index = git / "index"
        if not _there(git / "HEAD") or any(git.glob("sharedindex.*")):
            return None
        entries = _index_entries(data, index) if (data := _index_bytes(index)) else ()
        return tuple(top / name for _, name in entries if not name.endswith("/"))
    except (OSError, ValueError, IndexError, UnicodeError):
        return None


def repository_of(folder: Path) -> Path | None:
    """The top of the repository that a folder belongs to; `None` if there is none, or its data lie elsewhere."""
    for each in (folder, *folder.parents):
        place = each / ".git"
        # Git goes on above a folder that only has the name of a repository.
        if _there(place / "HEAD") and _there(place / "objects"):
            return each
        if place.is_file() or place.is_symlink():
            return None
    return None


def _index_bytes(index: Path) -> bytes:
    if not index.exists():
        return b""
    if not index.is_file() or index.stat().st_size > _LARGEST_INDEX:
        raise ValueError(index)
    return index.read_bytes()


def _index_entries(data: bytes, index: Path) -> list[tuple[bytes, str]]:
    """The modes and names of the entries of an index. Raises `ValueError` if its version is not known."""
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        raise ValueError(index)
    found: list[tuple[bytes, str]] = []
    place = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        # An entry has 40 bytes of file facts, with the mode at 24, a SHA-1, flags, perhaps more flags, and a name that ends with NUL.
        start = place + (64 if data[place + 60] & 0x40 else 62)
        end = data.index(b"\0", start)
        found.append((data[place + 24 : place + 28], data[start:end].decode()))
        place += (end - place) // 8 * 8 + 8
    if place > len(data) - 20:
        raise ValueError(index)
    return found


def _hooks_are_quiet(folder: Path) -> bool:
    # The only hook that reading runs: git refreshes the index.
    return not (folder / "hooks" / "post-index-change").exists()


def _bounded(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise ValueError(path)
    return path.read_bytes().decode()


def _starts_nothing(config: str, *, nested: bool = False) -> bool:
    section = ""
    for raw in config.split("\n"):
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
            name = "" if setting is None else setting[1].lower()
            if name not in _SETTINGS.get(section, frozenset()) and not (nested and (section, name) == ("core", "worktree")):
                return False
    return True
