"""The view as a projection of events, and a replay of the views along a path."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec
from msgspec import Struct, field, structs

from palimpsest.core.errors import BadLog
from palimpsest.core.events import (
    TURN,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    Interrupted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    NotesTaken,
    Pinned,
    ProfileChanged,
    Recalled,
    SessionOpened,
    ToolReturned,
    ToolsChanged,
    UserSaid,
    ViewEdited,
    edit_items,
    items_of,
)
from palimpsest.core.items import Cover, Edit, Fold, Insert, Item, Keep, Mask, Unmask, into_of, kept_ids
from palimpsest.core.lines import NOTHING_UNDONE, Path, UndoneEdits
from palimpsest.core.reading import FileRange, LogReader, locate_items, read_items
from palimpsest.core.view import EMPTY_VIEW, Fact, Projection, Reported, RunningNotes, Scope, View

Find: TypeAlias = Callable[[str], Item | None]


def find_nothing(item_id: str) -> Item | None:
    """Find no item, for views in which no removed item is restored."""
    return None


def project(events: Iterable[Event], start: View = EMPTY_VIEW, *, skip: UndoneEdits = NOTHING_UNDONE, find: Find = find_nothing) -> View:
    """Return the view after events; `skip` are the undone edits, and `find` returns items that an insert restores."""
    projection = ViewProjection(start, skip, find)
    for event in events:
        projection.take(event)
    return projection.view


def apply(view: View, event: Event, find: Find = find_nothing) -> View:
    """Return the view after one more event."""
    return project((event,), view, find=find)


class ViewSnapshot(Struct, frozen=True, omit_defaults=True):
    """A view with the ids and file locations of its items instead of the items; `rest` is everything else, masked facts included.

    `measured` are the items of its report, with their masks.
    """

    head: tuple[str, ...]
    items: tuple[str, ...]
    locations: dict[str, tuple[FileRange, ...]] = field(name="stretches")
    rest: View
    masks: dict[str, Cover] = {}
    measured: tuple[str, ...] | None = None
    measured_masks: dict[str, Cover] = {}


_snapshots = msgspec.json.Decoder(ViewSnapshot)
_encode = msgspec.json.Encoder().encode
# Bodies that do more than append items to the view.
_CHANGES_ITEMS = frozenset({ViewEdited, EditUndone})


class ViewProjection:
    """Projection of the view. Everything but its items and facts is in `rest`, so that a new field of `View` needs no code here.

    With a `reader`, an undo projects the path again without the undone edits. Without one, the undone edits are given in `skip`.
    """

    name: ClassVar = "view"
    version: ClassVar = 2
    watches: ClassVar = None
    scope: ClassVar[Scope] = "path"
    # How often the items were changed otherwise than by appending.
    revision = 0

    def __init__(
        self, start: View = EMPTY_VIEW, skip: UndoneEdits = NOTHING_UNDONE, find: Find = find_nothing, reader: LogReader | None = None
    ) -> None:
        self.skip = skip
        self.find = find if reader is None else reader.item
        self._reader = reader
        self.start_from(start)

    def start_from(self, view: View) -> None:
        """Replace the state by a view."""
        self.items = list(view.items)
        self.revision += 1
        self.facts = {**view.facts, **view.masked_facts}
        self.rest = structs.replace(view, items=(), facts={}, masked_facts={})
        self.seq = view.seq
        self._covered_facts = {fact.id for fact in view.masked_facts.values()}
        self._frozen: View | None = view
        self._places: dict[str, int] | None = None
        self._before: View | None = view
        self.count_before = len(self.items)

    def reset(self) -> None:
        """Go back to the empty view."""
        self.start_from(EMPTY_VIEW)

    @property
    def places(self) -> dict[str, int]:
        """The index of each item by its id, valid until the next fold or insert."""
        if self._places is None:
            self._places = {item.id: place for place, item in enumerate(self.items)}
        return self._places

    @property
    def view(self) -> View:
        """The view after the last event."""
        if self._frozen is None:
            facts, masked = self.facts, {}
            if self._covered_facts:
                masked = {source: fact for source, fact in facts.items() if fact.id in self._covered_facts}
                facts = {source: fact for source, fact in facts.items() if source not in masked}
            self._frozen = structs.replace(self.rest, items=tuple(self.items), facts=facts, masked_facts=masked, seq=self.seq)
        return self._frozen

    @property
    def items_before(self) -> tuple[Item, ...]:
        """The items before the last event."""
        return tuple(self.items[: self.count_before]) if self._before is None else self._before.items

    @property
    def head_before(self) -> tuple[Item, ...]:
        """The head before the last event."""
        return self.rest.head if self._before is None else self._before.head

    def take(self, event: Event) -> None:
        """Apply one event."""
        body = event.body
        kind = type(body)
        changes = kind in _CHANGES_ITEMS or (kind is ContextStated and isinstance(body, ContextStated) and body.head is not None)
        self._before = self.view if changes else None
        self.count_before = len(self.items)
        self._frozen = self._places = None
        self.seq = event.seq
        if kind is EditUndone and self._reader is not None:
            self._project_again(event.seq, self._reader)
            return
        taker = _TAKERS.get(kind)
        if taker is not None:
            taker(self, event.seq, body)

    def _project_again(self, seq: int, reader: LogReader) -> None:
        before = self._before
        path = reader.path(seq)
        projection = ViewProjection(skip=reader.undone_edits(path), find=reader.item)
        projection.follow(reader, path)
        self.revision += 1
        self.items, self.facts, self.rest = projection.items, projection.facts, projection.rest
        self._covered_facts, self._before = projection._covered_facts, before

    def follow(self, reader: LogReader, path: Path) -> View:
        """Apply all events of a path, and return the view after them.

        A report measured the view of its time. If `skip` has edits that were undone later, its items are projected once more with them.
        """
        for event in reader.along(path):
            self.take(event)
        reported = self.rest.reported
        if reported is not None:
            measured_path = path.upto(reported.seq)
            skip = reader.undone_edits(measured_path)
            if skip != {seq: edits for seq, edits in self.skip.items() if seq <= reported.seq}:
                then = ViewProjection(skip=skip, find=reader.item)
                for event in reader.along(measured_path):
                    then.take(event)
                self.rest = structs.replace(self.rest, reported=structs.replace(reported, measured=tuple(then.items)))
                self._frozen = None
        return self.view

    def snapshot(self) -> bytes:
        """Return the view with the ids of its items and the file locations of their events."""
        view = self.view
        measured = () if view.reported is None else view.reported.measured or ()
        locations = {} if self._reader is None else locate_items(self._reader, (*view.head, *view.items, *measured))
        return _encode(
            ViewSnapshot(
                head=tuple(item.id for item in view.head),
                items=view.ids,
                locations=locations,
                rest=structs.replace(self.rest, head=(), facts=self.facts, seq=self.seq, reported=_without_items(view.reported)),
                masks=_masks(view.items),
                measured=None if view.reported is None or view.reported.measured is None else tuple(item.id for item in measured),
                measured_masks=_masks(measured),
            )
        )

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot; its items are read from the log files. Raises `BadLog` if they are no longer there."""
        snapshot = _snapshots.decode(data)
        if self._reader is None:
            raise BadLog("a view is restored from its log only")
        measured, reported = snapshot.measured, snapshot.rest.reported
        wanted = {*snapshot.head, *snapshot.items, *(measured or ())}
        found = read_items(self._reader, snapshot.locations, wanted)
        if not wanted.issuperset(snapshot.masks) or not wanted.issuperset(snapshot.measured_masks):
            raise BadLog("the checkpoint masks an item that it does not show", where=self._reader.lines.name)
        if measured is not None and reported is not None:
            reported = structs.replace(reported, measured=_covered(measured, found, snapshot.measured_masks))
        head, items = (_covered(ids, found, snapshot.masks) for ids in (snapshot.head, snapshot.items))
        self.start_from(structs.replace(snapshot.rest, head=head, items=items, reported=reported))
        self._covered_facts = {
            fact.id for fact in self.facts.values() if (cover := snapshot.masks.get(fact.id)) is not None and cover.form == "shown"
        }
        self._frozen = None

    def edit(self, seq: int, index: int, edit: Edit) -> None:
        """Apply one edit. Ids that are not in the view are ignored: `Log.append` has checked the edit already."""
        self._frozen = None
        self.revision += 1
        match edit:
            case Mask():
                self._cover(edit.ids, Cover(edit.text, edit.form))
            case Unmask():
                self._cover(edit.ids, None)
                self.hold(edit.ids)
            case Fold():
                self._fold(seq, index, edit)
            case Insert():
                self._insert(seq, index, edit)
                self.hold(kept_ids(edit))

    def hold(self, ids: Iterable[str]) -> None:
        """Mark restored items as held: for this epoch, policies hide them only under pressure."""
        added = frozenset(ids)
        if added:
            self.rest = structs.replace(self.rest, held=self.rest.held | added)

    def _cover(self, ids: tuple[str, ...], cover: Cover | None) -> None:
        stated = {fact.id for fact in self.facts.values()}
        for item_id in ids:
            place = self.places.get(item_id)
            if place is None:
                continue
            self.items[place] = structs.replace(self.items[place], mask=cover)
            if item_id in stated:
                hidden = cover is not None and cover.form == "shown"
                (self._covered_facts.add if hidden else self._covered_facts.discard)(item_id)

    def _fold(self, seq: int, index: int, edit: Fold) -> None:
        first, last = self.places.get(edit.first), self.places.get(edit.last)
        if first is None or last is None or last < first:
            return
        run = {item.id: item for item in self.items[first : last + 1]}
        self.items[first : last + 1] = _new_and_kept_items(seq, index, edit, lambda item_id: run.pop(item_id, None))
        self._places = None
        self.forget(run)

    def _insert(self, seq: int, index: int, edit: Insert) -> None:
        visible = self.places
        added = _new_and_kept_items(seq, index, edit, lambda item_id: None if item_id in visible else self.find(item_id))
        place = visible.get(edit.before, len(self.items))
        self.items[place:place] = added
        self._places = None

    def forget(self, removed: Mapping[str, Item]) -> None:
        """Remove the facts that these items stated."""
        for source in [source for source, fact in self.facts.items() if fact.id in removed]:
            del self.facts[source]


