"""Contents by their SHA-256, one file each, written whole or not at all; and the keys of all stores."""

import os
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.stores.files import refusal, sync_folder, write_private

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST = 128
_ADDRESS = re.compile(r"[0-9a-f]{64}")


def new_session_id(now: int) -> str:
    """An id that sorts by time: date, time and four random letters; `now` is milliseconds since 1970."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now / 1000))
    return f"{stamp}-{''.join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4))}"


def demand_id(session: str) -> None:
    """Refuse with `BadInput` what cannot be the id of a session: it is a plain name, so that it never leaves its folder or table."""
    if not session or session.startswith(".") or not _PLAIN.issuperset(session) or len(session) > _LONGEST:
        raise BadInput(f"{session!r} cannot be the id of a session: letters, digits, dots, dashes and underscores only")


def is_address(word: str) -> bool:
    """Whether a word has the form of a blob's address: 64 lower-case hex digits."""
    return _ADDRESS.fullmatch(word) is not None


def demand_address(address: str) -> None:
    """Refuse with `BadInput` what cannot be the address of a blob."""
    if not is_address(address):
        raise BadInput(f"{address[:80]!r} is no blob address: it has to be 64 lower-case hex digits")


class BlobFolder:
    """Blobs under `<folder>/ab/cdef…`, readable by their owner only."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, address: str) -> Path:
        """Where a blob lies, or would lie."""
        demand_address(address)
        return self.folder / address[:2] / address[2:]

    def put(self, data: bytes) -> str:
        """Keep the bytes, durably, and return their address."""
        address = sha256(data).hexdigest()
        path = self.path(address)
        try:
            if not _has_size(path, len(data)):
                self._make_room(path.parent)
                write_private(path, data)
        except OSError as error:
            raise refusal(error, path, "write") from error
        return address

    def get(self, address: str) -> bytes:
        """The bytes at an address, unchecked; `MissingBlob` if they are not here."""
        path = self.path(address)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(address) from None
        except OSError as error:
            raise refusal(error, path, "read") from error

    def check(self, address: str) -> bool:
        """Whether the bytes at an address still are what it says."""
        return sha256(self.get(address)).hexdigest() == address

    def size(self, address: str) -> int:
        """How many bytes lie at an address."""
        path = self.path(address)
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(address) from None
        except OSError as error:
            raise refusal(error, path, "read") from error

    def addresses(self) -> Iterator[str]:
        """The addresses of all blobs, in order; what a crash left half written is not among them."""
        for first in _names(self.folder):
            for rest in _names(self.folder / first):
                if is_address(first + rest):
                    yield first + rest

    def __contains__(self, address: str) -> bool:
        return is_address(address) and self.path(address).is_file()

    def _missing(self, address: str) -> MissingBlob:
        return MissingBlob(f"no blob {address}; the session that names it was copied without it", where=str(self.folder))

    def _make_room(self, folder: Path) -> None:
        if not folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.folder)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise refusal(error, folder, "list") from error
