"""Steps of encoding that the wires share: cached fragments of items, alternating messages, tool names, and request options."""

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.deltas import CallDelta, Delta
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Content, Form, Item, Opaque, Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.core.text import lazy_pattern, without_tags
from palimpsest.core.view import View
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models import WireName
from palimpsest.wire.request import LONGEST_NAME, Params, Request, RequestRepair, Tool, is_given

_encoder = msgspec.json.Encoder()


class BlockKind:
    """What a fragment is; everything from ASSISTANT on comes from the model. Plain integers, because they are compared for each item."""

    NOTHING: Final = 0
    USER: Final = 1
    RESULT: Final = 2
    ASSISTANT: Final = 3
    THINKING: Final = 4
    CALL: Final = 5


class Fragment(Struct, frozen=True):
    """The encoded bytes of an item, and what assembling needs to know about them.

    `key` pairs a result with its call, `wire_id` is the id that both are sent under, `provider_id` one that they may get instead.
    Adjacent fragments of one `group` share `opening` and `closing`. `aside` is sent elsewhere than the body. `erased` asks the provider to
    clear the result before the model reads it.
    """

    item: Item
    place: int
    body: bytes = b""
    key: str = ""
    wire_id: str = ""
    form: Form = "json"
    group: str = ""
    opening: bytes = b""
    closing: bytes = b""
    aside: bytes = b""
    erased: bool = False
    provider_id: str = ""


# The message of the user in a request that nothing else would begin.
OPENING_TEXT: Final = "Go on."


class Assembled(Struct, frozen=True):
    """An assembled body, with the labels of its cache breakpoints, the repairs that it needed, and its beta values of Anthropic."""

    body: bytes
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()
    betas: tuple[str, ...] = ()


class WireEncoder(Protocol):
    """Encoder of one wire: encodes single items and assembles the body."""

    def head(self, item: Item) -> Fragment:
        """Encode an item of the head."""
        ...

    def fragment(self, item: Item, wire_id: str = "") -> Fragment:
        """Encode an item of the conversation; `wire_id` overrides its call id."""
        ...

    def assemble(self, view: View, heads: list[Fragment], fragments: list[Fragment]) -> Assembled:
        """Join repaired fragments into a body."""
        ...


class FragmentCache:
    """Fragments by the identity of their item; a fragment holds its item, so that the identity is not reused while it is cached."""

    def __init__(self, encode_item: Callable[[Item], Fragment]) -> None:
        self._encode_item = encode_item
        self.items: tuple[Item, ...] = ()
        self.fragments: list[Fragment] = []
        self.by_identity: dict[int, Fragment] = {}

    def fragments_of(self, items: tuple[Item, ...]) -> list[Fragment]:
        """The fragments of all items, in order; only items that were not in the previous view are encoded."""
        previous_count = len(self.items)
        if items[:previous_count] == self.items:
            self.fragments += [self._fragment(item) for item in items[previous_count:]]
        else:
            self.fragments = [self._fragment(item) for item in items]
        if len(self.by_identity) > len(items):
            self.by_identity = {id(fragment.item): fragment for fragment in self.fragments}
        self.items = items
        return list(self.fragments)

    def _fragment(self, item: Item) -> Fragment:
        found = self.by_identity.get(id(item))
        if found is None:
            found = self.by_identity[id(item)] = self._encode_item(item)
        return found

    def adopt(self, other: "FragmentCache") -> None:
        """Copy the contents of another cache."""
        self.items, self.fragments, self.by_identity = other.items, list(other.fragments), dict(other.by_identity)


def empty_fragment(item: Item) -> Fragment:
    """The fragment of an item that is not sent."""
    return Fragment(item, BlockKind.NOTHING)


def object_members(fields: dict[str, object]) -> bytes:
    """The members of a JSON object, in order and without the braces."""
    return dump(fields)[1:-1]


def dump(value: object) -> bytes:
    """Encode a value as JSON; keys keep their order."""
    return _encoder.encode(value)


def extra_members(raw: Raw) -> bytes:
    """The members of a raw JSON object with a leading comma, to append to another object."""
    inside = bytes(raw).strip()[1:-1].strip()
    return b"," + inside if inside else b""


Message: TypeAlias = tuple[bool, list[Fragment]]
"""Whether the message is from the model, and its fragments; in other messages the results come first, in the order of their calls."""


