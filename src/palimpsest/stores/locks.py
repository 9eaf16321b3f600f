"""One writer at a time: a lock that the system frees when its holder dies."""

import fcntl
import os
import time
from pathlib import Path

from palimpsest.core.errors import Locked
from palimpsest.stores.disk import open_in_folder, refusal


class Lock:
    """An exclusive lock on a file that says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def take(self) -> None:
        """Hold the lock, or say who does."""
        try:
            handle = open_in_folder(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise refusal(error, self._path, "lock the session with") from error
        try:
            self._hold(handle)
        except BaseException:
            os.close(handle)
            raise
        self._file = handle

    def guard(self, file: int) -> None:
        """Lock the log itself too: somebody may have removed the file that says who holds it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise self._locked("another process") from error

    def release(self) -> None:
        """Let it go; the file stays, for removing it would race with the next holder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _hold(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._locked(os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process") from error
        name = f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, name.encode(), 0)
        except OSError as error:
            raise refusal(error, self._path, "lock the session with") from error

    def _locked(self, holder: str) -> Locked:
        message = f"the session is being written by {holder}; close it there, or read it without writing"
        return Locked(message, where=str(self._path))
