"""A file for others, written whole or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.stores.disk import refusal, sync_file, sync_folder

_ENOUGH = 256 * 1024


def gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer and larger pieces."""
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _ENOUGH:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def write_whole(path: Path, chunks: Iterable[bytes], *, replace: bool = False, mode: int = 0o666) -> int:
    """Write a file that is there only when all of it is, and return its size; one that stands there is replaced only if told so."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        return _write_through(path, chunks)
    if os.path.lexists(path) and not replace:
        raise _standing(path)
    target = Path(os.path.realpath(path))
    new = target.parent / f".new-{os.urandom(6).hex()}"
    try:
        # The permissions are those that the file would have had if anybody else had made it.
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise refusal(error, path, "write") from error
    try:
        size = _fill(handle, chunks, path)
        _put_in_place(new, target, path, replace=replace)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    return size


def _fill(handle: int, chunks: Iterable[bytes], path: Path) -> int:
    size = 0
    try:
        for chunk in gathered(chunks):
            rest = memoryview(chunk)
            while rest:
                try:
                    rest = rest[os.write(handle, rest) :]
                except OSError as error:
                    raise refusal(error, path, "write") from error
            size += len(chunk)
        try:
            sync_file(handle)
        except OSError as error:
            raise refusal(error, path, "write") from error
    finally:
        os.close(handle)
    return size


def _put_in_place(new: Path, target: Path, path: Path, *, replace: bool) -> None:
    try:
        if replace:
            new.replace(target)
        else:
            # A link is refused where a name stands already, also one that came while we wrote.
            target.hardlink_to(new)
            new.unlink()
        sync_folder(target.parent)
    except FileExistsError:
        raise _standing(path) from None
    except OSError as error:
        raise refusal(error, path, "write") from error


def _write_through(path: Path, chunks: Iterable[bytes]) -> int:
    """Into a pipe or a device, which cannot be replaced."""
    size = 0
    try:
        with path.open("wb", buffering=0) as file:
            for chunk in gathered(chunks):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[file.write(rest) or 0 :]
                size += len(chunk)
    except OSError as error:
        raise refusal(error, path, "write") from error
    return size


def _standing(path: Path) -> BadInput:
    what = "this is a folder; name a file" if path.is_dir() else "this file is there already, and stays as it is; --force replaces it"
    return BadInput(what, where=str(path))
