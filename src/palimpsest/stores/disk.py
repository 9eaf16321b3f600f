"""System calls of the stores: opening and syncing, and the errors of the system as one line."""

import errno
import os
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


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
