"""Undos that other processes ask the writer of a session for."""

from contextlib import suppress
from typing import Final

import msgspec

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.stores.home import Home

_MOST_BYTES: Final = 64 * 1024


class QueuedUndo(Value, frozen=True):
    """An edit to undo: the number of its event, single edits of it by their number or none for all, and the reason."""

    event: int
    edits: tuple[int, ...] = ()
    why: str = ""


_decoder = msgspec.json.Decoder(QueuedUndo)


class UndoQueue:
    """The undos that wait for the process that writes a session, in a document of its home."""

    def __init__(self, home: Home, session: str) -> None:
        self._document = home.document(f"undos/{session}.jsonl")

    def add(self, undo: QueuedUndo) -> None:
        """Ask for an undo. Raises `StoreError` if it cannot be written."""
        self._document.change(lambda data: (data or b"") + msgspec.json.encode(undo) + b"\n")

    def take(self) -> tuple[QueuedUndo, ...]:
        """Return the undos that wait, oldest first, and remove them; lines that are not undos are dropped."""
        if self._document.load() is None:
            return ()
        lines: list[bytes] = []

        def take_lines(data: bytes | None) -> None:
            lines.extend((data or b"")[:_MOST_BYTES].splitlines())

        with suppress(StoreError):
            self._document.change(take_lines)
        undos: list[QueuedUndo] = []
        for line in lines:
            with suppress(msgspec.DecodeError):
                undos.append(_decoder.decode(line))
        return tuple(undos)
