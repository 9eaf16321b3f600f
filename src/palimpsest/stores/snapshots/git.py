"""The only place that starts git: with a git folder of ours, no configuration of others, and bounded in time, memory and output."""

import io
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import IO, Final, TypeAlias

from palimpsest.core.errors import StoreError

Wrap: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns the arguments that run a command in a sandbox."""
SECONDS: Final = 300.0
_LARGEST_OUTPUT: Final = 256 * 1024 * 1024
_MESSAGE_BYTES: Final = 2_000
_GRACE_SECONDS: Final = 2.0
_SETTINGS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.autocrlf=false", "core.eol=lf"),
    *("core.symlinks=true", "core.fileMode=true", "core.excludesFile=/dev/null", "core.attributesFile=/dev/null", "core.quotePath=false"),
    *("gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "advice.addEmbeddedRepo=false", "core.preloadIndex=false"),
    # Git would start git in nested repositories, with the configuration that they have.
    *("diff.ignoreSubmodules=all", "status.submoduleSummary=false", "submodule.recurse=false"),
    *("core.pager=cat", "core.editor=false", "core.askPass=false", "credential.helper=", "gpg.program=false", "color.ui=false"),
    # A snapshot that a power cut damages would damage every later one, since the index trusts the objects that it names.
    *("core.fsync=loose-object,pack", "core.fsyncMethod=batch"),
)
# Variables of ours only: those of the user hold keys, and could name another repository, index or program.
_VARIABLES: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    # A missing object is an error; it is not fetched.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    # Bytes of one piece of memory: a small file can claim to hold an object of any size.
    "GIT_ALLOC_LIMIT": str(1024 * 1024 * 1024),
}
_SHELL: Final = "/bin/sh"
# It makes the kernel end git when we are killed; that of busybox cannot.
_ENDS_WITH_US: Final = ("/usr/bin/setpriv", "--pdeathsig", "KILL") if os.path.realpath("/usr/bin/setpriv") == "/usr/bin/setpriv" else ()
# Files that git reads in every folder of a work tree. It waits for ever if one is a named pipe.
_READ_EVERYWHERE: Final = (".gitignore", ".gitattributes")
_PRIVATE: Final = 0o077


def find_git(root: Path, search_path: str | None = None) -> str | None:
    """The absolute path of git; `None` if there is none.

    Relative folders are not searched, nor those in `root` and in the project in which this process works, which could bring its own git.
    """
    words = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    projects = (root, *_working_project())
    safe = [word for word in words if Path(word).is_absolute() and not any(Path(word).resolve().is_relative_to(each) for each in projects)]
    return shutil.which("git", path=os.pathsep.join(safe))


def _working_project() -> tuple[Path, ...]:
    """The repository around the working folder, else that folder; nothing if the folder is gone, or around the home of the user."""
    try:
        here = Path.cwd()
        top = next((folder for folder in (here, *here.parents) if os.path.lexists(folder / ".git")), here)
        return tuple(folder for folder in (here, top) if not Path.home().resolve().is_relative_to(folder))
    except OSError:
        return ()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ask first: what starts a sandbox ends all that is in there, which need not be in its group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    _kill_group(process)


class ShadowGit:
    """Git commands with one git folder, whose configuration must be ours. `seconds` is the time limit of each.

    New files are for their owner alone, unless another `umask` is given; -1 is that of this process.
    """

    def __init__(self, program: str, folder: Path, seconds: float = SECONDS, umask: int = _PRIVATE) -> None:
        self._program = program
        self.folder = folder
        self._seconds = seconds
        self._umask = umask
        self._running: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """Kill the command that runs, perhaps in another thread, and let every later one fail with `StoreError`."""
        self.is_stopped = True
        if self._running is not None:
            _kill_group(self._running)

    def run(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> bytes:
        """The output of a command in a work tree. Raises `StoreError` if it fails, takes too long or prints more than 256 MiB."""
        with self.stream(*arguments, tree=tree, index=index, data=data, settings=settings) as output:
            found = output.read(_LARGEST_OUTPUT + 1)
            if len(found) > _LARGEST_OUTPUT:
                raise StoreError("git printed more than 256 MiB; the folder has too many files", where=str(tree or self.folder))
            return found

    def answers(
        self, commands: tuple[tuple[str, ...], ...], tree: Path, index: Path, wrap: Wrap, *, most: int, settings: tuple[str, ...] = ()
    ) -> tuple[str | None, ...]:
        """The output of each command that only reads, without the line end; `None` for one that failed or came too late.

        They run in one shell in a sandbox, because each start of one takes 10 to 100 ms, and have `most` bytes and the seconds together;
        what comes later is cut off. None of these outputs may have a zero byte.
        """
        run = (self._program, *_flags(settings))
        script = "; ".join(f"{shlex.join((*run, *command))}; printf '\\0%s\\0' \"$?\"" for command in commands)
        environment = {**self._environment(tree, index), "GIT_OPTIONAL_LOCKS": "0"}
        try:
            process = _start(wrap((_SHELL, "-c", script)), tree, environment, subprocess.DEVNULL, subprocess.DEVNULL)
        except OSError:
            return (None,) * len(commands)
        with self._watched(process, _end_group), process:
            data = b"" if process.stdout is None else process.stdout.read(most)
            if len(data) >= most:
                _end_group(process)
        # The output of each command is followed by its exit code; that of the last one may be cut.
        parts = data.decode("utf-8", "replace").split("\0")
        found = [text.rstrip("\n") if code == "0" else None for text, code in zip(parts[::2], parts[1::2], strict=False)]
        if len(data) >= most and len(parts) % 2:
            found.append(parts[-1])
        return (*found, *(None for _ in commands))[: len(commands)]

    @contextmanager
    def stream(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> Iterator[IO[bytes]]:
        """The output of a command, to be read to its end. Raises `StoreError` if the command fails or takes too long."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
            # In a file, because a pipe could be full while git waits for its output to be read.
            given.write(data)
            given.seek(0)
            command = (*_ENDS_WITH_US, self._program, *_flags(settings), *arguments)
            pipes: list[str] = []
            try:
                process = _start(command, tree or self.folder, self._environment(tree, index), given, errors, umask=self._umask)
            except OSError as error:
                raise StoreError(f"git cannot be started: {error.strerror}", where=self._program) from error
            with self._watched(process), _unless_pipes(process, tree, self._seconds / 60, pipes), process:
                yield process.stdout if process.stdout is not None else io.BytesIO()
            if process.returncode != 0:
                errors.seek(0)
                said = errors.read(_MESSAGE_BYTES).decode("utf-8", "backslashreplace").strip().replace("\n", "; ")
                killed = process.returncode == -signal.SIGKILL
                late = "it was stopped" if self.is_stopped else f"it took more than {self._seconds:g} seconds"
                late = f"{pipes[0]} is a named pipe, which it would wait for; remove it" if pipes else late
                reason = late if killed else said or f"exit code {process.returncode}"
                raise StoreError(f"git {arguments[0]} failed: {reason}", where=str(tree or self.folder))

    @contextmanager
    def _watched(
        self, process: "subprocess.Popen[bytes]", end: Callable[["subprocess.Popen[bytes]"], None] = _kill_group
    ) -> Iterator[None]:
        """End a process after the time limit, if this is stopped, and if the block fails."""
        timer = Timer(self._seconds, end, (process,))
        timer.start()
        self._running = process
        if self.is_stopped:
            # Asked for before there was a process to kill.
            _kill_group(process)
        try:
            yield
        except BaseException:
            _kill_group(process)
            raise
        finally:
            timer.cancel()
            self._running = None

    def _environment(self, tree: Path | None, index: Path | None) -> Mapping[str, str]:
        found = {
            **_VARIABLES,
            "PATH": os.pathsep.join((str(Path(self._program).parent), os.defpath)),
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "GIT_DIR": str(self.folder),
            "GIT_INDEX_FILE": str(index or self.folder / "index"),
        }
        return found if tree is None else {**found, "GIT_WORK_TREE": str(tree)}


