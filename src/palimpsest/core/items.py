"""Items of a view and their contents, edits, pairs of tool calls and results, and tools that come and go during a session."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

import msgspec
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
    `citations` is the JSON of what a reply cites there; it goes back as it came to models that bind thinking to it.
    """

    text: str
    role: Role = "user"
    phase: str = ""
    ref: str = ""
    attached: bool = False
    citations: str = ""


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


class LostEntity(Value, frozen=True, array_like=True):
    """A text that is no longer visible after an edit, and the id of the item that contained it; encoded as a list of two."""

    text: str
    item: str


class Loss(Value, frozen=True):
    """What an edit hides, by kind of entity. `ids` are the items that were visible before the edit and are not after it.

    `path_items` and `command_items` are the ids of the items that contained each of `paths` and `commands`. Long lists are cut; `more`
    holds the number of omitted entries of each kind.
    """

    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    numbers: int = 0
    user_messages: int = 0
    ids: tuple[str, ...] = ()
    path_items: tuple[str, ...] = ()
    command_items: tuple[str, ...] = ()
    symbols: tuple[LostEntity, ...] = ()
    errors: tuple[LostEntity, ...] = ()
    urls: tuple[LostEntity, ...] = ()
    identifiers: tuple[LostEntity, ...] = ()
    more: dict[str, int] = {}


class ReasoningLost(Value, frozen=True, omit_defaults=False):
    """Thinking that the next request leaves out because of an edit: blocks, and their output tokens, `None` if some are unknown."""

    blocks: int = 0
    tokens: int | None = 0


class Keep(Value, frozen=True, tag="keep"):
    """An existing item that the edit keeps verbatim; it is moved, not copied."""

    id: str


class Put(Piece, frozen=True, tag="put"):
    """A new content that an edit adds to the view."""


Into: TypeAlias = tuple[Put | Keep, ...]


class Mask(Value, frozen=True, tag="mask"):
    """Show `text` instead of the items; an empty text hides them. Form `cached` keeps the bytes and asks the provider to clear them."""

    ids: tuple[str, ...]
    text: str = ""
    form: Literal["shown", "cached"] = "shown"


class Unmask(Value, frozen=True, tag="unmask"):
    """Remove the masks of the items."""

    ids: tuple[str, ...]


class Fold(Value, frozen=True, tag="fold"):
    """Replace the items from `first` to `last`, both included, by `into`."""

    first: str
    last: str
    into: Into = ()


class Insert(Value, frozen=True, tag="insert"):
    """Insert contents before an item, or at the end if `before` is empty; a `Keep` restores an item that an earlier edit removed."""

    contents: Into
    before: str = ""


Edit: TypeAlias = Mask | Unmask | Fold | Insert


def named_ids(edit: Edit) -> tuple[str, ...]:
    """Return the ids of the existing items that an edit refers to."""
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            return ids
        case Fold(first=first, last=last):
            return (first, last, *kept_ids(edit))
        case Insert(before=before):
            return (before, *kept_ids(edit)) if before else kept_ids(edit)


def into_of(edit: Edit) -> Into:
    """Return the new and the kept contents that an edit puts into the view."""
    match edit:
        case Mask() | Unmask():
            return ()
        case Fold(into=into) | Insert(contents=into):
            return into


def kept_ids(edit: Edit) -> tuple[str, ...]:
    """Return the ids of the items that an edit keeps or restores."""
    return tuple(piece.id for piece in into_of(edit) if isinstance(piece, Keep))


_PAIRED = (ToolCall, ToolResult)


def pairs_of(items: Iterable[Item]) -> Iterator[tuple[Item, Item]]:
    """Yield each tool call item with the item of its result, in the order of the results.

    Logs of 0.1.0 may have several calls with one id: each result then belongs to the oldest call without a result.
    """
    waiting: dict[str, deque[Item]] = {}
    for item in items:
        content = item.content
        if isinstance(content, ToolCall):
            # A search without an id is run by the provider itself and never gets a result.
            if content.call_id or content.form != "search":
                waiting.setdefault(content.call_id, deque()).append(item)
        elif isinstance(content, ToolResult) and (queue := waiting.get(content.call_id)):
            yield queue.popleft(), item


def answered_calls(items: Iterable[Item]) -> dict[str, ToolCall]:
    """Return the tool call of each result, by the item id of the result; results without a call are omitted."""
    return {result.id: call.content for call, result in pairs_of(items) if isinstance(call.content, ToolCall)}


def unpaired(items: Iterable[Item]) -> frozenset[str]:
    """Return the ids of visible calls without a later visible result, and of visible results without an earlier visible call.

    If several calls have one id, each result belongs to the oldest of them. Results without an id are never unpaired.
    """
    waiting: dict[str, list[str]] = {}
    unpaired_results: set[str] = set()
    for item in items:
        content = item.content
        if not isinstance(content, _PAIRED) or not content.call_id or (item.mask is not None and item.hidden):
            continue
        queue = waiting.get(content.call_id)
        if isinstance(content, ToolCall):
            if queue is None:
                waiting[content.call_id] = [item.id]
            else:
                queue.append(item.id)
        elif queue is None:
            unpaired_results.add(item.id)
        elif len(queue) > 1:
            del queue[0]
        else:
            del waiting[content.call_id]
    return frozenset(unpaired_results.union(*waiting.values()))


