"""What earlier imports saw of each source, so that the next one reads only what is new; it can be deleted without loss."""

import msgspec

from palimpsest.core.items import Value
from palimpsest.core.ports import StateSlot
from palimpsest.foreign.reading.transcript import ReadPosition, TranscriptSource

VERSION = 1


class SourceCursor(Value, frozen=True):
    """A source as the last import left it: what it was like, the log it went to, up to which event, and where reading stopped.

    `secrets` counts by class what was found in the log, of which `searched` bytes were looked at so far.
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


class _File(Value, frozen=True):
    v: int = VERSION
    seen: tuple[SourceCursor, ...] = ()


class Cursors:
    """All that was seen, kept in one slot that is replaced as a whole."""

    def __init__(self, slot: StateSlot, seen: tuple[SourceCursor, ...] = ()) -> None:
        self._slot = slot
        self._seen = {(each.format, each.path, each.session): each for each in seen}
        self._changed = False

    @classmethod
    def load(cls, slot: StateSlot) -> "Cursors":
        """What the slot says; one that is empty, damaged or of another version says nothing."""
        data = slot.load()
        try:
            kept = _File() if data is None else msgspec.json.decode(data, type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls(slot)
        return cls(slot, kept.seen if kept.v == VERSION else ())

    def of(self, source: TranscriptSource) -> SourceCursor | None:
        """What was seen of a source."""
        return self._seen.get((source.format, source.path, source.session))

    def put(self, seen: SourceCursor) -> None:
        """Remember a source as it was left."""
        key = (seen.format, seen.path, seen.session)
        self._changed = self._changed or self._seen.get(key) != seen
        self._seen[key] = seen

    def all(self) -> tuple[SourceCursor, ...]:
        """Everything seen, in the order of paths."""
        return tuple(self._seen[key] for key in sorted(self._seen))

    def save(self) -> None:
        """Replace the slot at once and as a whole; a disk that refuses is no reason to stop, for the logs are enough."""
        if self._changed and self._slot.save(msgspec.json.encode(_File(seen=self.all()))):
            self._changed = False
