"""Sandboxes for shell commands by bubblewrap or Landlock, and the files that commands in a sandbox can see or write."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from palimpsest.agent.processes import kept
from palimpsest.agent.workspace import PROTECTED_FILES, PROTECTED_FOLDERS, Workspace, no_shelf, program_outside
from palimpsest.core.redaction import find_secrets

_LARGEST: Final = 4_096
_MOST_MODULES: Final = 100
_SETTINGS: Final = ("config", "config.worktree", "commondir", "gitdir")


def git_folders(project: Path, home: Path | None = None) -> tuple[Path, ...]:
    """The git folders of a project: its own, those of its submodules, and for a work tree the ones of the repository it belongs to.

    A project that is a folder of a repository has that repository, unless it holds the `home` of the user.
    The file `.git` of a work tree may name any folder, and a command or an archive can have written it. So the folder counts only if it
    names the work tree in turn, which a command inside the sandbox cannot have written.
    """
    entry = _entry(project, Path.home() if home is None else home)
    if entry is None or entry.is_symlink():
        return ()
    if entry.is_dir():
        return entry, *(_modules(entry) or ())
    folder = _named(entry, "gitdir: ")
    if folder is not None and any((parent / ".git" / "modules") in folder.parents for parent in entry.parent.parents):
        return (folder,)
    if folder is None or _named(folder / "gitdir", "") != entry:
        return ()
    common = _named(folder / "commondir", "")
    return (common, folder) if common is not None and common / "worktrees" == folder.parent else ()


def kept_settings(folder: Path) -> Iterator[Path]:
    """What git obeys in one of the folders of `git_folders`, so that no command may change it; not all of it need be there.

    The settings of other work trees are among it. Where there are too many work trees or submodules, all of them are.
    """
    yield from (folder / name for name in ("hooks", *_SETTINGS))
    trees = list(islice((folder / "worktrees").glob("*"), _MOST_MODULES + 1))
    yield from [folder / "worktrees"] if len(trees) > _MOST_MODULES else (tree / name for tree in trees for name in _SETTINGS)
    yield from [folder / "modules"] if _modules(folder) is None else ()


def _modules(folder: Path) -> tuple[Path, ...] | None:
    """The git folders of submodules, whose names may have slashes, and of theirs; `None` if there are too many."""
    found: list[Path] = []
    around = [folder / "modules"]
    for place in around:
        inner = [path for path in place.glob("*") if path.is_dir() and not path.is_symlink()]
        found += (modules := [path for path in inner if os.path.lexists(path / "HEAD") or (path / "config").exists()])
        around += [path for path in inner if path not in modules] + [path / "modules" for path in modules]
        if len(around) + len(found) > 4 * _MOST_MODULES:
            return None
    return tuple(found)


def repository_tree(project: Path, home: Path) -> Path | None:
    """The folder of the repository that a project is a part of, if it is not the project itself: builds read what lies beside."""
    entry = _entry(project, home)
    return None if entry is None or entry.parent == project else entry.parent


def _entry(project: Path, home: Path) -> Path | None:
    """The entry `.git` of the project or of the nearest folder around it that has one, below the home folder of the user."""
    around = (folder for folder in project.parents if folder != home and folder not in home.parents)
    return next((folder / ".git" for folder in (project, *around) if os.path.lexists(folder / ".git")), None)


def _named(file: Path, prefix: str) -> Path | None:
    """The folder or file that a small file names, relative to its own folder; `None` if it does not."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        text = file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return (file.parent / text.removeprefix(prefix)).resolve() if text.startswith(prefix) and "\0" not in text else None


SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys", "/nix", "/gnu", "/snap"),
    *("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/gems", "/var/lib/ghc", "/var/cache/fontconfig", "/home/linuxbrew/.linuxbrew"),
)
"""Programs, libraries and settings of the system. Data of services (`/var`, `/srv`), other disks and other users are not among it."""
# Folders of a home with programs and downloaded packages. Files with accounts lie beside them, so no folder around is named.
_TOOLCHAINS: Final = (
    *(".local/bin", ".local/lib", ".local/share/pipx", ".local/pipx", ".local/share/mise", ".local/share/pnpm"),
    *(".local/share/uv/python", ".local/share/uv/tools"),
    *(".cache/pip", ".cache/uv", ".cache/pypoetry/cache", ".cache/pypoetry/artifacts", ".cache/pypoetry/virtualenvs", ".cache/pre-commit"),
    *(".cache/go-build", ".cache/yarn", ".cache/node", ".cache/ms-playwright", ".cache/bazelisk", ".cache/coursier", ".cache/deno"),
    *(".pyenv", ".conda/pkgs", ".conda/envs", "miniconda3", "anaconda3", "miniforge3", ".virtualenvs"),
    *(".rye/shims", ".rye/py", ".rye/uv", ".rye/self", ".rye/tools", ".rye/pip-tools", ".rye/config.toml"),
    *(".nvm", ".fnm", ".local/share/fnm", ".volta", ".npm/_cacache", ".npm-global", ".bun/bin", ".bun/install/cache", ".deno/bin"),
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/env", ".rustup", "go/bin", "go/pkg", ".asdf", ".sdkman/candidates"),
    *(".m2/repository", ".m2/wrapper", ".gradle/caches", ".gradle/wrapper", ".ivy2/cache", ".sbt/boot", ".konan"),
    *(".rbenv", ".rvm", ".gem/ruby", ".bundle/cache", ".ghcup/bin", ".ghcup/ghc", ".cabal/packages", ".cabal/bin", ".cabal/store"),
    *(".dotnet/dotnet", ".dotnet/host", ".dotnet/sdk", ".dotnet/sdk-manifests", ".dotnet/shared", ".dotnet/packs", ".dotnet/tools"),
    *(".nuget/packages", ".hex/packages", ".mix/archives", ".mix/elixir", ".julia/packages", ".julia/registries"),
    *(".julia/artifacts", ".pub-cache/hosted", ".composer/cache", ".nix-profile", ".nix-defexpr", ".linuxbrew"),
)
# Settings without which git and builds do something else. Each is shown only if no secret is found in it.
_JUDGED_FILES: Final = (
    *(".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".cargo/config.toml", ".cargo/config"),
    *(".tool-versions", ".config/mise/config.toml", ".python-version", ".node-version", ".nvmrc", ".ripgreprc"),
)
_LARGEST_JUDGED: Final = 200_000
# The folder of a toolchain whose entries have names of the user, and the entry with accounts, which alone is not shown.
_OPAM, _OPAM_ACCOUNTS = ".opam", "plugins"
_ENVIRONMENT_FILES: Final = ("pyvenv.cfg", "conda-meta")


def visible_paths(home: Path, shown: tuple[Path, ...] = (), search_path: str | None = None) -> tuple[Path, ...]:
    """The existing files and folders beside the project that commands may read: of the system, of the home, and what a setting names."""
    found = [*_existing(map(Path, SYSTEM)), *_existing(home / name for name in _TOOLCHAINS)]
    found += [path for path in sorted((home / _OPAM).glob("*")) if path.name != _OPAM_ACCOUNTS]
    found += [path for path in _existing(home / name for name in _JUDGED_FILES) if _is_harmless(path)]
    found += _programs(home, os.environ.get("PATH", os.defpath) if search_path is None else search_path)
    # The Python of this program, wherever it lies: the programs of a project are often run with the same.
    found += [path for path in map(Path, (sys.base_prefix, sys.prefix)) if path.is_dir() and not _holds(path, home)]
    found += _existing(path if path.is_absolute() else home / path for path in map(Path.expanduser, shown))
    return tuple(dict.fromkeys(found))


def _holds(folder: Path, home: Path) -> bool:
    """Whether a folder is the home folder or around it, however it is written."""
    return home.resolve().is_relative_to(folder.resolve())


def _existing(paths: Iterator[Path]) -> Iterator[Path]:
    return (path for path in paths if path.exists())


def _is_harmless(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_JUDGED:
            return False
        return not find_secrets(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False


def _programs(home: Path, search_path: str) -> Iterator[Path]:
    """The folders of the search path; with the whole environment if it is one of Python."""
    for word in search_path.split(os.pathsep):
        folder = Path(word)
        if not folder.is_absolute() or not folder.is_dir() or _holds(folder, home):
            continue
        around = folder.parent
        yield around if any((around / name).exists() for name in _ENVIRONMENT_FILES) and not _holds(around, home) else folder


SandboxKind: TypeAlias = Literal["bubblewrap", "landlock", "none"]
Argv: TypeAlias = tuple[str, ...]
_PROBE_SECONDS: Final = 20
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The kernel lets its administrator set them without any capability: one of them names a program that it starts when a process crashes.
_KERNEL_SETTINGS: Final = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"))
# Isolated, because Python would import modules of the project from the working directory.
_LAUNCH: Final = (
    "import json, sys; sys.path.append(sys.argv[1]); from sandlock import Sandbox; "
    "sys.exit(Sandbox(**json.loads(sys.argv[2])).run_interactive(sys.argv[3:]))"
)


class Area(Struct, frozen=True):
    """What commands may use: they write in `root`, `extra` and the private folder `temp`, and read the system and `shown`.

    Of the home folder they see what building and testing need. `hidden` they do not see, wherever it is, but `shelf`, which they read;
    `fixed` are folders that they cannot rename.
    """

    root: Path
    extra: tuple[Path, ...]
    temp: Path
    network: bool = False
    hidden: tuple[Path, ...] = ()
    home: Path = field(default_factory=Path.home)
    shown: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    shelf: Callable[[], tuple[Path, ...]] = no_shelf

    @classmethod
    def of(cls, workspace: Workspace, *, network: bool = False, hidden: tuple[Path, ...] = (), shown: tuple[Path, ...] = ()) -> "Area":
        """The area of a workspace, with a new temp folder; `hidden` are folders such as that of the sessions."""
        temp = Path(tempfile.mkdtemp(prefix="pal-")).resolve()
        return cls(workspace.root, workspace.extra, temp, network, hidden, shown=shown, shelf=workspace.shelf)

    @property
    def writable(self) -> tuple[Path, ...]:
        """The folders of the project."""
        return (self.root, *self.extra)

    def visible(self) -> tuple[Path, ...]:
        """Existing files and folders that commands may read beside those that they may write."""
        around = [tree for folder in self.writable if (tree := repository_tree(folder, self.home)) is not None]
        return (*visible_paths(self.home, self.shown), *dict.fromkeys(around))

    def concealed(self) -> tuple[Path, ...]:
        """Existing files and folders that commands do not see; one that the project lies in stays visible."""
        found = [path.resolve() for path in self.hidden if path.exists()]
        return tuple(path for path in dict.fromkeys(found) if not any(path == folder or path in folder.parents for folder in self.writable))

    def remove(self) -> None:
        """Delete the temp folder."""
        shutil.rmtree(self.temp, ignore_errors=True)


class Sandbox(Struct, frozen=True):
    """A sandbox that works on this machine. `program` is what starts it, `library` the folder of sandlock; `why` says why there is none."""

    kind: SandboxKind
    program: str = ""
    library: str = ""
    why: str = ""

    @property
    def confines(self) -> bool:
        """Whether commands are held in, if not in every respect."""
        return self.kind != "none"

    @property
    def replaces_questions(self) -> bool:
        """Whether commands may run inside without a question.

        Landlock holds no change of modes, owners and times outside, nor of settings of git that the user's own git obeys later.
        """
        return self.kind == "bubblewrap"

    def describe(self, *, network: bool = False) -> str:
        """The statement for the start of a session."""
        net = "the network is open to them" if network else "they have no network"
        match self.kind:
            case "bubblewrap":
                return f"Commands run in a sandbox (bubblewrap): they write only in the project and a private temp folder; {net}."
            case "landlock":
                return (
                    f"Commands run in a sandbox (Landlock): they write only in the project and a private temp folder; {net}. "
                    "It cannot keep them from changing settings of git, nor modes and owners of files elsewhere: "
                    "every command that may change something asks first. Bubblewrap holds these too."
                )
            case "none":
                return f"There is no sandbox ({self.why}): every command that may change something asks first."

    def wrap(self, area: Area) -> Callable[[Argv], Argv]:
        """A function for `Shell.sandbox`: the arguments that run a command inside."""
        match self.kind:
            case "bubblewrap":
                return lambda arguments: (*bubblewrap_arguments(self.program, area), "--", *arguments)
            case "landlock":
                return lambda arguments: kept(
                    (self.program, "-I", "-c", _LAUNCH, self.library, json.dumps(landlock_policy(area)), *arguments)
                )
            case "none":
                return kept


def bubblewrap_arguments(program: str, area: Area) -> Argv:
    """The call of bubblewrap, without the command: what is visible is named, on a new file system that is read-only otherwise.

    A socket on a read-only file system can be connected to, so what is not needed is not there.
    """
    arguments = [program]
    for path in area.visible():
        linked = path.is_symlink() and path.parent == Path("/")
        arguments += ["--symlink", str(path.readlink()), str(path)] if linked else ["--ro-bind", str(path), str(path)]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    for place in _KERNEL_SETTINGS:
        arguments += ["--ro-bind-try", place, place]
    arguments += ["--tmpfs", "/run", "--symlink", "/run", "/var/run", "--dir", str(area.home)]
    # Where NixOS keeps the programs.
    arguments += ["--ro-bind-try", "/run/current-system", "/run/current-system"]
    if area.network:
        arguments += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    arguments += ["--bind", str(area.temp), "/tmp", "--bind", str(area.temp), str(area.temp)]  # noqa: S108  # the private one takes its place
    for folder in (*area.writable, *area.fixed):
        arguments += ["--bind", str(folder), str(folder)]
    for folder in area.writable:
        for option, path in _kept(folder, area.home):
            arguments += [option, str(path), str(path)]
    for path in area.concealed():
        arguments += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
    for path in area.shelf():
        arguments += ["--ro-bind-try", str(path), str(path)]
    arguments += ["--remount-ro", "/", "--unshare-all", *(["--share-net"] if area.network else [])]
    return (*arguments, "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def _kept(folder: Path, home: Path) -> Iterator[tuple[str, Path]]:
    """Mounts that keep what other programs run or obey later as it is: hooks and settings of git, and files that configure shells."""
    folders = git_folders(folder, home)
    for hooks in (git / "hooks" for git in folders):
        if not hooks.exists():
            hooks.mkdir(exist_ok=True)
    settings = [path for git in folders for path in kept_settings(git) if path.exists() and not path.is_symlink()]
    # Mounts of their own, because a folder that is none could be renamed, with all that is mounted in it, and made again.
    around = {place for path in (*folders, *settings) for place in (path, *path.parents) if place.is_relative_to(folders[0])}
    yield from (("--bind", place) for place in sorted(around.difference(settings), key=lambda place: len(place.parts)))
    yield from (("--ro-bind", path) for path in settings)
    pointer = folder / ".git"
    names = sorted((PROTECTED_FILES | PROTECTED_FOLDERS) - {".git"})
    files = [pointer] if pointer.is_file() else []
    yield from (("--ro-bind", path) for path in (*files, *(folder / name for name in names)) if path.exists() and not path.is_symlink())


def landlock_policy(area: Area) -> dict[str, list[str]]:
    """The fields of `sandlock.Sandbox` for an area."""
    hooks = [str(git / "hooks") for folder in area.writable for git in git_folders(folder, area.home) if (git / "hooks").is_dir()]
    shelf = [path for path in area.shelf() if path.exists()]
    # A refusal wins over what lies within, so a folder around the shelf is not refused where nothing grants it.
    granted = (*area.visible(), *area.writable, area.temp)
    around = {top for path in shelf for top in path.parents if not any(top == each or each in top.parents for each in granted)}
    shared = [str(git) for folder in area.writable for git in git_folders(folder, area.home)]
    return {
        "fs_readable": [*map(str, area.visible()), "/proc", *_name_service(area), str(area.temp), *map(str, shelf)],
        "fs_writable": [*map(str, area.writable), str(area.temp), *shared, *(device for device in _DEVICES if Path(device).exists())],
        "fs_denied": [*hooks, *(str(path) for path in area.concealed() if path not in around)],
        "net_allow": ["*:*", "udp://*:*"] if area.network else [],
    }


def _name_service(area: Area) -> list[str]:
    places = ("/run/current-system", *(("/run/systemd/resolve",) if area.network else ()))
    return [place for place in places if Path(place).exists()]


def find_sandbox(area: Area) -> Sandbox:
    """The best sandbox that works here: each is tried once, because a program can be there and the kernel forbid what it needs."""
    around = next((folder for folder in area.writable if folder == area.home or folder in area.home.parents), None)
    if around is not None:
        return Sandbox("none", why=f"{around} holds your home folder, whose files other programs obey")
    reasons: list[str] = []
    for candidate in (_bubblewrap(area), _landlock()):
        if candidate.kind == "none":
            reasons.append(candidate.why)
        elif any(
            folder in Path(path).resolve().parents
            for folder in (*area.writable, area.temp)
            for path in (candidate.program, candidate.library)
            if path
        ):
            reasons.append(f"{candidate.kind} lies in a folder that commands may change")
        elif problem := _problem(candidate, area):
            reasons.append(f"{candidate.kind} does not work here: {problem}")
        else:
            return candidate
    return Sandbox("none", why="; ".join(reasons))


def _bubblewrap(area: Area) -> Sandbox:
    # One that commands may change is named in the reasons, if there is no other.
    program = program_outside("bwrap", *area.writable, area.temp) or shutil.which("bwrap")
    return Sandbox("none", why="bubblewrap is not installed") if program is None else Sandbox("bubblewrap", program)


def _landlock() -> Sandbox:
    spec = find_spec("sandlock") if sys.platform == "linux" else None
    if spec is None or spec.origin is None:
        return Sandbox("none", why="sandlock is not installed")
    return Sandbox("landlock", sys.executable, str(Path(spec.origin).parent.parent))


def _problem(sandbox: Sandbox, area: Area) -> str:
    """Why a sandbox does not hold: a command is run that must be able to write in the temp folder, and must not beside it."""
    with tempfile.TemporaryDirectory(prefix="pal-probe-", dir=area.temp.parent) as outside:
        inner, outer = area.temp / "probe", Path(outside) / "probe"
        script = 'echo inside > "$1"; echo outside > "$2"; exit 0'
        try:
            done = subprocess.run(  # noqa: S603  # the program was found by us
                sandbox.wrap(area)(("/bin/sh", "-c", script, "probe", str(inner), str(outer))),
                cwd=area.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        worked, held = inner.exists(), not outer.exists()
        inner.unlink(missing_ok=True)
    if not held:
        return "a command could write outside"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if worked and done.returncode == 0 else (lines[0][:200] if lines else f"exit code {done.returncode}")
