"""Taking back: undo of edits with all that rests on them, restoring one item, rewinding."""

from msgspec import structs

from palimpsest.core.edits import Edit, Insert, Keep, Unmask, into_of, named
from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditUndone, Event, Rewound, ViewEdited
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Item, ToolCall, ToolResult, Value
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import newly_unpaired, pairs_of, unpaired
from palimpsest.core.projections.view import project
from palimpsest.core.view import View


class UndoPlan(Value, frozen=True):
    """What an undo would do: the events it takes back, newest first, and the view after it."""

    undone: tuple[EditUndone, ...]
    view: View
    resting: tuple[int, ...] = ()


def plan_undo(log: Log, seq: int, edits: tuple[int, ...] = (), why: str = "") -> UndoPlan:
    """What taking back an edit means; later edits that rest on it go too and are named in `resting`."""
    event = log.event(seq)
    if not isinstance(event.body, ViewEdited):
        raise BadInput(f"event {seq} is no edit of the view; `pal show --events` tells which are")
    wrong = next((index for index in edits if not 0 <= index < len(event.body.edits)), None)
    if wrong is not None:
        raise BadInput(f"event {seq} has {len(event.body.edits)} edits, there is no edit {wrong}")
    path = log.path
    if seq not in path:
        raise BadInput(f"edit {seq} is on another branch and hides nothing here")
    skip = dict(log.reader.skip(path))
    if _gone(skip, seq, edits):
        raise BadInput(f"edit {seq} is undone already")
    taken = _closure(log, seq, event.body, edits, skip)
    edits = taken[seq]
    for number, indexes in taken.items():
        before = skip.get(number)
        skip[number] = frozenset() if not indexes else frozenset(indexes) | (before or frozenset())
    view = project(log.events(), skip=skip, find=log.reader.item)
    _check_pairs(log, view, seq)
    shown = {item.id for item in log.view.items if item.mask is None}
    brings = tuple(item.id for item in view.items if item.mask is None and item.id not in shown)
    view = structs.replace(view, reported=None, held=view.held.union(brings))
    newest = sorted(taken, reverse=True)
    undone = tuple(EditUndone(number, taken[number], why, brings if number == seq else ()) for number in newest)
    return UndoPlan(undone, view, tuple(number for number in newest if number != seq))


def undo(log: Log, seq: int, edits: tuple[int, ...] = (), why: str = "") -> tuple[Event, ...]:
    """Take back an edit and what rests on it; the view is then the projection of the path without them."""
    return tuple([log.append(body) for body in plan_undo(log, seq, edits, why).undone])


def restore(log: Log, item_id: str, why: str = "") -> Event:
    """Bring back one item, and its other half if it is a call or a result, and nothing else."""
    wanted = log.find(item_id)
    if wanted is None:
        raise BadInput(f"there is no item {item_id} on this branch")
    if any(item.id == item_id for item in log.view.head):
        raise BadInput(f"item {item_id} stands in the head and shows already")
    pair = pair_of(log, wanted)
    visible = {item.id: item for item in log.view.items}
    masked = tuple(item.id for item in pair if item.id in visible and visible[item.id].mask is not None)
    absent = tuple(Keep(item.id) for item in pair if item.id not in visible)
    if not masked and not absent:
        raise BadInput(f"item {item_id} shows already")
    edits: tuple[Edit, ...] = (Unmask(masked),) if masked else ()
    if absent:
        edits += (Insert(absent, _place_of(log.view, wanted)),)
    return log.append(ViewEdited(edits, by="restore", why=why))


def rewind(log: Log, to: int, *, files: bool = False, why: str = "") -> Event:
    """Go on from an earlier event; what came after it stays in the log, on a branch of its own."""
    return log.append(Rewound(to, files, why))


def _gone(skip: dict[int, frozenset[int]], seq: int, edits: tuple[int, ...]) -> bool:
    before = skip.get(seq)
    return before is not None and (not before or (bool(edits) and before.issuperset(edits)))


def _check_pairs(log: Log, view: View, seq: int) -> None:
    """Taking back only part of what was done may leave a call without its result; items that never had another half do not count."""
    torn = newly_unpaired(log.view.items, view.items)
    if torn:
        plain = project(event for event in log.events() if not isinstance(event.body, ViewEdited))
        torn -= unpaired(plain.items)
    if torn:
        raise BadInput(f"undoing this of edit {seq} would show item {min(torn)} without its other half; undo all of it")


def _closure(log: Log, seq: int, body: ViewEdited, edits: tuple[int, ...], skip: dict[int, frozenset[int]]) -> dict[int, tuple[int, ...]]:
    """The edits and, walking forward, every later one that names an item which a taken one made or moved, or followed on its fold."""
    chosen = list(edits or range(len(body.edits)))
    touched: set[str] = set()
    for index, edit in enumerate(body.edits):
        if index in chosen or touched.intersection(named(edit)):
            touched |= _touched(seq, index, edit)
            chosen = sorted({*chosen, index})
    taken: dict[int, tuple[int, ...]] = {seq: tuple(chosen) if edits and len(chosen) < len(body.edits) else ()}
    cause = seq if body.moment != "folded" else None
    for later in log.events():
        if later.seq <= seq or not isinstance(later.body, ViewEdited):
            continue
        follows = later.body.moment == "folded"
        cause = cause if follows else later.seq
        if _gone(skip, later.seq, ()):
            continue
        if (follows and cause is not None and taken.get(cause) == ()) or any(
            touched.intersection(named(edit)) for edit in later.body.edits
        ):
            taken[later.seq] = ()
            touched.update(*(_touched(later.seq, index, edit) for index, edit in enumerate(later.body.edits)))
    return taken


def _touched(seq: int, index: int, edit: Edit) -> set[str]:
    """The items whose being there, or whose place, is owed to an edit."""
    return {piece.id if isinstance(piece, Keep) else f"{seq}.{index}.{number}" for number, piece in enumerate(into_of(edit))}


def pair_of(log: Log, item: Item) -> tuple[Item, ...]:
    """The item with its call or result, in their order, as they were first brought; the other half is looked for along the path.

    Logs of 0.1.0 may have several calls with one id: each result answers the oldest that has none yet.
    """
    content = item.content
    if not isinstance(content, ToolCall | ToolResult):
        return (item,)
    brought = (each for event in log.events() for each in items_of(event.seq, event.body))
    return next((pair for pair in pairs_of(brought) if item.id in (pair[0].id, pair[1].id)), (item,))


def _place_of(view: View, item: Item) -> str:
    """The first visible item of the conversation that came later than the one to bring back, so that it stands where it stood."""
    order = _order(item)
    return next((other.id for other in view.items if other.id.count(".") == 1 and _order(other) > order), "")


def _order(item: Item) -> tuple[int, ...]:
    return tuple(int(number) for number in item.id.split("."))