def _without_items(reported: Reported | None) -> Reported | None:
    return reported if reported is None or reported.measured is None else structs.replace(reported, measured=None)


def _masks(items: Iterable[Item]) -> dict[str, Cover]:
    return {item.id: item.mask for item in items if item.mask is not None}


def _covered(ids: Iterable[str], found: Mapping[str, Item], masks: Mapping[str, Cover]) -> tuple[Item, ...]:
    """Return the items of these ids, with their masks."""
    return tuple([structs.replace(found[one], mask=masks[one]) if one in masks else found[one] for one in ids])


def _new_and_kept_items(seq: int, index: int, edit: Fold | Insert, keep: Find) -> list[Item]:
    new = edit_items(seq, index, edit)
    items: list[Item] = []
    for number, piece in enumerate(into_of(edit)):
        item = keep(piece.id) if isinstance(piece, Keep) else new[number]
        if item is not None:
            items.append(item)
    return items


def _append(view: ViewProjection, seq: int, body: UserSaid | ToolReturned | ToolsChanged | Recalled) -> None:
    view.items += items_of(seq, body)


def _take_outcome(view: ViewProjection, seq: int, body: ModelReplied | Interrupted) -> None:
    if body.purpose != TURN:
        return
    view.items += items_of(seq, body)
    usage = body.usage
    # Usage without a prompt does not give the size of the view, and the usage of an interrupted reply is incomplete.
    if usage.prompt and type(body) is ModelReplied:
        view.rest = structs.replace(view.rest, reported=Reported(usage.total, seq, usage.cache_write + usage.cache_write_long))


