"""Every implementation of a session store, with what happens to its bytes behind its back: torn, replaced, shortened, deleted."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from palimpsest.core.ports import SessionStore
from palimpsest.stores.ephemeral import MemorySessions
from palimpsest.stores.jsonl import JsonlSessions


class StoreKind(Protocol):
    """A session store, and a hand on the bytes that it keeps."""

    @property
    def store(self) -> SessionStore: ...

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
        self.store = MemorySessions(run=run)

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
