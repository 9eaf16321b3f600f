"""Cursors of earlier imports by source, so that the next import reads only what is new; the file can be deleted without loss."""

import msgspec

from palimpsest.core.items import Value
from palimpsest.core.ports import StateSlot
from palimpsest.foreign.reading.transcript import ReadPosition, TranscriptSource

VERSION = 1


class SourceCursor(Value, frozen=True):
    """State of a source after its last import: its stamp, the log it was imported to, the newest event there, and where reading stopped.

    `secrets` counts the secrets found in the first `searched` bytes of the log, by class.
    """

    format: str
    path: str
    session: str
    log: str
    changed: str = ""
    tip: int = -1
    position: ReadPosition | None = msgspec.field(default=None, name="mark")
    secrets: dict[str, int] = {}
    searched: int = 0


class _CursorFile(Value, frozen=True):
    v: int = VERSION
    cursors: tuple[SourceCursor, ...] = msgspec.field(default=(), name="seen")


class Cursors:
    """The cursors of all sources, kept in one slot that is replaced as a whole."""

    def __init__(self, slot: StateSlot, cursors: tuple[SourceCursor, ...] = ()) -> None:
        self._slot = slot
        self._cursors = {(cursor.format, cursor.path, cursor.session): cursor for cursor in cursors}
        self._changed = False

    @classmethod
    def load(cls, slot: StateSlot) -> "Cursors":
        """The cursors in a slot; none if it is empty, damaged or of another version."""
        data = slot.load()
        try:
            stored = _CursorFile() if data is None else msgspec.json.decode(data, type=_CursorFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls(slot)
        return cls(slot, stored.cursors if stored.v == VERSION else ())

    def of(self, source: TranscriptSource) -> SourceCursor | None:
        """The cursor of a source; None if it was never imported."""
        return self._cursors.get((source.format, source.path, source.session))

    def put(self, cursor: SourceCursor) -> None:
        """Set the cursor of a source."""
        key = (cursor.format, cursor.path, cursor.session)
        self._changed = self._changed or self._cursors.get(key) != cursor
        self._cursors[key] = cursor

    def all(self) -> tuple[SourceCursor, ...]:
        """All cursors, sorted by format, path and session."""
        return tuple(self._cursors[key] for key in sorted(self._cursors))

    def save(self) -> None:
        """Write the cursors if any has changed. A slot that cannot be written is ignored: the next import reads more than it needs."""
        if self._changed and self._slot.save(msgspec.json.encode(_CursorFile(cursors=self.all()))):
            self._changed = False
