"""Values for a readable page of a session: turns of entries, and a header."""

from typing import TypeAlias

from palimpsest.core.events import ToolReturned, Usage
from palimpsest.core.items import Document, Image, Item, Kind, Opaque, Text, Thinking, ToolCall, Value


class InputEntry(Value, frozen=True):
    """A part of the conversation that no model wrote: text of the user, context, or recalled notes.

    `hidden` says that the model does not see it any more.
    """

    seq: int
    at: int
    kind: Kind
    part: Text | Image | Document | Opaque
    source: str = ""
    hidden: bool = False


class ReplyEntry(Value, frozen=True):
    """A part of a model's reply that is no tool call."""

    seq: int
    at: int
    model: str
    part: Text | Thinking | Image | Document | Opaque
    hidden: bool = False


class ToolEntry(Value, frozen=True):
    """A tool call and its result; either may be missing. `hidden` if one of them is hidden."""

    seq: int
    at: int
    call: ToolCall | None
    returned: ToolReturned | None = None
    hidden: bool = False


class ItemLine(Value, frozen=True):
    """An item by its id and the start of its text."""

    id: str
    kind: Kind
    line: str


class EditEntry(Value, frozen=True):
    """An edit of the view: by whom and why, the items that it hid, restored and added, and whether it was undone later."""

    seq: int
    at: int
    by: str
    why: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price: float | None = None
    hidden_items: tuple[ItemLine, ...] = ()
    mask_texts: tuple[str, ...] = ()
    restored: tuple[ItemLine, ...] = ()
    inserted: tuple[Item, ...] = ()
    undone: bool = False


class NoteEntry(Value, frozen=True):
    """Any other event, as one line; `text` is what was written about it."""

    seq: int
    at: int
    line: str
    text: str = ""


Entry: TypeAlias = InputEntry | ReplyEntry | ToolEntry | EditEntry | NoteEntry


class Turn(Value, frozen=True):
    """Everything from one user message to the next; number 0 is before the first.

    `cost` is in dollars, or None if a model of the turn has no known price.
    """

    number: int
    entries: tuple[Entry, ...]
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0


class SessionHeader(Value, frozen=True):
    """The header of a page: which session this is, and its user messages."""

    session: str
    title: str
    origin: str
    cwd: str
    model: str
    began: int
    events: int
    messages: tuple[str, ...] = ()
