"""Every implementation of every store, and a hand on the bytes of those that a crash or a person can change behind their back."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from palimpsest.core.ports import BlobStore, SessionArchive, StateSlot
from palimpsest.stores.files import FileDocument
from palimpsest.stores.in_memory import MemoryBlobs, MemoryDocument, MemoryFile, MemorySessions
from palimpsest.stores.sessions import BlobFolder, JsonlSessions


class StoreKind(Protocol):
    """A session store, and a hand on the bytes that it keeps."""

    @property
    def store(self) -> SessionArchive: ...

    def tear(self, session: str, data: bytes) -> None:
        """Leave bytes at the end of a log, as a writer that died half way would."""
        ...

    def replace(self, session: str, data: bytes) -> None:
        """Put another log in the place of this one."""
        ...

    def write_over(self, session: str, data: bytes) -> None:
        """Change the bytes of a log where they stand."""
        ...

    def remove(self, session: str) -> None:
        """Delete a log."""
        ...


class InMemory:
    """`MemorySessions`."""

    def __init__(self, run: int = 1024 * 1024) -> None:
        self.store = MemorySessions(chunk_bytes=run)

    def tear(self, session: str, data: bytes) -> None:
        self._data(session).extend(data)

    def replace(self, session: str, data: bytes) -> None:
        self.store.replace(session, data)

    def write_over(self, session: str, data: bytes) -> None:
        self._data(session)[:] = data

    def remove(self, session: str) -> None:
        self.store.remove(session)

    def _data(self, session: str) -> bytearray:
        file = self.store.file_of(session)
        assert file is not None
        return file.data


class InFiles:
    """`JsonlSessions`."""

    def __init__(self, folder: Path) -> None:
        self.store = JsonlSessions(folder / "sessions")

    def tear(self, session: str, data: bytes) -> None:
        with self.store.path_of(session).open("ab") as file:
            file.write(data)

    def replace(self, session: str, data: bytes) -> None:
        path = self.store.path_of(session)
        fresh = path.with_suffix(".fresh")
        fresh.write_bytes(data)
        fresh.replace(path)

    def write_over(self, session: str, data: bytes) -> None:
        path = self.store.path_of(session)
        with path.open("r+b") as file:
            file.write(data)
        os.truncate(path, len(data))

    def remove(self, session: str) -> None:
        self.store.path_of(session).unlink()


KINDS: dict[str, Callable[[Path], StoreKind]] = {
    "memory": lambda _: InMemory(),
    "memory in small runs": lambda _: InMemory(run=8),
    "files": InFiles,
}


class BegunSessions(MemorySessions):
    """An overlay whose logs all begin in the store below: what is created is begun there and goes on in memory."""

    def __init__(self, under: SessionArchive) -> None:
        super().__init__(under)
        self._below = under

    def create(self, session: str, first: bytes = b"") -> MemoryFile:
        if session in self._below.sessions():
            return super().create(session, first)
        self._below.create(session, first).close()
        return self.open(session, write=True)


STORES: dict[str, Callable[[Path], SessionArchive]] = {
    "memory": lambda _: MemorySessions(),
    "memory in small runs": lambda _: MemorySessions(chunk_bytes=8),
    "files": lambda folder: JsonlSessions(folder / "sessions"),
    "overlay": lambda folder: MemorySessions(JsonlSessions(folder / "sessions")),
    "overlay of logs begun in files": lambda folder: BegunSessions(JsonlSessions(folder / "sessions")),
    "overlay of logs begun in memory": lambda _: BegunSessions(MemorySessions(chunk_bytes=8)),
}
BLOBS: dict[str, Callable[[Path], BlobStore]] = {
    "memory": lambda _: MemoryBlobs(),
    "files": lambda folder: BlobFolder(folder / "blobs"),
    "overlay": lambda folder: MemoryBlobs(BlobFolder(folder / "blobs")),
}
SLOTS: dict[str, Callable[[Path], StateSlot]] = {
    "memory": lambda _: MemoryDocument(),
    "file": lambda folder: FileDocument(folder / "home" / "state"),
}