@contextmanager
def _unless_pipes(process: "subprocess.Popen[bytes]", tree: Path | None, seconds: float, pipes: list[str]) -> Iterator[None]:
    """Kill a process that takes longer if there is a named pipe in the work tree for which git waits; it is added to `pipes`."""

    def look() -> None:
        for folder, _, names in () if tree is None else os.walk(tree):
            if process.returncode is not None:
                return
            found = (os.path.join(folder, name) for name in _READ_EVERYWHERE if name in names)  # noqa: PTH118 - in every folder
            with suppress(OSError):
                pipes.extend(path for path in found if stat.S_ISFIFO(os.lstat(path).st_mode))
            if pipes:
                _kill_group(process)
                return

    timer = Timer(seconds, look)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _flags(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for setting in (*_SETTINGS, *settings) for word in ("-c", setting))


def _start(
    arguments: tuple[str, ...],
    cwd: Path,
    environment: Mapping[str, str],
    given: IO[bytes] | int,
    errors: IO[bytes] | int,
    *,
    umask: int = -1,
) -> "subprocess.Popen[bytes]":
    """Start git in a group of its own. Raises `OSError`."""
    return subprocess.Popen(  # noqa: S603  # a fixed program with arguments of ours
        arguments, cwd=cwd, env=environment, stdin=given, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, umask=umask
    )
