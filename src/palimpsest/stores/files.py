"""File operations of the stores: open, sync, lock and write atomically."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palimpsest.core.errors import BadInput, Locked, StoreError

# macOS has no fdatasync. Both functions also write the size of a file, which changes with every append.
sync_file = getattr(os, "fdatasync", os.fsync)

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space, nothing was lost",
    errno.EDQUOT: "the quota is used up; free some space, nothing was lost",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "there is a file where a folder should be",
    errno.EEXIST: "there is a file where a folder should be",
}


def store_error(error: OSError, path: Path, verb: str) -> StoreError:
    """Return the error for a failed system call, with the path and the reason in one line."""
    reason = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    if error.errno == errno.ENOENT and not path.parent.exists():
        reason = f"there is no folder {path.parent}"
    return StoreError(f"cannot {verb} it: {reason}", where=str(path))


@contextmanager
def store_errors(path: Path, verb: str) -> Iterator[None]:
    """Raise a `StoreError` in place of an `OSError` of the block."""
    try:
        yield
    except OSError as error:
        raise store_error(error, path, verb) from error


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, and those above that are missing; `Path.mkdir` would make these as the umask says."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not missing and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, "there is a file", str(folder))


def open_in_folder(path: Path, flags: int) -> int:
    """Open a file that only its owner can read, and return its descriptor; a missing folder is made."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        # Making the folder only after a failure saves a system call in the usual case.
        make_private_folder(path.parent)
        return os.open(path, flags | os.O_CLOEXEC, 0o600)


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises `OSError`, also for a pipe, socket or device, which is opened without waiting for it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, "rb") as file:  # noqa: PTH123 - the descriptor is checked before it is read
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read()


