"""Undos that one process asks of another: a small file beside the sessions, because only the process that writes a session may append."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.core.items import Value
from palimpsest.stores.files import open_in_folder, store_errors

_MOST_BYTES: Final = 64 * 1024


class QueuedUndo(Value, frozen=True):
    """An edit to undo: the number of its event, single edits of it by their number or none for all, and the reason."""

    event: int
    edits: tuple[int, ...] = ()
    why: str = ""


_decoder = msgspec.json.Decoder(QueuedUndo)


class UndoQueue:
    """The undos that wait for the process that writes a session. Without a `folder` there is no other process and no queue."""

    def __init__(self, folder: Path | None, session: str) -> None:
        self._path = None if folder is None else folder / "undos" / f"{session}.jsonl"

    def add(self, undo: QueuedUndo) -> None:
        """Ask for an undo. Raises `StoreError` if it cannot be written."""
        if self._path is None:
            return
        with store_errors(self._path, "write"):
            handle = open_in_folder(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(handle, msgspec.json.encode(undo) + b"\n")
            finally:
                os.close(handle)

    def take(self) -> tuple[QueuedUndo, ...]:
        """Return the undos that wait, oldest first, and remove them; lines that are no undos are dropped."""
        if self._path is None or not self._path.exists():
            return ()
        taken = self._path.with_suffix(".taken")
        try:
            # An undo that is asked for from now on goes to a new file.
            self._path.replace(taken)
            with taken.open("rb") as file:
                lines = file.read(_MOST_BYTES).splitlines()
            taken.unlink()
        except OSError:
            return ()
        undos: list[QueuedUndo] = []
        for line in lines:
            with suppress(msgspec.DecodeError):
                undos.append(_decoder.decode(line))
        return tuple(undos)
