"""Undo of edits with the edits that depend on them, restoring of single items, and rewind."""

from typing import Final

from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditUndone, Event, Rewound, ViewEdited, items_of
from palimpsest.core.items import (
    Edit,
    Insert,
    Item,
    Keep,
    ToolCall,
    ToolResult,
    Unmask,
    Value,
    into_of,
    named_ids,
    newly_unpaired,
    pairs_of,
    unpaired,
)
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection, project

FORGET: Final = "forget"
"""Author of the edits that hide what was forgotten; they are not undone."""
FORGOTTEN: Final = "[forgotten]"
"""What is shown instead."""


class UndoPlan(Value, frozen=True):
    """The effect of an undo: the events to append, newest edit first, and the view after it; `resting` are the dependent edits."""

    undone: tuple[EditUndone, ...]
    view: View
    resting: tuple[int, ...] = ()


def plan_undo(log: Log, seq: int, edits: tuple[int, ...] = (), why: str = "") -> UndoPlan:
    """Plan the undo of event `seq`, or of some of its edits, with all later edits that depend on it.

    Raises `BadInput` if the event is no edit, is on another branch or is undone already, or if a call would lose its result.
    """
    event = log.event(seq)
    if not isinstance(event.body, ViewEdited):
        raise BadInput(f"event {seq} is no edit of the view; `pal audit {log.session}` lists the edits")
    wrong = next((index for index in edits if not 0 <= index < len(event.body.edits)), None)
    if wrong is not None:
        raise BadInput(f"event {seq} has {len(event.body.edits)} edits, there is no edit {wrong}")
    if event.body.by == FORGET:
        raise BadInput(f"edit {seq} hides what was forgotten, which is not shown again", where=log.session)
    path = log.path
    if seq not in path:
        raise BadInput(f"edit {seq} is on another branch and hides nothing here")
    skip = dict(log.reader.undone_edits(path))
    if _is_undone(skip, seq, edits):
        raise BadInput(f"edit {seq} is undone already")
    indexes_by_event = _with_dependents(log, seq, event.body, edits, skip)
    for number, indexes in indexes_by_event.items():
        before = skip.get(number)
        skip[number] = frozenset() if not indexes else frozenset(indexes) | (before or frozenset())
    view = ViewProjection(skip=skip, find=log.reader.item).follow(log.reader, path)
    _check_pairs(log, view, seq)
    shown = {item.id for item in log.view.items if item.mask is None}
    brings = tuple(item.id for item in view.items if item.mask is None and item.id not in shown)
    view = structs.replace(view, held=view.held.union(brings))
    newest = sorted(indexes_by_event, reverse=True)
    undone = tuple(EditUndone(number, indexes_by_event[number], why, brings if number == seq else ()) for number in newest)
    return UndoPlan(undone, view, tuple(number for number in newest if number != seq))


def undo(log: Log, seq: int, edits: tuple[int, ...] = (), why: str = "") -> tuple[Event, ...]:
    """Undo an edit and the edits that depend on it, and return the recorded events. Raises as `plan_undo` does."""
    return tuple([log.append(body) for body in plan_undo(log, seq, edits, why).undone])


def restore(log: Log, item_id: str, why: str = "") -> Event:
    """Make one item visible again, with its call or result, and return the recorded event.

    Raises `BadInput` if the item is not on this branch or is visible already.
    """
    return log.append(ViewEdited(restoring_edits(log, item_id), by="restore", why=why))


def restoring_edits(log: Log, item_id: str) -> tuple[Edit, ...]:
    """Return the edits that make one item visible again, with its call or result. Raises as `restore` does."""
    wanted = log.find(item_id)
    if wanted is None:
        raise BadInput(f"there is no item {item_id} on this branch")
    if any(item.id == item_id for item in log.view.head):
        raise BadInput(f"item {item_id} is in the head and visible already")
    pair = pair_of(log, wanted)
    visible = {item.id: item for item in log.view.items}
    if any((cover := each.mask) is not None and cover.text == FORGOTTEN for each in log.view.items if each.id == item_id):
        raise BadInput(f"item {item_id} shows what was forgotten, which is not shown again", where=log.session)
    masked = tuple(item.id for item in pair if item.id in visible and visible[item.id].mask is not None)
    absent = tuple(Keep(item.id) for item in pair if item.id not in visible)
    if not masked and not absent:
        raise BadInput(f"item {item_id} is visible already")
    edits: tuple[Edit, ...] = (Unmask(masked),) if masked else ()
    if absent:
        edits += (Insert(absent, _insert_before(log.view, wanted)),)
    return edits


