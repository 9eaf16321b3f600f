"""State at an event: restored from a checkpoint where one helps, else projected from the root."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from palimpsest.core.checkpoint import Checkpoint, Stretch, load_checkpoint
from palimpsest.core.codec import decode_chunk
from palimpsest.core.edits import Put, into_of
from palimpsest.core.errors import MissingBase
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.health import Health, HealthTally
from palimpsest.core.items import Item, seq_of
from palimpsest.core.path import Path
from palimpsest.core.project import Projection, pieces_of
from palimpsest.core.reading import Reader
from palimpsest.core.view import EMPTY, View

# Events between two that show are read along when they are this few: one read costs more than a few lines.
_GAP = 8


class State(NamedTuple):
    """What follows from a path: the view and the health of the session."""

    view: View
    health: Health


NOTHING_YET = State(EMPTY, Health())


def state_at(reader: Reader, seq: int) -> State:
    """The state right after an event, along the path that leads to it."""
    path = reader.path(seq)
    owner = reader.owner(seq)
    checkpoint = load_checkpoint(owner.lines)
    if checkpoint is None or checkpoint.seq not in path or any(at > checkpoint.seq for at, _ in owner.undone if at in path):
        return project_state(reader, path)
    start = State(restore_view(checkpoint, owner), checkpoint.health)
    return project_state(reader, path, checkpoint.seq, start)


def project_state(reader: Reader, path: Path, after: int = -1, start: State = NOTHING_YET) -> State:
    """The state at the end of a path, from a state after one of its events or from nothing."""
    projection = Projection(start.view, reader.skip(path), reader.item)
    health = HealthTally.of(start.health)
    watched = HealthTally.WATCHES
    for run in path.runs:
        if run.last <= after:
            continue
        for event in reader.run(max(run.first, after + 1), run.last):
            projection.take(event)
            if type(event.body) in watched:
                health.take(event)
    return State(projection.view, health.value())


def restore_view(checkpoint: Checkpoint, reader: Reader) -> View:
    """The view that a checkpoint describes, its contents read from where their events stand."""
    found: dict[str, Item] = {}
    wanted = {*checkpoint.head, *checkpoint.items}
    for session, stretches in checkpoint.stretches.items():
        lines = _reader_of(reader, session).lines
        for stretch in stretches:
            data = lines.read(stretch.offset, stretch.length)
            _collect(decode_chunk(data, lines.name, stretch.offset), wanted, found)
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


def _collect(events: Iterable[Event], wanted: set[str], found: dict[str, Item]) -> None:
    for event in events:
        body = event.body
        if isinstance(body, ViewEdited):
            for index, edit in enumerate(body.edits):
                for number, piece in enumerate(into_of(edit)):
                    item_id = f"{event.seq}.{index}.{number}"
                    if item_id in wanted and isinstance(piece, Put):
                        found[item_id] = Item(item_id, piece.kind, piece.content, piece.source)
            continue
        for number, piece in enumerate(pieces_of(body)):
            item_id = f"{event.seq}.{number}"
            if item_id in wanted:
                found[item_id] = Item(item_id, piece.kind, piece.content, piece.source)


def _reader_of(reader: Reader, session: str) -> Reader:
    at: Reader | None = reader
    while at is not None and at.session != session:
        at = at.base
    if at is None:
        raise MissingBase(f"the checkpoint reads through session {session}, which is not below this one", where=reader.lines.name)
    return at


def stretches_of(reader: Reader, view: View) -> dict[str, tuple[Stretch, ...]]:
    """Where the events of a view stand, by session: neighbours are joined so that few reads bring them back."""
    found: dict[str, list[Stretch]] = {}
    for first, last in _neighbours(sorted({seq_of(item.id) for item in (*view.head, *view.items)}), reader):
        owner = reader.owner(first)
        start = owner.locate(first)
        stop = owner.locate(last + 1)
        found.setdefault(owner.session, []).append(Stretch(first, last, start, stop - start))
    return {session: tuple(stretches) for session, stretches in found.items()}


def _neighbours(seqs: list[int], reader: Reader) -> Iterable[tuple[int, int]]:
    first = last = -1
    for seq in seqs:
        if first >= 0 and seq - last <= _GAP and reader.owner(seq) is reader.owner(first):
            last = seq
            continue
        if first >= 0:
            yield first, last
        first = last = seq
    if first >= 0:
        yield first, last