def bounded_text(path: Path, most: int) -> str | None:
    """Return the text of a regular file of at most so many bytes; `None` for a link, and for what is larger, no file or no text."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else None
        return None if data is None or len(data) > most else data.decode()
    except (OSError, UnicodeDecodeError):
        return None


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a new name in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Lock:
    """An exclusive lock of a session, on a file that names its holder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def acquire(self) -> None:
        """Acquire the lock; raise `Locked` with the name of the holder if it is taken, `StoreError` if the file cannot be opened."""
        with store_errors(self._path, "lock the session with"):
            handle = open_in_folder(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._lock_and_sign(handle)
        except BaseException:
            os.close(handle)
            raise
        self._file = handle

    def lock_log(self, file: int) -> None:
        """Lock the log file too, because the lock file may have been deleted; on failure close it and raise `Locked`."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise self._locked("another process") from error

    def release(self) -> None:
        """Release the lock; the lock file stays, because deleting it would race with the next holder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock_and_sign(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._locked(os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process") from error
        holder = f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        with store_errors(self._path, "lock the session with"):
            os.ftruncate(handle, 0)
            os.pwrite(handle, holder.encode(), 0)

    def _locked(self, holder: str) -> Locked:
        message = f"the session is being written by {holder}; close it there, or read it without writing"
        return Locked(message, where=str(self._path))


def is_locked(path: Path) -> bool:
    """Return whether a file is locked by a writer. Raises `OSError` if it cannot be opened.

    It is found out with a shared lock of some microseconds, in which a writer that starts would be refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


_PIECE_BYTES = 256 * 1024
# A file name has at most 255 bytes nearly everywhere, and the suffix of a temporary name needs 19 of them.
_NAME_BYTES = 200


def coalesced(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join chunks into pieces of at least 256 KiB; the last may be smaller."""
    pending: list[bytes] = []
    size = 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        if size >= _PIECE_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def write_atomically(path: Path, chunks: Iterable[bytes], *, replace: bool = False, mode: int | None = None, sync: bool = True) -> int:
    """Write a file that the user named, completely or not at all, and return its size in bytes.

    Raises `BadInput` if the file exists and `replace` is false, `StoreError` if it cannot be written. A replaced file keeps its
    permissions, and a symbolic link stays one. Without `mode` a new file gets the default permissions. A pipe or device is written to.
    """
    if _is_pipe_or_device(path):
        return _write_through(path, chunks)
    if os.path.lexists(path) and not replace:
        raise _already_exists(path)
    target = Path(os.path.realpath(path))
    try:
        return _write_file(target, path, chunks, replace=replace, mode=mode, sync=sync)
    except FileExistsError:
        raise _already_exists(path) from None


def write_private(path: Path, data: bytes, *, replace: bool = True, sync: bool = True, sync_name: bool = True) -> bool:
    """Write a file of the stores, completely or not at all, readable by its owner only.

    Returns false if the file exists and `replace` is false. A symbolic link is not followed: it is replaced, or counts as existing.
    Without `sync_name` the caller syncs the folder, once for several files.
    """
    try:
        _write_file(path, path, (data,), replace=replace, mode=0o600, sync=sync, sync_name=sync_name)
    except FileExistsError:
        return False
    return True


def ensure_writable(path: Path) -> None:
    """Raise `StoreError` if no file can be written at a path; it writes a temporary one, because permissions alone do not show it."""
    new = _temporary(Path(os.path.realpath(path)))
    with store_errors(path, "write"):
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        new.unlink()
        # The temporary name was shortened; this checks that the file system accepts the name itself.
        with suppress(FileNotFoundError):
            path.lstat()


def is_temporary(name: str, of: str) -> bool:
    """Return whether a name is that of a temporary file for the file `of`, which a crash may leave."""
    head, mark, tail = name.rpartition(".new-")
    return bool(mark) and head == f".{of}" and len(tail) == 12 and set(tail) <= set("0123456789abcdef")


def _temporary(target: Path) -> Path:
    """Return a unique name with the name of the target in it; in the same folder, so that the rename stays within a file system."""
    name = target.name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    return target.parent / f".{name}.new-{os.urandom(6).hex()}"


def _write_file(
    target: Path, path: Path, chunks: Iterable[bytes], *, replace: bool, mode: int | None, sync: bool, sync_name: bool = True
) -> int:
    """Write the target; error messages name `path`. Raises `FileExistsError` if the target exists and `replace` is false."""
    new = _temporary(target)
    with store_errors(path, "write"):
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else mode)
    try:
        if mode is None and replace:
            # A replaced file keeps its permissions, if the system allows it.
            with suppress(OSError):
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        size = _fill(handle, chunks, path, sync=sync)
        _move_into_place(new, target, path, replace=replace, sync=sync and sync_name)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    return size


def _fill(handle: int, chunks: Iterable[bytes], path: Path, *, sync: bool) -> int:
    """Write all chunks and return their bytes; errors raised by the iterator of the chunks pass through."""
    size = 0
    try:
        for chunk in coalesced(chunks):
            with store_errors(path, "write"):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(handle, rest) :]
            size += len(chunk)
        if sync:
            with store_errors(path, "write"):
                sync_file(handle)
    finally:
        os.close(handle)
    return size


def _move_into_place(new: Path, target: Path, path: Path, *, replace: bool, sync: bool) -> None:
    try:
        if replace:
            new.replace(target)
        else:
            # Making a hard link fails if the name exists, even if it was created meanwhile.
            target.hardlink_to(new)
            new.unlink()
        if sync:
            sync_folder(target.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise store_error(error, path, "write") from error


def _is_pipe_or_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        # It does not exist, or its name is too long.
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _write_through(path: Path, chunks: Iterable[bytes]) -> int:
    """Write to a pipe or a device, which cannot be replaced."""
    with store_errors(path, "write"):
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    return _fill(handle, chunks, path, sync=False)


def _already_exists(path: Path) -> BadInput:
    message = "this is a folder; name a file" if path.is_dir() else "this file exists and was not changed; --force replaces it"
    return BadInput(message, where=str(path))


class FileDocument:
    """A small value in a file. What `save` writes is not synced, because a lost value of that kind can be computed again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The path."""
        return str(self._path)

    def read(self) -> bytes | None:
        """Return the bytes of the file; `None` if there is none. Raises `StoreError` if it cannot be read."""
        try:
            return read_regular(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise store_error(error, self._path, "read") from error

    def change(self, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replace the value under a lock in a file beside it. Raises `StoreError` if it cannot be locked, read or written."""
        place = self._path.with_suffix(".lock")
        with store_errors(place, "lock"):
            lock = open_in_folder(place, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read()
            after = change(before)
            if after is None:
                with store_errors(self._path, "delete"):
                    self._path.unlink(missing_ok=True)
            elif after != before:
                write_private(self._path, after)
        finally:
            os.close(lock)

    def load(self) -> bytes | None:
        """Return the value that was saved last; `None` if the file is missing or cannot be read."""
        try:
            return read_regular(self._path)
        except OSError:
            return None

    def save(self, data: bytes) -> bool:
        """Replace the value and return whether that succeeded; a missing folder is made."""
        try:
            if not self._path.parent.is_dir():
                make_private_folder(self._path.parent)
            return write_private(self._path, data, sync=False)
        except (StoreError, OSError):
            return False
