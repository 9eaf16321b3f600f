"""Sandboxes for shell commands: bubblewrap, else Landlock, else none, with what each of them keeps a command from."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from palimpsest.tools.shell.keeper import kept
from palimpsest.tools.shell.repositories import git_folders, kept_settings, repository_tree
from palimpsest.tools.shell.visible import visible_paths
from palimpsest.tools.workspace import PROTECTED_FILES, PROTECTED_FOLDERS, Workspace, no_shelf, program_outside

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
