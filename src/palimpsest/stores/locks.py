"""One writer at a time: a lock that the system frees when its holder dies."""

import fcntl
import os
import time
from pathlib import Path

from palimpsest.core.errors import Locked, StoreError


class Lock:
    """An exclusive lock on a file that says who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def take(self) -> None:
        """Hold the lock, or say who does."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot lock the session: {error.strerror}", where=str(self._path)) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(handle)
            message = f"the session is being written by {holder}; close it there, or read it without writing"
            raise Locked(message, where=str(self._path)) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode(), 0)
        self._file = handle

    def release(self) -> None:
        """Let it go; the file stays, for removing it would race with the next holder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
