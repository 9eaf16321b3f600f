"""Writes a file atomically: it is there when all of it is, and until then what stood in its place stays."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.stores.disk import refusal, sync_file, sync_folder

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
