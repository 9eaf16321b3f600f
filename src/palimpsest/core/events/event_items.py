"""The items that an event adds to a view; no other module derives items from event bodies."""

from typing import Final

from msgspec.structs import replace

from palimpsest.core.edits import Edit, Put, into_of
from palimpsest.core.events import (
    Body,
    ContextStated,
    Event,
    Interrupted,
    ModelReplied,
    Recalled,
    ToolReturned,
    ToolsChanged,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Item, Kind, Text, Thinking, kind_of
from palimpsest.core.tool_changes import TOOL_CHANGES, ToolChange, tool_changes_content

# Characters of an item id: three numbers of 18 digits with two dots.
_LONGEST_ID: Final = 56


def items_of(seq: int, body: Body) -> list[Item]:
    """Return the items that event `seq` adds to the end of a view, in the order of their ids; the items of a new head come first.

    The contents of edits are not included. Replies of a purpose other than `turn` add no items.
    """
    kind: Kind = "recalled"
    match body:
        case ToolReturned(result=result):
            return [Item(f"{seq}.0", "result", result)]
        case ModelReplied(purpose="turn", parts=parts):
            return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(map(_of_model, parts))]
        case Interrupted(purpose="turn", parts=parts):
            # Tool calls are left out: an interrupted call has no result, and providers reject a call without one.
            arrived = [_of_model(part) for part in parts if isinstance(part, Text | Thinking)]
            return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(arrived)]
        case ContextStated(head=head, items=statements):
            return [
                Item(f"{seq}.{number}", "context", Text(statement.text, statement.role, ref=statement.ref), statement.source)
                for number, statement in enumerate((*(head or ()), *statements))
            ]
        case ToolsChanged(added=added, removed=removed, effort=effort):
            return [Item(f"{seq}.0", "context", tool_changes_content(ToolChange(added, removed, effort)), TOOL_CHANGES)]
        case UserSaid(parts=parts, steering=steering):
            kind = "steering" if steering else "user"
        case Recalled(parts=parts):
            pass
        case _:
            return []
    return [Item(f"{seq}.{number}", kind, part) for number, part in enumerate(parts)]


def _of_model(part: Content) -> Content:
    """A part of a reply: text is the model's, also if who made it has left out the role."""
    return replace(part, role="assistant") if isinstance(part, Text) and part.role == "user" else part


def edit_items(seq: int, index: int, edit: Edit) -> dict[int, Item]:
    """Return the new items of edit `index` of event `seq`, by their position among all new and kept contents of the edit."""
    return {
        number: Item(f"{seq}.{index}.{number}", put.kind, put.content, put.source)
        for number, put in enumerate(into_of(edit))
        if isinstance(put, Put)
    }


def all_items_of(event: Event) -> list[Item]:
    """Return every item that an event creates, directly or by its edits."""
    body = event.body
    if isinstance(body, ViewEdited):
        return [item for index, edit in enumerate(body.edits) for item in edit_items(event.seq, index, edit).values()]
    return items_of(event.seq, body)


def numbers_of(item_id: str) -> tuple[int, ...] | None:
    """Return the two or three numbers of an item id, or `None` if the id is not in canonical form."""
    # `int` raises from 4,300 digits on.
    words = item_id.split(".") if len(item_id) <= _LONGEST_ID else ()
    if len(words) not in {2, 3} or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    numbers = tuple(int(word) for word in words)
    return numbers if ".".join(map(str, numbers)) == item_id else None


def item_of(event: Event, item_id: str) -> Item | None:
    """Return the item as its event created it, without later masks or folds, or `None` if the event has no such item."""
    return next((item for item in all_items_of(event) if item.id == item_id), None)
