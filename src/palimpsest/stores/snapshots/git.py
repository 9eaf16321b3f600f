"""Runs git on a repository of ours: without the user's configuration, hooks and filters, and bounded in time and output."""

import io
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, Final

from palimpsest.core.errors import StoreError

SECONDS: Final = 300.0
_LARGEST_OUTPUT: Final = 256 * 1024 * 1024
_MESSAGE_BYTES: Final = 2_000
_SETTINGS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.autocrlf=false", "core.eol=lf"),
    *("core.symlinks=true", "core.fileMode=true", "core.excludesFile=/dev/null", "core.attributesFile=/dev/null", "core.quotePath=false"),
    *("gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "advice.addEmbeddedRepo=false", "core.preloadIndex=false"),
    # A snapshot that a power cut damages would damage every later one, since the index trusts the objects that it names.
    *("core.fsync=loose-object,pack", "core.fsyncMethod=batch"),
)


def find_git(root: Path, search_path: str | None = None) -> str | None:
    """The absolute path of git; `None` if there is none. Folders of the project and relative ones are not searched."""
    words = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    safe = [word for word in words if Path(word).is_absolute() and not Path(word).resolve().is_relative_to(root)]
    return shutil.which("git", path=os.pathsep.join(safe))


class ShadowGit:
    """Git commands on one repository. `seconds` is the time limit of each."""

    def __init__(self, program: str, folder: Path, seconds: float = SECONDS) -> None:
        self._program = program
        self.folder = folder
        self._seconds = seconds
        self._running: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """Kill the command that runs, perhaps in another thread, and let every later one fail with `StoreError`."""
        self.is_stopped = True
        if self._running is not None:
            self._running.kill()

    def run(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> bytes:
        """The output of a command in a work tree. Raises `StoreError` if it fails, takes too long or prints more than 256 MiB."""
        with self.stream(*arguments, tree=tree, index=index, data=data, settings=settings) as output:
            found = output.read(_LARGEST_OUTPUT + 1)
            if len(found) > _LARGEST_OUTPUT:
                raise StoreError("git printed more than 256 MiB; the folder has too many files", where=str(tree or self.folder))
            return found

    @contextmanager
    def stream(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> Iterator[IO[bytes]]:
        """The output of a command, to be read to its end. Raises `StoreError` if the command fails or takes too long."""
        flags = [word for setting in (*_SETTINGS, *settings) for word in ("-c", setting)]
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
            # In a file, because a pipe could be full while git waits for its output to be read.
            given.write(data)
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603  # a fixed program with arguments of ours
                    [self._program, *flags, *arguments],
                    cwd=tree or self.folder,
                    env=self._environment(tree, index),
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as error:
                raise StoreError(f"git cannot be started: {error.strerror}", where=self._program) from error
            timer = Timer(self._seconds, process.kill)
            timer.start()
            self._running = process
            if self.is_stopped:
                # Asked for before there was a process to kill.
                process.kill()
            try:
                with process:
                    yield process.stdout if process.stdout is not None else io.BytesIO()
            except BaseException:
                process.kill()
                raise
            finally:
                timer.cancel()
                self._running = None
            if process.returncode != 0:
                errors.seek(0)
                said = errors.read(_MESSAGE_BYTES).decode("utf-8", "backslashreplace").strip().replace("\n", "; ")
                killed = process.returncode == -signal.SIGKILL
                late = "it was stopped" if self.is_stopped else f"it took more than {self._seconds:g} seconds"
                reason = late if killed else said or f"exit code {process.returncode}"
                raise StoreError(f"git {arguments[0]} failed: {reason}", where=str(tree or self.folder))

    def _environment(self, tree: Path | None, index: Path | None) -> Mapping[str, str]:
        """Variables of ours only: those of the user could name another repository, index or program."""
        found = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_DIR": str(self.folder),
            "GIT_INDEX_FILE": str(index or self.folder / "index"),
        }
        return found if tree is None else {**found, "GIT_WORK_TREE": str(tree)}
