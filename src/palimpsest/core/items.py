"""Contents that can be shown to a model, items (a content with an id in a view), and frozen mappings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A read-only dictionary: every method that would change it raises `TypeError`.

    It equals a `dict` with the same content and encodes to the same JSON; `copy()` and `|` return a plain `dict`. Create one with
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

    def __hash__(self) -> int:  # type: ignore[override]  # `dict` declares it as None, because a dict can change
        return hash(frozenset(self.items()))

    def __copy__(self) -> "FrozenDict[K, V]":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # By default unpickling fills an empty dictionary item by item, which raises.
        return FrozenDict, (dict(self),)


# One shared object, because `omit_defaults` omits a field only if it holds the identical object that is its default.
EMPTY_MAPPING: Final[FrozenDict[Any, Any]] = FrozenDict()


def frozen(mapping: Mapping[K, V]) -> FrozenDict[K, V]:
    """Return the mapping as a read-only dictionary: itself if it is one, `EMPTY_MAPPING` if it has no entries, else a copy."""
    if type(mapping) is FrozenDict:
        return mapping
    return FrozenDict(mapping) if mapping else EMPTY_MAPPING


Role: TypeAlias = Literal["user", "assistant", "developer", "system"]
Kind: TypeAlias = Literal[
    "user", "steering", "assistant", "thinking", "call", "result", "context", "summary", "reminder", "recalled", "notice"
]
# The kinds of the items that a model wrote.
MODEL_KINDS: Final[frozenset[Kind]] = frozenset({"assistant", "thinking", "call"})
Form: TypeAlias = Literal["json", "free", "shell", "search"]


class Value(Struct, frozen=True, omit_defaults=True, gc=False):
    """Parent of all frozen values; fields at their default are omitted from the JSON.

    Frozen values cannot form reference cycles, so they are not tracked by the garbage collector.
    """


class Signature(Value, frozen=True):
    """Encrypted state of a model: the signature of a thinking block, or the encrypted content of a reasoning item.

    It may be sent only to the provider and model that made it.
    """

    provider: str
    model: str
    data: str


class Text(Value, frozen=True, tag="text"):
    """Plain text. Consecutive contents with the same `ref` are parts of one message of the provider.

    `attached` marks a text that came with the input of the user without being typed by the user: from a pipe, a file or a command.
    """

    text: str
    role: Role = "user"
    phase: str = ""
    ref: str = ""
    attached: bool = False


class Thinking(Value, frozen=True, tag="thinking"):
    """Thinking of a model: the full text (form `whole`), a summary by the provider (`digest`), or a signature only (`sealed`)."""

    text: str
    signature: Signature | None = field(name="seal", default=None)
    form: Literal["whole", "digest", "sealed"] = "whole"
    ref: str = ""


class Image(Value, frozen=True, tag="image"):
    """An image, by the address of its blob or by a URL that the provider fetches; `name` is the path that the user gave."""

    media: str
    blob: str = ""
    url: str = ""
    detail: str = ""
    ref: str = ""
    name: str = ""


class Document(Value, frozen=True, tag="document"):
    """A file that is sent as a whole, such as a PDF, by the address of its blob or by a URL."""

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
    """A tool call of a model. `args` is the text that the model wrote: JSON or free text, depending on `form`.

    `call_id` is unique in a session. If the id of the provider was not, `given` holds the provider's id. `kind` is the class of the tool
    (read, edit, command and so on) by its declaration; empty where the name of the tool says the same. `caller` is the JSON of what called
    the tool, if the provider said so: it goes back as it came.
    """

    call_id: str
    tool: str
    args: str
    form: Form = "json"
    ref: str = ""
    given: str = ""
    kind: str = ""
    caller: str = ""


Part: TypeAlias = Text | Image | Document | Opaque


class ToolResult(Value, frozen=True, tag="tool_result"):
    """The result of a tool call. If `parts` is only a preview, `blob` is the address of the full output."""

    call_id: str
    parts: tuple[Part, ...] = ()
    error: bool = False
    form: Form = "json"
    blob: str = ""
    ref: str = ""


Content: TypeAlias = Text | Thinking | Image | Document | ToolCall | ToolResult | Opaque


class Piece(Value, frozen=True):
    """A content with its kind; `source` names the source of stated context."""

    kind: Kind
    content: Content
    source: str = ""


class Cover(Value, frozen=True):
    """The text that a mask shows instead of an item; an empty text hides the item."""

    text: str = ""
    form: Literal["shown", "cached"] = "shown"


class Item(Value, frozen=True):
    """A content with its id in the view. `17.2` is part 2 of event 17; `40.0.1` is piece 1 of edit 0 of event 40."""

    id: str
    kind: Kind
    content: Content
    source: str = ""
    mask: Cover | None = None

    @property
    def hidden(self) -> bool:
        """Whether the model sees nothing of the item."""
        return self.mask is not None and self.mask.form == "shown" and not self.mask.text


def shared_prefix_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the longest shared prefix of two sequences, comparing elements by identity."""
    count = 0
    for this, that in zip(one, other, strict=False):
        if this is not that:
            break
        count += 1
    return count


def seq_of(item_id: str) -> int:
    """Return the sequence number of the event that an item comes from."""
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
    """Return the kind of a content in a model reply."""
    return _KINDS[type(content)]


def text_of(content: Content) -> str:
    """Return the readable text of a content, for people, the search index and other models."""
    # Results are tested first because they are the most frequent, and most have one part.
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
