"""A folder of blobs, addressed by their SHA-256, and the format of session ids and blob addresses."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from palimpsest.core.errors import BadInput, DamagedBlob, MissingBlob
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.stores.files import make_private_folder, read_regular, store_errors, sync_folder, write_private

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_ID = 128
_ADDRESS = lazy_pattern(r"[0-9a-f]{64}")


def new_session_id(now: int) -> str:
    """Return a session id that sorts by time: local date and time and four random letters; `now` is in milliseconds since 1970."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now / 1000))
    return f"{stamp}-{''.join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in os.urandom(4))}"


def check_session_id(session: str) -> None:
    """Raise `BadInput` for an invalid session id; a valid one is a plain file name, so that it cannot leave its folder."""
    if not session or session.startswith(".") or not _ID_CHARS.issuperset(session) or len(session) > _LONGEST_ID:
        raise BadInput(f"{session!r} cannot be the id of a session: letters, digits, dots, dashes and underscores only")


def is_address(word: str) -> bool:
    """Return whether a word has the format of a blob address: 64 lower-case hex digits."""
    return _ADDRESS.fullmatch(word) is not None


def check_address(address: str) -> None:
    """Raise `BadInput` for an invalid blob address."""
    if not is_address(address):
        raise BadInput(f"{address[:80]!r} is no blob address: it has to be 64 lower-case hex digits")


class BlobFolder:
    """Blobs under `<folder>/ab/cdef…`, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, address: str) -> Path:
        """Return the path of a blob, whether it exists or not."""
        check_address(address)
        return self.folder / address[:2] / address[2:]

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their address; raise `StoreError` if that fails."""
        address = sha256(data).hexdigest()
        path = self.path(address)
        with store_errors(path, "write"):
            if not _holds(path, data):
                self._make_folder(path.parent)
                write_private(path, data)
        return address

    def get(self, address: str) -> bytes:
        """Return the bytes at an address; raise `MissingBlob` if there are none, `DamagedBlob` if their digest is another."""
        with self._reading(address) as path:
            data = read_regular(path)
        if sha256(data).hexdigest() != address:
            raise DamagedBlob(f"blob {address} is damaged: its {len(data):,} bytes have another digest", where=str(path))
        return data

    @contextmanager
    def _reading(self, address: str) -> Iterator[Path]:
        path = self.path(address)
        with store_errors(path, "read"):
            try:
                yield path
            except (FileNotFoundError, NotADirectoryError):
                message = f"no blob {address}; the session that names it was copied without it"
                raise MissingBlob(message, where=str(self.folder)) from None

    def size(self, address: str) -> int:
        """Return the size in bytes of the blob at an address; raise `MissingBlob` if there is none."""
        with self._reading(address) as path:
            return path.stat().st_size

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all blobs, sorted; temporary files that a crash left are skipped."""
        for first in _names(self.folder):
            for rest in _names(self.folder / first):
                if is_address(first + rest):
                    yield first + rest

    def __contains__(self, address: str) -> bool:
        return is_address(address) and self.path(address).is_file()

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            make_private_folder(self.folder)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.folder)


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has these bytes; one of the same size may have been damaged."""
    try:
        return path.stat().st_size == len(data) and read_regular(path) == data
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    with store_errors(folder, "list"):
        try:
            return sorted(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
