"""State at an event: restored from a checkpoint where one helps, else projected from the root."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from palimpsest.core.checkpoint import Checkpoint, Stretch, load_checkpoint
from palimpsest.core.codec import decode_chunk
from palimpsest.core.edits import Put, into_of
from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.health import Health, HealthProjection
from palimpsest.core.items import Item, kind_of, seq_of
from palimpsest.core.ledger import Ledger
from palimpsest.core.path import Path
from palimpsest.core.project import ViewProjection, pieces_of
from palimpsest.core.reading import Reader
from palimpsest.core.view import EMPTY, View

# What lies between two events that show is read along when it is this little: a read costs more than some bytes.
_GAP = 4 * 1024


class State(NamedTuple):
    """What follows from a path: the view and the health of the session."""

    view: View
    health: Health


class Position(NamedTuple):
    """Where a log stands: its newest event, the bytes up to its end and at its last line, the chain, and what waits to be said."""

    seq: int
    offset: int
    last_line: int
    link: str
    inbox: tuple[int, ...]


NOTHING_YET = State(EMPTY, Health())


def state_at(reader: Reader, seq: int) -> State:
    """The state right after an event, along the path that leads to it."""
    path = reader.path(seq)
    owner = reader.owner(seq)
    checkpoint = load_checkpoint(owner.lines)
    if checkpoint is None or checkpoint.seq not in path or any(at > checkpoint.seq for at, _ in owner.undone if at in path):
        return project_state(reader, path)
    view = restore_view(checkpoint, owner)
    if view is None:
        return project_state(reader, path)
    return project_state(reader, path, checkpoint.seq, State(view, checkpoint.health))


def project_state(reader: Reader, path: Path, after: int = -1, start: State = NOTHING_YET) -> State:
    """The state at the end of a path, from a state after one of its events or from nothing."""
    projection = ViewProjection(start.view, reader.skip(path), reader.item)
    health = HealthProjection.of(start.health)
    watched = HealthProjection.WATCHES
    for run in path.runs:
        if run.last <= after:
            continue
        for event in reader.run(max(run.first, after + 1), run.last):
            projection.take(event)
            if type(event.body) in watched:
                health.take(event)
    return State(projection.view, health.value())


class Walk:
    """The views along a path, one after the other, as if edits that were undone had never been; each event is read once."""

    def __init__(self, reader: Reader, path: Path) -> None:
        self._projection = ViewProjection(skip=reader.skip(path), find=reader.item)
        self._events = reader.along(path)

    def view_at(self, seq: int) -> View:
        """The view after an event; the next one asked for must not be earlier."""
        while self._projection.seq < seq:
            event = next(self._events, None)
            if event is None:
                break
            self._projection.take(event)
        return self._projection.view


def restore_view(checkpoint: Checkpoint, reader: Reader) -> View | None:
    """The view that a checkpoint describes, its contents read from where their events stand; none if they stand there no more."""
    found: dict[str, Item] = {}
    wanted = {*checkpoint.head, *checkpoint.items}
    for session, stretches in checkpoint.stretches.items():
        owner = _reader_of(reader, session)
        if owner is None or not all(_collect(owner, stretch, wanted, found) for stretch in stretches):
            return None
    if not wanted.issuperset(checkpoint.masks) or len(found) < len(wanted):
        return None
    for item_id, cover in checkpoint.masks.items():
        found[item_id] = structs.replace(found[item_id], mask=cover)
    return View(
        tuple([found[item_id] for item_id in checkpoint.head]),
        tuple([found[item_id] for item_id in checkpoint.items]),
        checkpoint.facts,
        checkpoint.notes,
        checkpoint.pins,
        checkpoint.held,
        checkpoint.epoch,
        checkpoint.seq,
        checkpoint.reported,
        checkpoint.call,
        checkpoint.model,
        checkpoint.mode,
    )


def _collect(reader: Reader, stretch: Stretch, wanted: set[str], found: dict[str, Item]) -> bool:
    """Add the wanted items of a stretch; false if the file has something else there now."""
    try:
        events = decode_chunk(reader.lines.read(stretch.offset, stretch.length), reader.lines.name, stretch.offset)
    except BadLog:
        return False
    for event in events:
        body = event.body
        match body:
            case ToolReturned(result=result):
                item_id = f"{event.seq}.0"
                if item_id in wanted:
                    found[item_id] = Item(item_id, "result", result)
            case ModelReplied(parts=parts):
                for number, part in enumerate(parts):
                    item_id = f"{event.seq}.{number}"
                    if item_id in wanted:
                        found[item_id] = Item(item_id, kind_of(part), part)
            case _:
                found.update((item.id, item) for item in _items_of(event) if item.id in wanted)
    return True


def _items_of(event: Event) -> Iterator[Item]:
    body = event.body
    if isinstance(body, ViewEdited):
        for index, edit in enumerate(body.edits):
            for number, put in enumerate(into_of(edit)):
                if isinstance(put, Put):
                    yield Item(f"{event.seq}.{index}.{number}", put.kind, put.content, put.source)
        return
    for number, piece in enumerate(pieces_of(body)):
        yield Item(f"{event.seq}.{number}", piece.kind, piece.content, piece.source)


def _reader_of(reader: Reader, session: str) -> Reader | None:
    at: Reader | None = reader
    while at is not None and at.session != session:
        at = at.base
    return at


def checkpoint_of(reader: Reader, view: View, health: Health, ledger: Ledger, position: Position) -> Checkpoint:
    """Everything that resuming at this position needs beside the log."""
    return Checkpoint(
        seq=position.seq,
        offset=position.offset,
        last_line=position.last_line,
        link=position.link,
        head=tuple(item.id for item in view.head),
        items=view.ids,
        stretches=stretches_of(reader, view),
        ledger=ledger,
        health=health,
        masks={item.id: item.mask for item in view.items if item.mask is not None},
        facts=view.facts,
        notes=view.notes,
        pins=view.pins,
        held=view.held,
        epoch=view.epoch,
        reported=view.reported,
        call=view.call,
        model=view.model,
        mode=view.mode,
        inbox=position.inbox,
        jumps=tuple(reader.jumps),
        undone=tuple(reader.undone),
    )


def stretches_of(reader: Reader, view: View) -> dict[str, tuple[Stretch, ...]]:
    """Where the events of a view stand, by session: those that lie close together are joined, so that few reads bring them back."""
    wanted: dict[Reader, list[int]] = {}
    for seq in sorted({seq_of(item.id) for item in (*view.head, *view.items)}):
        wanted.setdefault(reader.owner(seq), []).append(seq)
    return {owner.session: tuple(_joined(owner.spans(seqs))) for owner, seqs in wanted.items()}


def _joined(spans: dict[int, tuple[int, int]]) -> Iterator[Stretch]:
    at: Stretch | None = None
    for seq, (start, stop) in spans.items():
        if at is not None and start - at.offset - at.length <= _GAP:
            at = Stretch(at.first, seq, at.offset, stop - at.offset)
            continue
        if at is not None:
            yield at
        at = Stretch(seq, seq, start, stop - start)
    if at is not None:
        yield at
