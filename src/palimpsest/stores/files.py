"""Files of the stores: opening, syncing, locking, and writing one atomically."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from palimpsest.core.errors import BadInput, Locked, StoreError

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


_PIECE_BYTES = 256 * 1024
# A file name has at most 255 bytes nearly everywhere, and the suffix of a temporary name needs 19 of them.
_NAME_BYTES = 200


def gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer and larger pieces."""
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def write_whole(path: Path, chunks: Iterable[bytes], *, replace: bool = False, mode: int | None = None, sync: bool = True) -> int:
    """Write a file that a person named, whole or not at all, and return its size in bytes.

    A file that stands there is refused with `BadInput` unless `replace`; one that is replaced keeps its permissions, and a link to it
    stays a link. Without `mode` a new file has the permissions that the user's other files get. A pipe or a device is written to.
    """
    if os.path.exists(path) and not (path.is_file() or path.is_dir()):  # noqa: PTH110 - false also for a name that is too long
        return _write_through(path, chunks)
    if os.path.lexists(path) and not replace:
        raise _standing(path)
    target = Path(os.path.realpath(path))
    try:
        return _write(target, path, chunks, replace=replace, mode=mode, sync=sync)
    except FileExistsError:
        raise _standing(path) from None


def write_private(path: Path, data: bytes, *, replace: bool = True, sync: bool = True) -> bool:
    """Write a file of ours, whole or not at all, readable by its owner alone; false if one stands there that may not be replaced.

    A link is never followed: it is replaced by the file, or counts as the one that stands there.
    """
    try:
        _write(path, path, (data,), replace=replace, mode=0o600, sync=sync)
    except FileExistsError:
        return False
    return True


def demand_room(path: Path) -> None:
    """Raise `StoreError` if no file can be made where one is to be written later: permissions alone do not tell."""
    new = _temporary(Path(os.path.realpath(path)))
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        new.unlink()
        # The temporary name was cut to what a file system takes; the name itself is tried here.
        with suppress(FileNotFoundError):
            path.lstat()
    except OSError as error:
        raise refusal(error, path, "write") from error


def is_temporary(name: str, of: str) -> bool:
    """Whether a file is what a crash left of writing the file `of`."""
    head, mark, tail = name.rpartition(".new-")
    return bool(mark) and head == f".{of}" and len(tail) == 12 and set(tail) <= set("0123456789abcdef")


def _temporary(target: Path) -> Path:
    """A name of its own in the same folder, so that the rename cannot cross a file system; it says whose place it will take."""
    name = target.name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    return target.parent / f".{name}.new-{os.urandom(6).hex()}"


def _write(target: Path, path: Path, chunks: Iterable[bytes], *, replace: bool, mode: int | None, sync: bool) -> int:
    """Write the target; errors name `path`, and `FileExistsError` says that something stands there."""
    new = _temporary(target)
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode)
    except OSError as error:
        raise refusal(error, path, "write") from error
    try:
        if mode is None and replace:
            _keep_mode(handle, target)
        size = _fill(handle, chunks, path, sync=sync)
        _put_in_place(new, target, path, replace=replace, sync=sync)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    return size


def _fill(handle: int, chunks: Iterable[bytes], path: Path, *, sync: bool) -> int:
    """Write all chunks; an error of what makes the chunks stays as it is."""
    size = 0
    try:
        for chunk in gathered(chunks):
            try:
                _write_all(handle, chunk)
            except OSError as error:
                raise refusal(error, path, "write") from error
            size += len(chunk)
        try:
            if sync:
                sync_file(handle)
        except OSError as error:
            raise refusal(error, path, "write") from error
    finally:
        os.close(handle)
    return size


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _put_in_place(new: Path, target: Path, path: Path, *, replace: bool, sync: bool) -> None:
    try:
        if replace:
            new.replace(target)
        else:
            # A link is refused where a name stands already, also one that came while we wrote.
            target.hardlink_to(new)
            new.unlink()
        if sync:
            sync_folder(target.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise refusal(error, path, "write") from error


def _write_through(path: Path, chunks: Iterable[bytes]) -> int:
    """Write into a pipe or a device, which cannot be replaced."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(error, path, "write") from error
    return _fill(handle, chunks, path, sync=False)


def _keep_mode(handle: int, target: Path) -> None:
    """Give the new file the permissions of the one that it replaces, as far as the system lets us."""
    with suppress(OSError):
        os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))


def _standing(path: Path) -> BadInput:
    what = "this is a folder; name a file" if path.is_dir() else "this file is there already, and stays as it is; --force replaces it"
    return BadInput(what, where=str(path))