def _take_stated(view: ViewProjection, seq: int, body: ContextStated) -> None:
    items = items_of(seq, body)
    heads = len(body.head or ())
    if body.head is not None:
        view.forget({item.id: item for item in view.rest.head})
        rest = view.rest
        # The report may include a system prompt that the log did not have, and that this head replaces.
        view.rest = structs.replace(rest, epoch=rest.epoch + 1, head=tuple(items[:heads]), held=frozenset(), reported=None)
    view.items += items[heads:]
    for item, statement in zip(items, (*(body.head or ()), *body.items), strict=True):
        view.facts[statement.source] = Fact(statement.value or statement.text, item.id)


def _take_edited(view: ViewProjection, seq: int, body: ViewEdited) -> None:
    undone = view.skip.get(seq)
    if undone is not None and not undone:
        return
    is_measured = undone is None and body.tokens_after > 0
    before = View(items=view.items_before, reported=view.rest.reported)
    reported = Reported(body.tokens_after, seq) if is_measured else before.measured_report
    for index, edit in enumerate(body.edits):
        if undone is None or index not in undone:
            view.edit(seq, index, edit)
    view.rest = structs.replace(view.rest, reported=reported)


def _take_undone(view: ViewProjection, seq: int, body: EditUndone) -> None:
    view.hold(body.brings)


