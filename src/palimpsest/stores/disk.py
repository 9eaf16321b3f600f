"""What the file system is asked for and refuses: syncing, and refusals as one line."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from palimpsest.core.errors import StoreError

# Linux has fdatasync and macOS does not; the size of a file changes with its data, so both keep what matters.
sync_file = getattr(os, "fdatasync", os.fsync)

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space, nothing was lost",
    errno.EDQUOT: "the quota is used up; free some space, nothing was lost",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a file stands where a folder should be",
    errno.EEXIST: "a file stands where a folder should be",
}


def refusal(error: OSError, path: Path, verb: str) -> StoreError:
    """What the system refused, as one line that names the path."""
    reason = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    return StoreError(f"cannot {verb} it: {reason}", where=str(path))


def open_in_folder(path: Path, flags: int) -> int:
    """A file of the owner's alone, in a folder that is made if it is not there; most of the time it is."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def write_draft(folder: Path, data: bytes) -> Path:
    """A synced file under a name of its own, readable by its owner alone, to be put in its place; nothing is left if the disk refuses."""
    # In the same folder, so that putting it in its place cannot cross a file system.
    handle, name = tempfile.mkstemp(prefix=".new-", dir=folder)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            sync_file(handle)
        finally:
            os.close(handle)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
