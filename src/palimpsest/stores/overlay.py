"""Stores that can be tried out: everything of another store can be read, and what is written stays in memory."""

from collections.abc import Sequence

from palimpsest.core.ports import Blobs, Lines, Shelf
from palimpsest.stores.ephemeral import MemoryBlobs, MemoryShelf


class OverlayShelf:
    """The sessions of another shelf, to be read, and new ones that are gone with the process."""

    def __init__(self, under: Shelf) -> None:
        self._under = under
        self._over = MemoryShelf()

    def create(self, session: str, first: bytes = b"") -> Lines:
        """A log in memory."""
        return self._over.create(session, first)

    def open(self, session: str, *, write: bool = False) -> Lines:
        """A log in memory, or one of the other shelf for reading."""
        if session in self._over.sessions():
            return self._over.open(session, write=write)
        return self._under.open(session)

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted."""
        return sorted({*self._under.sessions(), *self._over.sessions()})


class OverlayBlobs:
    """The blobs of another store, and new ones that are gone with the process."""

    def __init__(self, under: Blobs) -> None:
        self._under = under
        self._over = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Keep the bytes in memory and return their address."""
        return self._over.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._over.get(address) if address in self._over else self._under.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._over or address in self._under