def _set_rest(
    view: ViewProjection,
    seq: int,
    body: SessionOpened | CallStarted | NotesTaken | ModelSwitched | ProfileChanged | ModeChanged | Pinned,
) -> None:
    rest = view.rest
    match body:
        case CallStarted(purpose=purpose):
            view.rest = structs.replace(rest, call=body, model=body.model) if purpose == TURN else rest
        case SessionOpened(model=model, profile=profile):
            view.rest = structs.replace(rest, model=model or rest.model, profile=profile or rest.profile)
        case NotesTaken(text=text, covers=covers):
            view.rest = structs.replace(rest, notes=RunningNotes(text, covers, seq))
        case ModelSwitched(model=model):
            view.rest = structs.replace(rest, model=model, reported=None)
        case ProfileChanged(profile=profile):
            view.rest = structs.replace(rest, profile=profile)
        case ModeChanged(mode=mode, collaboration=collaboration):
            view.rest = structs.replace(rest, mode=mode, collaboration=collaboration)
        case Pinned(ids=ids, paths=paths, on=on):
            view.rest = structs.replace(rest, pins=rest.pins.union(ids, paths) if on else rest.pins.difference(ids, paths))


_TAKERS: Mapping[type, Callable[[ViewProjection, int, Any], None]] = {
    **dict.fromkeys((UserSaid, ToolReturned, ToolsChanged, Recalled), _append),
    **dict.fromkeys((ModelReplied, Interrupted), _take_outcome),
    ContextStated: _take_stated,
    ViewEdited: _take_edited,
    EditUndone: _take_undone,
    **dict.fromkeys((SessionOpened, CallStarted, NotesTaken, ModelSwitched, ProfileChanged, ModeChanged, Pinned), _set_rest),
}


class ViewReplay:
    """The views along a path without the edits that were undone on it, for exports."""

    def __init__(self, reader: LogReader, path: Path) -> None:
        self._projection = ViewProjection(skip=reader.undone_edits(path), find=reader.item)
        self._events = reader.along(path)

    def view_at(self, seq: int) -> View:
        """Return the view after event `seq`; calls must be in the order of events."""
        while self._projection.seq < seq:
            event = next(self._events, None)
            if event is None:
                break
            self._projection.take(event)
        return self._projection.view


class Derived(Protocol):
    """The projections of a layer above core, which are registered with a log."""

    def attach(self, views: ViewProjection) -> tuple[Projection, ...]:
        """Return new projections, in the order in which they apply an event.

        `views` has the view before and after the event that is being applied. Its `view` and `items_before` copy all items: a projection
        that asks for them at every reply is quadratic in the length of a session.
        """
        ...
