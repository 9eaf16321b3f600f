"""Reads data that is compressed with zstd, by whichever module this Python has for it."""

import importlib
from io import BytesIO
from typing import BinaryIO, Protocol, cast

from palimpsest.core.errors import BadInput
from palimpsest.foreign.reading.opening import ByteReader

_MODULES = ("compression.zstd", "zstandard", "pyzstd", "backports.zstd")


class _Module(Protocol):
    def open(self, file: BinaryIO, mode: str) -> object: ...


def open_zstd(file: BinaryIO) -> ByteReader:
    """A reader of the decompressed bytes of an open file. Raises `BadInput` with the package to install if there is no module."""
    for name in _MODULES:
        try:
            module = cast("_Module", importlib.import_module(name))
        except ImportError:
            continue
        return cast("ByteReader", module.open(file, "rb"))
    raise BadInput("what is compressed with zstd needs Python 3.14 or the package `zstandard`; install it and import again")


def unpacked(data: bytes, most: int) -> bytes:
    """The decompressed bytes. Raises `BadInput` if there are more than `most`, or if the data is damaged."""
    try:
        reader = open_zstd(BytesIO(data))
        try:
            found = reader.read(most + 1)
        finally:
            reader.close()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"it cannot be unpacked: {error}") from error
    if len(found) > most:
        raise BadInput(f"it unpacks to more than {most:,} bytes")
    return found