def alternating_messages(fragments: list[Fragment], *, in_order: bool = False) -> list[Message]:
    """Group fragments into alternating messages. Thinking is dropped if nothing follows it in its message.

    It comes first in its message, unless all is to stay `in_order`, as for models that bind thinking to what stands before it.
    """
    user, result, thinking, call = BlockKind.USER, BlockKind.RESULT, BlockKind.THINKING, BlockKind.CALL
    answers = {fragment.wire_id: fragment for fragment in fragments if fragment.place == result}
    messages: list[Message] = []
    blocks: list[Fragment] = []
    calls: list[Fragment] = []
    thinking_run: list[Fragment] = []
    from_model: bool | None = None
    for fragment in fragments:
        place = fragment.place
        if place > result:
            if place == thinking:
                thinking_run.append(fragment)
                continue
            if from_model is not True:
                from_model = True
                blocks = []
                messages.append((True, blocks))
            if thinking_run:
                if in_order:
                    blocks += thinking_run
                else:
                    _add_thinking(blocks, thinking_run)
                thinking_run = []
            blocks.append(fragment)
            if place == call:
                calls.append(fragment)
        elif place == user or (place == result and calls):
            if from_model is not False:
                from_model = False
                thinking_run = []
                blocks = [answers[open_call.wire_id] for open_call in calls]
                calls = []
                messages.append((False, blocks))
            elif in_order:
                thinking_run = []
            if place == user:
                blocks.append(fragment)
    if calls:
        messages.append((False, [answers[open_call.wire_id] for open_call in calls]))
    return messages


def _add_thinking(blocks: list[Fragment], thinking_run: list[Fragment]) -> None:
    if blocks and blocks[0].place != BlockKind.THINKING:
        blocks[0:0] = thinking_run
    else:
        blocks.extend(thinking_run)


STATED = "stated"
"""Group of a statement that may become a system message: its body is framed as user text, `aside` is the block of a system message."""
SYSTEM = "system"
"""Group of the blocks of a system message."""
CHANGED = "tool changes"
"""Group of a change of tools, whose blocks may stand in a system message alone."""
OF_SYSTEM = frozenset({SYSTEM, CHANGED})


def is_statement(content: Text) -> bool:
    """Whether a text comes from the operator rather than from the user or the model."""
    return content.role in {"system", "developer"}


def framed_statement(text: str) -> str:
    """A statement as user text, for models that accept no system messages inside the conversation."""
    inside = without_tags(text, "system-message")
    return f"<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\n{inside}\n</system-message>"


_TOOLS_CHANGED = b'{"type":"text","text":"The list of tools changed."}'
_END_OF_RESULTS = b'{"type":"text","text":"End of the tool results."}'


def with_system_messages(messages: list[Message], *, ends_results: bool = False) -> list[Message]:
    """Move statements into system messages, each directly after the user message that contained them.

    Anthropic accepts them nowhere else and never two in a row. A user message of statements only stays as it is, framed. One of changes of
    tools only gets a short text before them.
    `ends_results` puts a short text behind tool results, because some models read a system message there as part of the last result.
    """
    separated: list[Message] = []
    for from_model, blocks in messages:
        changes = [] if from_model else [block for block in blocks if block.group == CHANGED]
        stated = [] if from_model else [block for block in blocks if block.group in (STATED, CHANGED)]
        moved = {STATED, CHANGED} if len(stated) < len(blocks) else {CHANGED}
        stated = [block for block in stated if block.group in moved]
        if not stated:
            separated.append((from_model, blocks))
            continue
        said = [block for block in blocks if block.group not in moved] or [Fragment(changes[0].item, BlockKind.USER, _TOOLS_CHANGED)]
        if ends_results and said[-1].place == BlockKind.RESULT:
            said.append(Fragment(said[-1].item, BlockKind.USER, _END_OF_RESULTS))
        separated.append((False, said))
        separated.append((False, [block if block.group == CHANGED else _of_system(block) for block in stated]))
    return separated


def _of_system(block: Fragment) -> Fragment:
    return Fragment(block.item, BlockKind.USER, block.aside, group=SYSTEM)


_NOT_A_NAME = lazy_pattern(r"[^a-zA-Z0-9_-]")
MISSING_CALL_ID = "call"
"""The call id sent for a call that has none."""


def arguments_object(call: ToolCall) -> bytes:
    """The arguments as a JSON object: verbatim if they are one, else as its only field `input`."""
    if call.form != "free":
        if not call.args.strip():
            return b"{}"
        if is_object(call.args):
            return call.args.encode()
    return dump({"input": call.args})


