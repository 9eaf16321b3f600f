"""A session as people read it: turns of entries, each a value that a page is made from."""

from typing import TypeAlias

from palimpsest.core.events import ToolReturned, Usage
from palimpsest.core.items import Document, Image, Item, Kind, Opaque, Text, Thinking, ToolCall, Value


class Said(Value, frozen=True):
    """Something stands in the conversation that no model wrote: a user's words, context, notes that were recalled.

    Like all that a view can show, it may be `hidden` from the model by now.
    """

    seq: int
    at: int
    kind: Kind
    part: Text | Image | Document | Opaque
    source: str = ""
    hidden: bool = False


class Answered(Value, frozen=True):
    """A piece of a model's reply that is no call."""

    seq: int
    at: int
    model: str
    part: Text | Thinking | Image | Document | Opaque
    hidden: bool = False


class Used(Value, frozen=True):
    """A call of a tool and what came back; either may be missing, and is `hidden` if one of them is."""

    seq: int
    at: int
    call: ToolCall | None
    returned: ToolReturned | None = None
    hidden: bool = False


class Listed(Value, frozen=True):
    """An item by its name and the beginning of its text."""

    id: str
    kind: Kind
    line: str


class Edited(Value, frozen=True):
    """The view was edited: by whom and why, what it hid, brought back and made, and whether it was undone later."""

    seq: int
    at: int
    by: str
    why: str = ""
    before: int = 0
    after: int = 0
    price: float | None = None
    hid: tuple[Listed, ...] = ()
    covers: tuple[str, ...] = ()
    brought: tuple[Listed, ...] = ()
    made: tuple[Item, ...] = ()
    undone: bool = False


class Noted(Value, frozen=True):
    """Anything else worth a line; `text` is what somebody wrote about it."""

    seq: int
    at: int
    line: str
    text: str = ""


Entry: TypeAlias = Said | Answered | Used | Edited | Noted


class Turn(Value, frozen=True):
    """What happened from one message of the user to the next; number 0 is what came before the first.

    `cost` is nothing when a model of the turn has no known price.
    """

    number: int
    entries: tuple[Entry, ...]
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0


class Cover(Value, frozen=True):
    """What stands before the first turn: which session this is."""

    session: str
    title: str
    origin: str
    cwd: str
    model: str
    began: int
    events: int
    messages: tuple[str, ...] = ()
