"""The view as a value: what the model sees now, and what it sees of each item."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from palimpsest.core.events import CallStarted
from palimpsest.core.items import EMPTY as NO_FACTS
from palimpsest.core.items import (
    Content,
    Document,
    Form,
    Image,
    Item,
    Kind,
    Opaque,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Value,
    frozen,
    seq_of,
)


class Fact(Value, frozen=True):
    """What a source last said, and the item that says it."""

    value: str
    id: str


class Reported(Value, frozen=True):
    """How many tokens the view had when it was last counted: by the provider with a reply, or by the edit after that.

    `written` of them went into the provider's cache, which one program does not count.
    """

    tokens: int
    seq: int
    written: int = 0


class RunningNotes(Value, frozen=True):
    """The newest notes of this session, and the last event they cover."""

    text: str
    covers: int
    seq: int


class View(Struct, frozen=True, omit_defaults=True, gc=False):
    """A projection of the log. The head stays byte-equal for an epoch; a fact counts as stated while its item shows unmasked.

    `masked_facts` are those that count again once the mask of their item is gone. Epochs are counted by the heads that were stated: none
    yet is 0.
    """

    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    facts: Mapping[str, Fact] = NO_FACTS
    notes: RunningNotes | None = None
    pins: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    epoch: int = 0
    seq: int = -1
    reported: Reported | None = None
    call: CallStarted | None = None
    model: str = ""
    mode: str = ""
    profile: str = ""
    masked_facts: Mapping[str, Fact] = NO_FACTS

    def __post_init__(self) -> None:
        if self.facts is not NO_FACTS:
            force_setattr(self, "facts", frozen(self.facts))
        if self.masked_facts is not NO_FACTS:
            force_setattr(self, "masked_facts", frozen(self.masked_facts))

    def __getitem__(self, item_id: str) -> Item:
        """The visible item of that id."""
        for item in self.items:
            if item.id == item_id:
                return item
        raise KeyError(item_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all items, in order."""
        return tuple(item.id for item in self.items)

    def since(self, seq: int) -> tuple[Item, ...]:
        """The items at the end that came after an event."""
        items = self.items
        start = len(items)
        while start and seq_of(items[start - 1].id) > seq:
            start -= 1
        return items[start:]


EMPTY = View()


_BY_MODEL: Final[frozenset[Kind]] = frozenset({"assistant", "thinking", "call"})


def shown(item: Item, *, drops_cached: bool = False) -> Content | None:
    """What the model sees of an item: its content, its cover in the same place, or nothing.

    A `cached` cover leaves the content in the request. Only a provider with `drops_cached` takes it out, and only a result.
    """
    mask = item.mask
    if mask is None or (mask.form == "cached" and not (drops_cached and isinstance(item.content, ToolResult))):
        return item.content
    return placeholder_content(item, mask.text) if mask.text else None


def placeholder_content(item: Item, text: str) -> Content:
    """A text in place of what an item holds, in the same frame: calls and results stay paired, words stay with who said them."""
    content = item.content
    match content:
        case ToolResult():
            return replace(content, parts=(Text(text),), blob="")
        case ToolCall():
            return replace(content, args=_arguments(content.form, text))
        case Text():
            return replace(content, text=text)
        case Thinking() | Image() | Document() | Opaque():
            return Text(text, speaker(item.kind), ref=content.ref)


def is_readable(item: Item) -> bool:
    """Whether the model can read what an item holds."""
    return item.mask is None or item.mask.form == "cached"


def speaker(kind: Kind) -> Role:
    """The role of an item whose content does not state one."""
    return "assistant" if kind in _BY_MODEL else "user"


def _arguments(form: Form, text: str) -> str:
    """A text in place of arguments, in the shape that arguments of this form have."""
    match form:
        case "free":
            return text
        case "shell":
            return msgspec.json.encode({"type": "exec", "command": [text], "env": {}}).decode()
        case "json" | "search":
            return msgspec.json.encode({"note": text}).decode()