def pair_key(call_id: str, form: Form | None = None) -> str:
    """The key that a call and its result share; with a `form` it includes the kind of call."""
    return f"{call_kind(form) if form else ''}:{call_id or MISSING_CALL_ID}"


def call_kind(form: Form) -> str:
    """The kind of call; on Responses a result answers only a call of its kind."""
    return {"json": "function", "shell": "function", "free": "custom", "search": "search"}[form]


def tool_name(name: str, wire: WireName = "responses") -> str:
    """A tool name in the characters and length that a wire accepts."""
    return _NOT_A_NAME.sub("_", name)[: LONGEST_NAME[wire]] or "tool"


def opaque_type(content: Opaque) -> str:
    """The `type` field of an opaque item."""
    return str(msgspec.json.decode(content.data, type=dict[str, object]).get("type") or "")


Names: TypeAlias = Mapping[str, str]
"""Tool names on the wire by offered names, or the reverse."""
NO_NAMES: Names = MappingProxyType({})


def wire_names(tools: tuple[Tool, ...], wire: WireName) -> dict[str, str]:
    """The wire name of each offered tool; colliding names get a number.

    A name that the wire accepts stays unchanged, as does the name of a native declaration.
    """
    names = {tool.name: tool_name(tool.name, wire) for tool in tools if tool.is_native(wire) or tool_name(tool.name, wire) == tool.name}
    taken = set(names.values())
    for tool in tools:
        if tool.name not in names:
            names[tool.name] = _unused_name(tool_name(tool.name, wire), taken, LONGEST_NAME[wire])
            taken.add(names[tool.name])
    return names


def _unused_name(name: str, taken: set[str], longest: int) -> str:
    if name not in taken:
        return name
    candidates = (name[: longest - len(end)] + end for end in (f"_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def sent_name(tool: str, names: Names, wire: WireName) -> str:
    """The wire name of a called tool, which may no longer be offered."""
    return names.get(tool) or tool_name(tool, wire)


def offered_names(request: Sendable) -> dict[str, str]:
    """The offered tool names of a request by wire name, where they differ."""
    return dict(request.tool_names) if isinstance(request, Request) else {}


def offered_reply(reply: ModelReplied, names: Names) -> ModelReplied:
    """The reply with offered tool names."""
    return replace(reply, parts=tuple(_offered(part, names) for part in reply.parts)) if names else reply


def offered_delta(delta: Delta, names: Names) -> Delta:
    """The delta with the offered tool name."""
    return replace(delta, tool=names[delta.tool]) if isinstance(delta, CallDelta) and delta.tool in names else delta


def _offered(part: Content, names: Names) -> Content:
    # Names of shell and search calls are fixed by the wire and never offered.
    return (
        replace(part, tool=names[part.tool])
        if isinstance(part, ToolCall) and part.form in {"json", "free"} and part.tool in names
        else part
    )


FREE_INPUT = Raw(b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}')
"""The schema of a free-form tool on a wire whose tools all take JSON."""
Fields = dict[str, object]


def ordered_tools(tools: tuple[Tool, ...], params: Params) -> list[Tool]:
    """The tools in the order in which they are sent."""
    return sorted(tools, key=lambda tool: tool.name) if params.sort_tools else list(tools)


def without_overridden(fields: Fields, params: Params, reserved: frozenset[str]) -> Fields:
    """The fields without those that `params.extra` sets, because a key may occur once. Raises `BadInput` if `extra` sets a reserved key."""
    if not is_given(params.extra):
        return fields
    try:
        extra = msgspec.json.decode(params.extra, type=dict[str, Raw])
    except msgspec.DecodeError as error:
        raise BadInput(f"the parameter extra must be a JSON object ({error})", where="params") from error
    for key in extra:
        if key in reserved:
            raise BadInput(
                f"the parameter extra has the key {key!r}, which is written from view, tools and card; take it out", where="params"
            )
    return {key: value for key, value in fields.items() if key not in extra}


def with_wire_names(tools: tuple[Tool, ...], params: Params, wire: WireName) -> tuple[tuple[Tool, ...], Params]:
    """The tools and the tool choice under their names on the wire."""
    names = wire_names(tools, wire)
    choice = params.tool_choice
    if choice not in {"auto", "none", "required"}:
        params = replace(params, tool_choice=sent_name(choice, names, wire))
    return tuple(replace(tool, name=names[tool.name]) for tool in tools), params
