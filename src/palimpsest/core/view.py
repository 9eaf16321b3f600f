"""The view: the items that the model sees as a value, the content shown of each item, and the protocol of projections."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from palimpsest.core.events import CallStarted, Event
from palimpsest.core.items import (
    EMPTY_MAPPING,
    MODEL_KINDS,
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

CHANGED: Final = "+"
"""Suffix of the source under which a change is stated: it says all that differs from the statement of the source, which stays visible."""


class Fact(Value, frozen=True):
    """The newest value that a source stated, and the id of the item that states it."""

    value: str
    id: str


class Reported(Value, frozen=True):
    """Tokens of the view at its last known size: reported by the provider with a reply, or computed by a later edit.

    `written` is the number of tokens written to the provider's cache, which one of the imitated programs does not count. `measured` are
    the items that `tokens` includes, if the view has changed since by more than new items at its end. The difference between `tokens` and
    a count of `measured` is what the request has and the log has not: tools, and the system prompt of another program.
    """

    tokens: int
    seq: int
    written: int = 0
    measured: tuple[Item, ...] | None = None


class RunningNotes(Value, frozen=True):
    """The newest running notes of the session, and the last event that they cover."""

    text: str
    covers: int
    seq: int


class View(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the model sees: a projection of the log. The head stays byte-equal during an epoch.

    `facts` are stated by visible, unmasked items. `masked_facts` are restored when their item is unmasked. `held` are items that an undo
    or an edit restored, which policies hide only under pressure. `epoch` counts the heads that were stated and starts at 0.
    """

    head: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    facts: Mapping[str, Fact] = EMPTY_MAPPING
    notes: RunningNotes | None = None
    pins: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    epoch: int = 0
    seq: int = -1
    reported: Reported | None = None
    call: CallStarted | None = None
    model: str = ""
    mode: str = ""
    collaboration: str = ""
    profile: str = ""
    masked_facts: Mapping[str, Fact] = EMPTY_MAPPING

    def __post_init__(self) -> None:
        if self.facts is not EMPTY_MAPPING:
            force_setattr(self, "facts", frozen(self.facts))
        if self.masked_facts is not EMPTY_MAPPING:
            force_setattr(self, "masked_facts", frozen(self.masked_facts))

    def __getitem__(self, item_id: str) -> Item:
        """Return the item with that id. Raises `KeyError` if the view has none."""
        for item in self.items:
            if item.id == item_id:
                return item
        raise KeyError(item_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all items after the head, in order."""
        return tuple(item.id for item in self.items)

    def since(self, seq: int) -> tuple[Item, ...]:
        """Return the trailing items that are newer than event `seq`."""
        items = self.items
        start = len(items)
        while start and seq_of(items[start - 1].id) > seq:
            start -= 1
        return items[start:]

    @property
    def measured_report(self) -> Reported | None:
        """The last report together with the items that it measured; it stays valid for a view with other items."""
        reported = self.reported
        if reported is None or reported.measured is not None:
            return reported
        return replace(reported, measured=self.items[: len(self.items) - len(self.since(reported.seq))])


EMPTY_VIEW = View()


def shown(item: Item, *, drops_cached: bool = False) -> Content | None:
    """Return what the model sees of an item: its content, the text of its mask in the same shape, or `None` if it is hidden.

    A `cached` mask leaves the content in the request, except for a tool result if the provider `drops_cached` parts.
    """
    mask = item.mask
    if mask is None or (mask.form == "cached" and not (drops_cached and isinstance(item.content, ToolResult))):
        return item.content
    return placeholder_content(item, mask.text) if mask.text else None


def placeholder_content(item: Item, text: str) -> Content:
    """Return the content of an item with its text replaced. Call ids, roles and refs stay, so that pairs and speakers stay too."""
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
    """Whether the content of an item reaches the model."""
    return item.mask is None or item.mask.form == "cached"


def speaker(kind: Kind) -> Role:
    """Return the role of an item whose content has none."""
    return "assistant" if kind in MODEL_KINDS else "user"


def _arguments(form: Form, text: str) -> str:
    """Return a text wrapped in the argument syntax of a call form."""
    match form:
        case "free":
            return text
        case "shell":
            return msgspec.json.encode({"type": "exec", "command": [text], "env": {}}).decode()
        case "json" | "search":
            return msgspec.json.encode({"note": text}).decode()


Scope: TypeAlias = Literal["path", "file"]


class Projection(Protocol):
    """State that depends only on events, so that rebuilding it from the log gives the same result as a checkpoint.

    A projection of scope `path` gets the events of the current path and is rebuilt after a rewind. One of scope `file` gets every event
    of the file, on all branches.
    """

    @property
    def name(self) -> str:
        """Key of its snapshots in checkpoints."""
        ...

    @property
    def version(self) -> int:
        """Version of its snapshots; if a snapshot has another version, the state is rebuilt from the log."""
        ...

    @property
    def scope(self) -> Scope:
        """Which events it gets."""
        ...

    @property
    def watches(self) -> frozenset[type] | None:
        """The types of bodies that it gets; `None` means all."""
        ...

    def take(self, event: Event) -> None:
        """Apply the next event; the view projection has applied it already."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state as JSON."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` or `BadLog` if it cannot be used."""
        ...

    def reset(self) -> None:
        """Go back to the state before the first event."""
        ...


class StateProjection:
    """Parent of the projections whose state is one value: `state_type()` before the first event, and JSON in a snapshot."""

    __slots__ = ()
    state_type: ClassVar[Any]

    def value(self) -> object:
        """Return the state after the last event."""
        raise NotImplementedError

    def start_from(self, state: Any) -> None:
        """Replace the state by a value of `state_type`."""
        raise NotImplementedError

    def reset(self) -> None:
        """Go back to the state before the first event."""
        self.start_from(self.state_type())

    def snapshot(self) -> bytes:
        """Return the state as JSON."""
        return msgspec.json.encode(self.value())

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` if it is invalid."""
        self.start_from(msgspec.json.decode(data, type=self.state_type))