def newly_unpaired(before: Iterable[Item], after: Iterable[Item]) -> frozenset[str]:
    """Return the ids of the items that are unpaired after an edit and were not before it."""
    return unpaired(after) - unpaired(before)


def unanswered_calls(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the visible calls without a result, in order."""
    unpaired_ids = unpaired(items)
    return tuple(item for item in items if item.id in unpaired_ids and isinstance(item.content, ToolCall))


def pending_calls(items: Sequence[Item], unpaired_ids: frozenset[str] | None = None) -> tuple[Item, ...]:
    """Return the calls of the newest reply that may still get a result; none after a new user message.

    `unpaired_ids` is `unpaired(items)`, if the caller has computed it.
    """
    newest = -1
    for item in reversed(items):
        if item.kind == "user":
            return ()
        if item.kind in MODEL_KINDS:
            newest = seq_of(item.id)
            break
    prefix = f"{newest}."
    calls = [item for item in items if item.id.startswith(prefix) and isinstance(item.content, ToolCall)]
    if unpaired_ids is None:
        # Only items with the same call id decide whether a call has a result.
        call_ids = {content.call_id for item in calls if isinstance(content := item.content, ToolCall)}
        same_ids = [item for item in items if isinstance(content := item.content, _PAIRED) and content.call_id in call_ids] if calls else []
        unpaired_ids = unpaired(same_ids)
    return tuple([item for item in calls if item.id in unpaired_ids])


def settled(items: Sequence[Item]) -> int:
    """Return how many leading items can be edited: all, or those before the reply that has pending calls."""
    pending = pending_calls(items)
    if not pending:
        return len(items)
    newest = seq_of(pending[0].id)
    return next(index for index, item in enumerate(items) if seq_of(item.id) == newest)


def safe_cuts(items: Sequence[Item]) -> tuple[int, ...]:
    """Return every index at which the items can be split without separating a call from its result; 0 and the length included."""
    ends = {call.id: result.id for call, result in pairs_of(items)}
    if not ends:
        return tuple(range(len(items) + 1))
    cuts = [0]
    open_results: set[str] = set()
    for index, item in enumerate(items, 1):
        if isinstance(item.content, ToolCall):
            if item.id in ends:
                open_results.add(ends[item.id])
        elif isinstance(item.content, ToolResult):
            open_results.discard(item.id)
        if not open_results:
            cuts.append(index)
    return tuple(cuts)


def rounds(items: Sequence[Item]) -> tuple[int, ...]:
    """Return the start index of each round: a model reply with the results and messages after it.

    Items before the first reply belong to the first round.
    """
    starts = [0] if items else []
    replied = any(item.kind in MODEL_KINDS for item in items[:1])
    for index in range(1, len(items)):
        if items[index].kind in MODEL_KINDS and items[index - 1].kind not in MODEL_KINDS:
            if replied:
                starts.append(index)
            replied = True
    return tuple(starts)


TOOL_CHANGES: Final = "tool_changes"
"""The source of the items that say it."""


class ToolChange(Value, frozen=True):
    """The names of tools that can be called from here on, and of those that cannot be any more; `effort` is empty if it stays."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    effort: str = ""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ToolChange).decode


class PlacedChange(NamedTuple):
    """What an item changes where it stands: a tool that is there already is not added, and one that is not is not removed."""

    item: Item
    change: ToolChange
    available: frozenset[str]


def tool_changes_content(change: ToolChange) -> Opaque:
    """The content of an item that says it; no provider takes it as it is, and no other model is sent a text for it."""
    return Opaque("", "", _encode(change).decode())


def is_tool_change(item: Item) -> bool:
    """Whether an item says it to the model: a masked one does not."""
    return item.source == TOOL_CHANGES and item.mask is None and isinstance(item.content, Opaque) and not item.content.provider


def placed_changes(items: Iterable[Item], declared: Iterable[str], deferred: Iterable[str]) -> Iterator[PlacedChange]:
    """What the items of a view change, in order, and the tools that are `available` after each.

    Without a change those that are `declared` are available, but for the `deferred` ones. Names that are not declared are left out.
    """
    known = frozenset(declared)
    available = known.difference(deferred)
    for item in items:
        if not is_tool_change(item) or not isinstance(item.content, Opaque):
            continue
        said = _decode(item.content.data)
        added = tuple(name for name in said.added if name in known and name not in available)
        removed = tuple(name for name in said.removed if name in available)
        available = available.difference(removed).union(added)
        yield PlacedChange(item, ToolChange(added, removed, said.effort), available)


def stated_effort(items: Iterable[Item]) -> str:
    """The effort that the items of a view state last; empty if none does."""
    stated = [_decode(item.content.data).effort for item in items if is_tool_change(item) and isinstance(item.content, Opaque)]
    return next((effort for effort in reversed(stated) if effort), "")
