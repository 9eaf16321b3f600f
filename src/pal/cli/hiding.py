"""Whether items of a session still show, and which edits or which rewind hid them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from palimpsest.core.events import Event, Rewound, ViewEdited
from palimpsest.core.items import Item, Value, seq_of
from palimpsest.core.log import Log
from palimpsest.core.view_projection import ViewProjection

REWIND: Final = "rewind"
"""What stands for the policy where no edit but a rewind hides an item."""


class HidingEvent(Value, frozen=True):
    """An edit or a rewind that hides an item: its event, the policy or author, and the reason."""

    event: int
    policy: str
    why: str


class ItemState(Value, frozen=True):
    """Whether the model sees an item, and what hides it, oldest first; neither if a newer head replaced it."""

    shown: bool
    hidden_by: tuple[HidingEvent, ...] = ()


def item_states(log: Log, ids: Collection[str]) -> dict[str, ItemState]:
    """Return the states of items by their ids; the log is read only if one of them does not show."""
    visible = _visible(log.view.head) | _visible(log.view.items)
    states = {item_id: ItemState(shown=True) for item_id in ids if item_id in visible}
    hidden = set(ids) - visible
    path = log.path if hidden else None
    if path is not None:
        edits = _hiding_edits(log, {item_id for item_id in hidden if seq_of(item_id) in path})
        states |= {item_id: ItemState(shown=False, hidden_by=tuple(found)) for item_id, found in edits.items()}
        rewinds = [event for event in log.reader.run(0, log.tip) if isinstance(event.body, Rewound)] if len(states) < len(ids) else []
        states |= {item_id: _rewound(item_id, rewinds) for item_id in ids if item_id not in states}
    return states


def _visible(items: Iterable[Item]) -> set[str]:
    return {item.id for item in items if item.mask is None}


def _hiding_edits(log: Log, ids: set[str]) -> dict[str, list[HidingEvent]]:
    """Return for each item the edits in force that mask it or take it out of the view; an edit that shows it again clears the list."""
    found: dict[str, list[HidingEvent]] = {item_id: [] for item_id in ids}
    if not ids:
        return found
    projection = ViewProjection(skip=log.reader.undone_edits(log.path), find=log.reader.item)
    for event in log.events():
        body = event.body
        if not isinstance(body, ViewEdited):
            projection.take(event)
            continue
        before = _masks(projection, ids)
        projection.take(event)
        after = _masks(projection, ids)
        for item_id in ids:
            if after.get(item_id) is False:
                found[item_id] = []
            elif item_id in before and after.get(item_id) != before[item_id]:
                found[item_id].append(HidingEvent(event.seq, body.by, body.why))
    return found


def _masks(projection: ViewProjection, ids: set[str]) -> Mapping[str, bool]:
    """Return for each of the items that is in the view whether it is masked."""
    return {item.id: item.mask is not None for item in projection.items if item.id in ids}


def _rewound(item_id: str, rewinds: list[Event]) -> ItemState:
    seq = seq_of(item_id)
    for event in rewinds:
        body = event.body
        if isinstance(body, Rewound) and body.to < seq < event.seq:
            why = body.why or f"the conversation went back to event {body.to}"
            return ItemState(shown=False, hidden_by=(HidingEvent(event.seq, REWIND, why),))
    return ItemState(shown=False)
