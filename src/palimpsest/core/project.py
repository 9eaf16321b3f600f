"""From events to a view: the only place where views are made."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import structs

from palimpsest.core.edits import Edit, Fold, Insert, Into, Keep, Mask, Put, Unmask, into_of
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    NotesTaken,
    Pinned,
    Recalled,
    SessionOpened,
    Statement,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Cover, Item, Kind, Piece, Text, kind_of
from palimpsest.core.view import EMPTY, Fact, Reported, RunningNotes, View

Find: TypeAlias = Callable[[str], Item | None]
# Edits that were undone: by event, the indexes of its edits; no index means all of them.
Skip: TypeAlias = Mapping[int, frozenset[int]]
NOTHING: Skip = {}


def nowhere(item_id: str) -> Item | None:
    """Finds nothing: for views whose hidden items need not be brought back."""
    return None


def project(events: Iterable[Event], start: View = EMPTY, *, skip: Skip = NOTHING, find: Find = nowhere) -> View:
    """The view after events; `skip` names edits that were undone."""
    projection = ViewProjection(start, skip, find)
    for event in events:
        projection.take(event)
    return projection.view


def apply(view: View, event: Event, find: Find = nowhere) -> View:
    """The view after one more event."""
    return project((event,), view, find=find)


class ViewProjection:
    """A view in the making; it never leaves this layer except as the frozen view."""

    def __init__(self, start: View = EMPTY, skip: Skip = NOTHING, find: Find = nowhere) -> None:
        self.skip = skip
        self.find = find
        self.items = list(start.items)
        self.head = start.head
        self.facts = dict(start.facts)
        self.notes = start.notes
        self.pins = start.pins
        self.held = start.held
        self.epoch = start.epoch
        self.seq = start.seq
        self.reported = start.reported
        self.call = start.call
        self.model = start.model
        self.mode = start.mode
        self._frozen: View | None = start
        self._places: dict[str, int] | None = None

    @property
    def places(self) -> dict[str, int]:
        """Where each item stands, until the next fold or insert."""
        if self._places is None:
            self._places = {item.id: place for place, item in enumerate(self.items)}
        return self._places

    @property
    def view(self) -> View:
        """What has been projected so far, as a value."""
        if self._frozen is None:
            self._frozen = View(
                self.head,
                tuple(self.items),
                dict(self.facts),
                self.notes,
                self.pins,
                self.held,
                self.epoch,
                self.seq,
                self.reported,
                self.call,
                self.model,
                self.mode,
            )
        return self._frozen

    def take(self, event: Event) -> None:
        """Take in one event."""
        self._frozen = self._places = None
        self.seq = event.seq
        taker = _TAKERS.get(type(event.body))
        if taker is not None:
            taker(self, event.seq, event.body)

    def edit(self, seq: int, index: int, edit: Edit) -> None:
        """Carry out one edit; what it names and is not here is left alone, for the log holds only edits that fitted."""
        match edit:
            case Mask():
                cover = Cover(edit.text, edit.form)
                self._cover(edit.ids, cover)
            case Unmask():
                self._cover(edit.ids, None)
            case Fold():
                self._fold(seq, index, edit)
            case Insert():
                self._insert(seq, index, edit)

    def _cover(self, ids: tuple[str, ...], cover: Cover | None) -> None:
        for item_id in ids:
            place = self.places.get(item_id)
            if place is not None:
                self.items[place] = structs.replace(self.items[place], mask=cover)

    def _fold(self, seq: int, index: int, edit: Fold) -> None:
        first, last = self.places.get(edit.first), self.places.get(edit.last)
        if first is None or last is None or last < first:
            return
        run = {item.id: item for item in self.items[first : last + 1]}
        made = _made(seq, index, edit.into, lambda item_id: run.pop(item_id, None))
        self.items[first : last + 1] = made
        self._places = None
        self.forget(run)

    def _insert(self, seq: int, index: int, edit: Insert) -> None:
        visible = self.places
        made = _made(seq, index, edit.contents, lambda item_id: None if item_id in visible else self.find(item_id))
        place = visible.get(edit.before, len(self.items))
        self.items[place:place] = made
        self._places = None

    def forget(self, gone: Mapping[str, Item]) -> None:
        """Facts that these items stated are no longer stated."""
        for source in [source for source, fact in self.facts.items() if fact.id in gone]:
            del self.facts[source]


def _made(seq: int, index: int, into: Into, keep: Find) -> list[Item]:
    made: list[Item] = []
    for number, piece in enumerate(into):
        match piece:
            case Keep(id=item_id):
                item = keep(item_id)
                if item is not None:
                    made.append(item)
            case Put():
                made.append(Item(f"{seq}.{index}.{number}", piece.kind, piece.content, piece.source))
    return made


def pieces_of(body: Body) -> tuple[Piece, ...]:
    """What an event itself brings to the end of a view, in the order of the item ids; a stated head comes first."""
    match body:
        case UserSaid():
            kind: Kind = "steering" if body.steering else "user"
            return tuple(Piece(kind, part) for part in body.parts)
        case ModelReplied():
            return tuple(Piece(kind_of(part), part) for part in body.parts)
        case ToolReturned():
            return (Piece("result", body.result),)
        case ContextStated():
            return tuple(_stated(statement) for statement in (*(body.head or ()), *body.items))
        case Recalled():
            return tuple(Piece("recalled", part) for part in body.parts)
        case _:
            return ()


def _stated(statement: Statement) -> Piece:
    return Piece("context", Text(statement.text, statement.role, ref=statement.ref), statement.source)


def numbers_of(item_id: str) -> tuple[int, ...] | None:
    """The two or three numbers of an id, if it is written the one way that ids are written."""
    words = item_id.split(".")
    if len(words) not in {2, 3} or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    numbers = tuple(int(word) for word in words)
    return numbers if ".".join(map(str, numbers)) == item_id else None


def item_of(event: Event, item_id: str) -> Item | None:
    """The item of that id as its event first brought it, masked or folded as it may be now; none if no item has that id."""
    numbers = numbers_of(item_id)
    if numbers is None or numbers[0] != event.seq:
        return None
    if len(numbers) == 2:
        pieces = pieces_of(event.body)
        if numbers[1] < len(pieces):
            piece = pieces[numbers[1]]
            return Item(item_id, piece.kind, piece.content, piece.source)
    elif isinstance(event.body, ViewEdited) and numbers[1] < len(event.body.edits):
        into = into_of(event.body.edits[numbers[1]])
        made = into[numbers[2]] if numbers[2] < len(into) else None
        if isinstance(made, Put):
            return Item(item_id, made.kind, made.content, made.source)
    return None


def _take_opened(view: ViewProjection, seq: int, body: SessionOpened) -> None:
    if body.model:
        view.model = body.model


def _take_said(view: ViewProjection, seq: int, body: UserSaid) -> None:
    kind: Kind = "steering" if body.steering else "user"
    for number, part in enumerate(body.parts):
        view.items.append(Item(f"{seq}.{number}", kind, part))


def _take_started(view: ViewProjection, seq: int, body: CallStarted) -> None:
    if body.purpose == "turn":
        view.call = body
        view.model = body.model


def _take_replied(view: ViewProjection, seq: int, body: ModelReplied) -> None:
    items = view.items
    for number, part in enumerate(body.parts):
        items.append(Item(f"{seq}.{number}", kind_of(part), part))
    usage = body.usage
    # Who tells only what the model wrote does not tell how large the view is.
    if usage.prompt:
        view.reported = Reported(usage.total, seq, usage.cache_write + usage.cache_write_long)


def _take_returned(view: ViewProjection, seq: int, body: ToolReturned) -> None:
    view.items.append(Item(f"{seq}.0", "result", body.result))


def _take_stated(view: ViewProjection, seq: int, body: ContextStated) -> None:
    items = [Item(f"{seq}.{number}", piece.kind, piece.content, piece.source) for number, piece in enumerate(pieces_of(body))]
    if body.head is not None:
        view.epoch += 1
        gone = {item.id: item for item in view.head}
        view.forget(gone)
        view.head = tuple(items[: len(body.head)])
        view.held = frozenset()
        view.reported = None
    view.items.extend(items[len(body.head or ()) :])
    for item, statement in zip(items, (*(body.head or ()), *body.items), strict=True):
        view.facts[statement.source] = Fact(statement.value or statement.text, item.id)


def _take_edited(view: ViewProjection, seq: int, body: ViewEdited) -> None:
    undone = view.skip.get(seq)
    if undone is not None and not undone:
        return
    for index, edit in enumerate(body.edits):
        if undone is None or index not in undone:
            view.edit(seq, index, edit)
            view.reported = None
    if undone is None and body.tokens_after:
        view.reported = Reported(body.tokens_after, seq)


def _take_undone(view: ViewProjection, seq: int, body: EditUndone) -> None:
    view.held |= frozenset(body.brings)
    view.reported = None


def _take_notes(view: ViewProjection, seq: int, body: NotesTaken) -> None:
    view.notes = RunningNotes(body.text, body.covers, seq)


def _take_recalled(view: ViewProjection, seq: int, body: Recalled) -> None:
    for number, part in enumerate(body.parts):
        view.items.append(Item(f"{seq}.{number}", "recalled", part))


def _take_switched(view: ViewProjection, seq: int, body: ModelSwitched) -> None:
    view.model = body.model
    view.reported = None


def _take_mode(view: ViewProjection, seq: int, body: ModeChanged) -> None:
    view.mode = body.mode


def _take_pinned(view: ViewProjection, seq: int, body: Pinned) -> None:
    names = frozenset(body.ids) | frozenset(body.paths)
    view.pins = view.pins | names if body.on else view.pins - names


_TAKERS: Mapping[type, Callable[[ViewProjection, int, Any], None]] = {
    SessionOpened: _take_opened,
    UserSaid: _take_said,
    CallStarted: _take_started,
    ModelReplied: _take_replied,
    ToolReturned: _take_returned,
    ContextStated: _take_stated,
    ViewEdited: _take_edited,
    EditUndone: _take_undone,
    NotesTaken: _take_notes,
    Recalled: _take_recalled,
    ModelSwitched: _take_switched,
    ModeChanged: _take_mode,
    Pinned: _take_pinned,
}
