"""What follows from the events of a log, kept up to date as they come: view, health, ledger and inbox."""

from msgspec import Raw

from palimpsest.core.checkpoint import Checkpoint, load_checkpoint
from palimpsest.core.codec import GENESIS, decode_chunk, link_of_line
from palimpsest.core.errors import BadLog
from palimpsest.core.events import EditUndone, Event, UserSaid, UserTyped
from palimpsest.core.health import Health, HealthProjection
from palimpsest.core.ledger import Ledger, LedgerProjection
from palimpsest.core.project import ViewProjection
from palimpsest.core.reading import Reader
from palimpsest.core.resuming import NOTHING_YET, State, project_state, restore_view, state_at
from palimpsest.core.view import View

_TYPED = frozenset({UserTyped, UserSaid})


class Following:
    """The projections of one log up to its newest event `seq`, and the chain and the last line there."""

    def __init__(self, reader: Reader, state: State = NOTHING_YET) -> None:
        self._reader = reader
        self.seq = reader.first - 1
        self.link = GENESIS
        self.last_line = 0
        self._projection = ViewProjection(state.view, find=reader.item)
        self._health = HealthProjection.of(state.health)
        self._ledger = LedgerProjection.of(Ledger())
        self._inbox: dict[int, None] = {}
        self._waiting: list[Event] = []
        self.memo: tuple[int, Raw] | None = None

    @property
    def view(self) -> View:
        """What the model sees now."""
        self._catch_up()
        return self._projection.view

    @property
    def health(self) -> Health:
        """How the session is doing, along its path."""
        self._catch_up()
        return self._health.value()

    @property
    def ledger(self) -> Ledger:
        """What was spent, on every branch."""
        self._catch_up()
        return self._ledger.value()

    @property
    def inbox(self) -> tuple[int, ...]:
        """What the user typed and nobody has said yet, by event."""
        self._catch_up()
        return tuple(self._inbox)

    def take(self, event: Event) -> None:
        """Take in one more event; what follows from it is worked out when somebody asks."""
        self.seq = event.seq
        self._waiting.append(event)
        if self._reader.note(event):
            self._catch_up(projecting=False)
            self._project_again()

    def _catch_up(self, *, projecting: bool = True) -> None:
        if not self._waiting:
            return
        health, ledger, take = HealthProjection.WATCHES, LedgerProjection.WATCHES, self._projection.take
        for event in self._waiting:
            kind = type(event.body)
            if kind in ledger:
                self._ledger.take(event)
            elif kind in _TYPED:
                self._sort(event)
            if projecting:
                take(event)
                if kind in health:
                    self._health.take(event)
        self._waiting.clear()

    def read(self, start: int) -> int:
        """Take in the lines from a byte on, and say how many; if branches or undone edits turn up the path is projected once more."""
        before, shaped = self.seq, False
        offset, chunk = start, b""
        event: Event | None = None
        lines, health, ledger = self._reader.lines, HealthProjection.WATCHES, LedgerProjection.WATCHES
        take, expected = self._projection.take, self.seq
        for offset, chunk in lines.chunks(start):
            for event in decode_chunk(chunk, lines.name, offset):
                expected += 1
                if event.seq != expected or event.parent >= expected:
                    raise self._disorder(event, expected, offset)
                kind = type(event.body)
                if kind in ledger:
                    self._ledger.take(event)
                elif kind in _TYPED:
                    self._sort(event)
                if event.parent != expected - 1 or kind is EditUndone:
                    self._check_parent(event, offset)
                    shaped = self._reader.note(event)
                elif not shaped:
                    take(event)
                    if kind in health:
                        self._health.take(event)
        if event is not None:
            self._end(expected, chunk, offset, event)
        if shaped:
            self._project_again()
        return self.seq - before

    def _end(self, seq: int, chunk: bytes, offset: int, event: Event) -> None:
        """Remember the last line that has something on it, and the chain up to it."""
        stop = len(chunk.rstrip(b"\n"))
        last = chunk.rfind(b"\n", 0, stop) + 1
        self.seq = seq
        self.last_line = offset + last
        self.link = link_of_line(chunk[last : stop + 1], event)

    def restore(self, checkpoint: Checkpoint, view: View) -> None:
        """Stand where a checkpoint was made."""
        self._reader.jumps = list(checkpoint.jumps)
        self._reader.undone = list(checkpoint.undone)
        self._projection = ViewProjection(view, find=self._reader.item)
        self._health = HealthProjection.of(checkpoint.health)
        self._ledger = LedgerProjection.of(checkpoint.ledger)
        self._inbox = dict.fromkeys(checkpoint.inbox)
        self.seq = checkpoint.seq
        self.link = checkpoint.link
        self.last_line = checkpoint.last_line
        self.memo = (checkpoint.seq, checkpoint.memo)

    def _project_again(self) -> None:
        state = project_state(self._reader, self._reader.path(self.seq))
        self._projection = ViewProjection(state.view, find=self._reader.item)
        self._health = HealthProjection.of(state.health)

    def _sort(self, event: Event) -> None:
        """Keep the inbox: what was typed waits in it until it is said."""
        if isinstance(event.body, UserTyped):
            self._inbox[event.seq] = None
        elif isinstance(event.body, UserSaid) and event.body.typed is not None:
            self._inbox.pop(event.body.typed, None)

    def _disorder(self, event: Event, expected: int, offset: int) -> BadLog:
        where = f"{self._reader.lines.name}, after byte {offset}"
        if event.seq != expected:
            word = "a second time" if event.seq < expected else f"where event {expected} should be"
            return BadLog(f"event {event.seq} stands {word}; see `pal verify`", where=where)
        return BadLog(f"event {event.seq} follows event {event.parent}, which comes later; see `pal verify`", where=where)

    def _check_parent(self, event: Event, offset: int) -> None:
        first = self._reader.first
        lowest = 0 if self._reader.base is not None else first
        if event.parent < lowest and not (event.seq == first and event.parent == first - 1):
            where = f"{self._reader.lines.name}, after byte {offset}"
            raise BadLog(f"event {event.seq} follows event {event.parent}, which is not there; see `pal verify`", where=where)


def follow(reader: Reader) -> tuple[Following, int]:
    """Everything that follows from a log, and how many events came after its checkpoint."""
    checkpoint = load_checkpoint(reader.lines)
    view = restore_view(checkpoint, reader) if checkpoint is not None else None
    if checkpoint is not None and view is not None:
        following = Following(reader)
        following.restore(checkpoint, view)
        return following, following.read(checkpoint.offset)
    state = NOTHING_YET if reader.base is None else state_at(reader.base, reader.first - 1)
    following = Following(reader, state)
    return following, following.read(0)