def rewind(log: Log, to: int, *, files: bool = False, why: str = "") -> Event:
    """Continue from event `to`; later events stay in the log on another branch."""
    return log.append(Rewound(to, files, why))


def _is_undone(skip: dict[int, frozenset[int]], seq: int, edits: tuple[int, ...]) -> bool:
    before = skip.get(seq)
    return before is not None and (not before or (bool(edits) and before.issuperset(edits)))


def _check_pairs(log: Log, view: View, seq: int) -> None:
    """Raise `BadInput` if a partial undo separates a call from its result; items that are unpaired without any edit do not count."""
    separated = newly_unpaired(log.view.items, view.items)
    if separated:
        unedited = project(event for event in log.events() if not isinstance(event.body, ViewEdited))
        separated -= unpaired(unedited.items)
    if separated:
        raise BadInput(f"this part of edit {seq} cannot be undone alone: item {min(separated)} would be unpaired; undo all of it")


def _with_dependents(
    log: Log, seq: int, body: ViewEdited, edits: tuple[int, ...], skip: dict[int, frozenset[int]]
) -> dict[int, tuple[int, ...]]:
    """Return, by event, the indexes of the edits to undo; no index means all edits of the event.

    A later edit depends on an undone one if it refers to an item that the undone one created or moved, or if it was made at the moment
    `folded` of an undone fold.
    """
    chosen = list(edits or range(len(body.edits)))
    touched: set[str] = set()
    for index, edit in enumerate(body.edits):
        if index in chosen or touched.intersection(named_ids(edit)):
            touched |= _created_or_moved(seq, index, edit)
            chosen = sorted({*chosen, index})
    taken: dict[int, tuple[int, ...]] = {seq: tuple(chosen) if edits and len(chosen) < len(body.edits) else ()}
    cause = seq if body.moment != "folded" else None
    for later in log.events():
        if later.seq <= seq or not isinstance(later.body, ViewEdited):
            continue
        follows = later.body.moment == "folded"
        cause = cause if follows else later.seq
        if _is_undone(skip, later.seq, ()):
            continue
        if (follows and cause is not None and taken.get(cause) == ()) or any(
            touched.intersection(named_ids(edit)) for edit in later.body.edits
        ):
            taken[later.seq] = ()
            touched.update(*(_created_or_moved(later.seq, index, edit) for index, edit in enumerate(later.body.edits)))
    return taken


def _created_or_moved(seq: int, index: int, edit: Edit) -> set[str]:
    """Return the ids of the items that an edit created or moved."""
    return {piece.id if isinstance(piece, Keep) else f"{seq}.{index}.{number}" for number, piece in enumerate(into_of(edit))}


def pair_of(log: Log, item: Item) -> tuple[Item, ...]:
    """Return a call or result with its counterpart on the path, in order and as created; any other item alone.

    Logs of 0.1.0 may have several calls with one id: each result then belongs to the oldest call without a result.
    """
    content = item.content
    if not isinstance(content, ToolCall | ToolResult):
        return (item,)
    created = (item for event in log.events() for item in items_of(event.seq, event.body))
    return next((pair for pair in pairs_of(created) if item.id in (pair[0].id, pair[1].id)), (item,))


def _insert_before(view: View, item: Item) -> str:
    """Return the id of the first visible item that is newer than `item`, so that it returns to its old position; empty for the end."""
    order = _order(item)
    return next((other.id for other in view.items if other.id.count(".") == 1 and _order(other) > order), "")


def _order(item: Item) -> tuple[int, ...]:
    return tuple(int(number) for number in item.id.split("."))
