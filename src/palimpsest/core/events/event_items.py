"""The items that an event brings: the only place where a body is decoded into items."""

from collections.abc import Callable, Mapping
from typing import Any

from palimpsest.core.edits import Edit, Put, into_of
from palimpsest.core.events import Body, Event
from palimpsest.core.events.calls import TURN, Interrupted, ModelReplied, UserSaid
from palimpsest.core.events.context import ContextStated, ViewEdited
from palimpsest.core.events.records import Recalled
from palimpsest.core.events.tools import ToolReturned
from palimpsest.core.items import Item, Kind, Text, Thinking, kind_of


def items_of(seq: int, body: Body) -> list[Item]:
    """The items that event `seq` itself brings to the end of a view, in the order of their ids; a stated head comes first.

    Replies of a purpose other than `turn` bring none.
    """
    bring = _BRINGS.get(type(body))
    return [] if bring is None else bring(seq, body)


def edit_items(seq: int, index: int, edit: Edit) -> dict[int, Item]:
    """The new items that edit `index` of event `seq` brings, by their place among all that it brings or keeps."""
    return {
        number: Item(f"{seq}.{index}.{number}", put.kind, put.content, put.source)
        for number, put in enumerate(into_of(edit))
        if isinstance(put, Put)
    }


def all_items_of(event: Event) -> list[Item]:
    """Every item that was first brought by an event, by itself or by the edits in it."""
    body = event.body
    if isinstance(body, ViewEdited):
        return [item for index, edit in enumerate(body.edits) for item in edit_items(event.seq, index, edit).values()]
    return items_of(event.seq, body)


def numbers_of(item_id: str) -> tuple[int, ...] | None:
    """The two or three numbers of an item id; none if the id is not in its canonical form."""
    words = item_id.split(".")
    if len(words) not in {2, 3} or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    numbers = tuple(int(word) for word in words)
    return numbers if ".".join(map(str, numbers)) == item_id else None


def item_of(event: Event, item_id: str) -> Item | None:
    """The item of that id as its event first brought it, whatever masks or folds did since; none if the event has no such item."""
    return next((item for item in all_items_of(event) if item.id == item_id), None)


def _replied(seq: int, body: ModelReplied) -> list[Item]:
    if body.purpose != TURN:
        return []
    return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(body.parts)]


def _interrupted(seq: int, body: Interrupted) -> list[Item]:
    if body.purpose != TURN:
        return []
    # A tool call that was cut off has no result and must not be sent back: providers refuse a call without one.
    arrived = [part for part in body.parts if isinstance(part, Text | Thinking)]
    return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(arrived)]


def _returned(seq: int, body: ToolReturned) -> list[Item]:
    return [Item(f"{seq}.0", "result", body.result)]


def _said(seq: int, body: UserSaid) -> list[Item]:
    kind: Kind = "steering" if body.steering else "user"
    return [Item(f"{seq}.{number}", kind, part) for number, part in enumerate(body.parts)]


def _stated(seq: int, body: ContextStated) -> list[Item]:
    return [
        Item(f"{seq}.{number}", "context", Text(statement.text, statement.role, ref=statement.ref), statement.source)
        for number, statement in enumerate((*(body.head or ()), *body.items))
    ]


def _recalled(seq: int, body: Recalled) -> list[Item]:
    return [Item(f"{seq}.{number}", "recalled", part) for number, part in enumerate(body.parts)]


_BRINGS: Mapping[type, Callable[[int, Any], list[Item]]] = {
    ModelReplied: _replied,
    Interrupted: _interrupted,
    ToolReturned: _returned,
    UserSaid: _said,
    ContextStated: _stated,
    Recalled: _recalled,
}
