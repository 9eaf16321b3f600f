"""Contents that can be shown to a model, items (a content at its place in a view), and frozen mappings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dictionary whose content is fixed when it is made: every method that would change it raises `TypeError`.

    It equals a `dict` with the same content and is written as the same JSON; `copy()` and `|` give a plain `dict`. Make one with
    `frozen`, and annotate a field that holds one as `Mapping`: `msgspec` then decodes a plain `dict`, which `__post_init__` replaces:

        class Health(Value, frozen=True):
            failures: Mapping[str, int] = EMPTY

            def __post_init__(self) -> None:
                force_setattr(self, "failures", frozen(self.failures))
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this dictionary is part of a frozen value and cannot be changed; make a new one with dict(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a plain dictionary has none, because it can change
        return hash(frozenset(self.items()))

    def __copy__(self) -> "FrozenDict[K, V]":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The default protocol fills an empty dictionary item by item, which is refused.
        return FrozenDict, (dict(self),)


# One object, because `omit_defaults` leaves a field out of the JSON when it holds the very object that is its default.
EMPTY: Final[FrozenDict[Any, Any]] = FrozenDict()


def frozen(mapping: Mapping[K, V]) -> FrozenDict[K, V]:
    """The mapping as a read-only dictionary: itself if it is one, `EMPTY` if it has no entries, else a copy."""
    if type(mapping) is FrozenDict:
        return mapping
    return FrozenDict(mapping) if mapping else EMPTY


Role: TypeAlias = Literal["user", "assistant", "developer", "system"]
Kind: TypeAlias = Literal[
    "user", "steering", "assistant", "thinking", "call", "result", "context", "summary", "reminder", "recalled", "notice"
]
Form: TypeAlias = Literal["json", "free", "shell", "search"]


class Value(Struct, frozen=True, omit_defaults=True, gc=False):
    """A frozen value; fields at their default are left out when it is written.

    Frozen values cannot form circles, so that the garbage collector need not look at them.
    """


class Signature(Value, frozen=True):
    """Encrypted state of a model: the signature of a thinking block, or the encrypted content of a reasoning item.

    It may be sent only to the provider and model that made it.
    """

    provider: str
    model: str
    data: str


class Text(Value, frozen=True, tag="text"):
    """Plain text. Neighbours with the same `ref` are parts of one message of the provider."""

    text: str
    role: Role = "user"
    phase: str = ""
    ref: str = ""


class Thinking(Value, frozen=True, tag="thinking"):
    """Thinking of a model: the full text (form `whole`), a summary by the provider (`digest`), or a signature only (`sealed`)."""

    text: str
    signature: Signature | None = field(name="seal", default=None)
    form: Literal["whole", "digest", "sealed"] = "whole"
    ref: str = ""


class Image(Value, frozen=True, tag="image"):
    """A picture, by the address of its blob or by a URL that the provider fetches itself."""

    media: str
    blob: str = ""
    url: str = ""
    detail: str = ""
    ref: str = ""


class Document(Value, frozen=True, tag="document"):
    """A file shown whole (a PDF, say), by the address of its blob or by a URL."""

    media: str
    blob: str = ""
    url: str = ""
    name: str = ""
    ref: str = ""


class Opaque(Value, frozen=True, tag="opaque"):
    """An item that only its provider understands, as raw JSON; other models and people get `text_fallback` instead."""

    provider: str
    model: str
    data: str
    text_fallback: str = field(name="twin", default="")
    ref: str = ""


class ToolCall(Value, frozen=True, tag="tool_call"):
    """A model asks for a tool; `args` is the text it wrote, JSON or free as `form` says.

    `call_id` is unique in a session. Where the provider's own id was not, `given` keeps that.
    """

    call_id: str
    tool: str
    args: str
    form: Form = "json"
    ref: str = ""
    given: str = ""


Part: TypeAlias = Text | Image | Document | Opaque


class ToolResult(Value, frozen=True, tag="tool_result"):
    """What a tool gave back. `blob` holds the whole output when `parts` is only a preview of it."""

    call_id: str
    parts: tuple[Part, ...] = ()
    error: bool = False
    form: Form = "json"
    blob: str = ""
    ref: str = ""


Content: TypeAlias = Text | Thinking | Image | Document | ToolCall | ToolResult | Opaque


class Piece(Value, frozen=True):
    """A content and what it is to us; `source` names where stated context came from."""

    kind: Kind
    content: Content
    source: str = ""


class Cover(Value, frozen=True):
    """What stands in for a masked item: nothing when the text is empty."""

    text: str = ""
    form: Literal["shown", "cached"] = "shown"


class Item(Value, frozen=True):
    """A content at its place. `17.2` is part 2 of event 17; `40.0.1` is piece 1 of edit 0 of event 40."""

    id: str
    kind: Kind
    content: Content
    source: str = ""
    mask: Cover | None = None

    @property
    def hidden(self) -> bool:
        """Whether the model sees nothing of it."""
        return self.mask is not None and self.mask.form == "shown" and not self.mask.text


def shared_prefix_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How many things two rows have in common from their start on, each the very same thing."""
    count = 0
    for this, that in zip(one, other, strict=False):
        if this is not that:
            break
        count += 1
    return count


def seq_of(item_id: str) -> int:
    """The event that an item comes from."""
    return int(item_id.partition(".")[0])


_KINDS: dict[type[Content], Kind] = {
    Text: "assistant",
    Thinking: "thinking",
    Image: "assistant",
    Document: "assistant",
    ToolCall: "call",
    ToolResult: "result",
    Opaque: "assistant",
}


def kind_of(content: Content) -> Kind:
    """What a content of a model's reply is to us."""
    return _KINDS[type(content)]


def text_of(content: Content) -> str:
    """What a person, a search index or another model can read of a content."""
    # Results come first, for they are most of what is read, and most have one part.
    match content:
        case ToolResult(parts=(Text(text=text),)):
            return text
        case ToolResult():
            return "\n".join(text_of(part) for part in content.parts)
        case Text() | Thinking():
            return content.text
        case ToolCall():
            return f"{content.tool} {content.args}"
        case Opaque():
            return content.text_fallback
        case Image():
            return f"[image {content.media}]"
        case Document():
            return f"[document {content.name or content.media}]"
