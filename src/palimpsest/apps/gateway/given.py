"""A request as a client gave it: its fields and messages as their very bytes, and the same request with other messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.audit.pricing.bill import Block, Breakpoint
from palimpsest.audit.pricing.two_bills import BilledRequest
from palimpsest.core.errors import BadInput
from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate_bytes, family_of
from palimpsest.mirror.detecting import is_whole_list
from palimpsest.mirror.plain import BREAKPOINT, digest_of_message
from palimpsest.wire.binding import thinking_key
from palimpsest.wire.json_reading import is_json, tables_at, text
from palimpsest.wire.models.cards import WireName

# Where a request of each wire has its messages and its system prompt.
_FIELDS: Final[dict[WireName, tuple[str, str]]] = {
    "anthropic": ("messages", "system"),
    "responses": ("input", "instructions"),
    "chat": ("messages", ""),
}
# Fields that name a list which the provider holds.
_HELD: Final = ("thread", "previous_response_id", "conversation")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode
_MARK: Final = BREAKPOINT.encode()
# Blocks that a provider refuses to set a breakpoint at.
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})


class GivenRequest(NamedTuple):
    """A request: its bytes, its fields, and each message as bytes and as a value. `system` and `tools` are values.

    `breakpoints` is the number of its cache breakpoints, or more if a text speaks of them.
    """

    wire: WireName
    body: bytes
    fields: Mapping[str, Raw]
    raw_messages: Sequence[bytes]
    messages: list[Any]
    system: Any
    tools: list[Any]
    breakpoints: int

    def body_with(self, messages: Sequence[Any], lifetime: str = "", more: Mapping[str, bytes] = EMPTY_MAPPING) -> bytes:
        """Return the bytes with other messages, and another lifetime of all cache entries unless it is empty.

        All else but the values of fields in `more`, and the messages that are the client's own, stay byte for byte.
        """
        if messages is self.messages and not lifetime and not more:
            return self.body
        given = {id(message): raw for message, raw in zip(self.messages, self.raw_messages, strict=True)}
        listed = b",".join(_relived(given.get(id(message)) or _encode(message), lifetime) for message in messages)
        field = _FIELDS[self.wire][0]
        fields = {key: _relived(bytes(raw), lifetime) for key, raw in self.fields.items()} | {field: b"[" + listed + b"]", **more}
        return b"{" + b",".join(_encode(key) + b":" + value for key, value in fields.items()) + b"}"


def _relived(raw: bytes, lifetime: str) -> bytes:
    """A part of a request with another lifetime at its breakpoints; the same bytes if it has none or the lifetime is empty."""
    if not lifetime or _MARK not in raw:
        return raw
    return _encode(_with_lifetime(msgspec.json.decode(raw), lifetime))


def _with_lifetime(value: Any, lifetime: str) -> Any:
    if isinstance(value, list):
        return [_with_lifetime(entry, lifetime) for entry in value]
    if not is_json(value):
        return value
    # Only what a breakpoint can be set at is looked at, so that a text or an argument of that name stays as it is.
    changed = {key: _with_lifetime(entry, lifetime) if key == "content" else entry for key, entry in value.items()}
    mark = changed.get(BREAKPOINT)
    if is_json(mark):
        changed[BREAKPOINT] = {**{key: entry for key, entry in mark.items() if key != "ttl"}, **({"ttl": "1h"} if lifetime == "1h" else {})}
    return changed


def with_breakpoint(message: Any, lifetime: str, at: int = -1) -> Any | None:
    """Return a message with a cache breakpoint at a block, by default its last; `None` if it has one there already or cannot have one."""
    content = message.get("content") if is_json(message) else None
    if not isinstance(content, list) or not -len(content) <= at < len(content):
        return None
    block = content[at]
    if not is_json(block) or BREAKPOINT in block or text(block, "type") in _UNMARKABLE:
        return None
    mark = {"type": "ephemeral", **({"ttl": "1h"} if lifetime == "1h" else {})}
    marked = list(content)
    marked[at] = {**block, BREAKPOINT: mark}
    return {**message, "content": marked}


class RequestReader:
    """Reads the successive requests of one conversation; a message with the same bytes as before is the same object as before."""

    def __init__(self) -> None:
        self._raw: list[bytes] = []
        self._messages: list[Any] = []
        self._values: dict[str, tuple[bytes, Any]] = {}

    def read(self, wire: WireName, body: bytes, fields: Mapping[str, Raw]) -> GivenRequest:
        """Return the request of these fields. Raises `BadInput` if its messages are not a list or not JSON."""
        field, system = _FIELDS[wire]
        try:
            listed = _decode_list(fields[field])
            raw, messages = [], []
            for index, entry in enumerate(listed):
                data = bytes(entry)
                known = index < len(self._raw) and self._raw[index] == data
                raw.append(self._raw[index] if known else data)
                messages.append(self._messages[index] if known else msgspec.json.decode(data))
            prompt, tools = self._value(fields, system), self._value(fields, "tools") or []
            read = GivenRequest(wire, body, fields, raw, messages, prompt, tools, body.count(_MARK))
        except (KeyError, msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"the messages of a request cannot be read ({error})", where=field) from error
        self._raw, self._messages = raw, list(messages)
        return read

    def _value(self, fields: Mapping[str, Raw], name: str) -> Any:
        if not name or name not in fields:
            return None
        data = bytes(fields[name])
        known = self._values.get(name)
        if known is None or known[0] != data:
            known = self._values[name] = (data, msgspec.json.decode(data))
        return known[1]


def fields_of(body: bytes) -> dict[str, Raw] | None:
    """Return the fields of a request, each as its bytes; `None` if the body is no object."""
    try:
        return _decode_fields(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def is_followed(wire: WireName, fields: Mapping[str, Raw]) -> bool:
    """Whether a request has its whole conversation as a list; one that goes on from what the provider holds has not."""
    listed = fields.get(_FIELDS[wire][0])
    if listed is None or bytes(memoryview(listed)[:1]) != b"[":
        return False
    held = {name: value_at(fields, name) for name in _HELD if name in fields}
    # Most lists have no references, and are long.
    messages = value_at(fields, _FIELDS[wire][0]) if b"item_reference" in bytes(listed) else ()
    return is_whole_list(held, messages if isinstance(messages, list) else ())


def value_at(fields: Mapping[str, Raw], name: str) -> object:
    """Return the value of a field; `None` if it is missing or cannot be read."""
    try:
        return msgspec.json.decode(fields[name]) if name in fields else None
    except (msgspec.DecodeError, RecursionError):
        return None


def text_at(fields: Mapping[str, Raw], name: str) -> str:
    """Return a field that is a text; empty if it is missing or something else."""
    value = value_at(fields, name)
    return value if isinstance(value, str) else ""


class _Part(NamedTuple):
    """A message or another part of a request as blocks, and its breakpoints: the number of the block, and whether it is for an hour."""

    blocks: tuple[Block, ...]
    marks: tuple[Breakpoint, ...]


class RequestBlocks:
    """The requests of one conversation as blocks of a bill: each tool, then the parts of the system prompt, then those of each message.

    What a block says is its digest, whatever breakpoints are in it; each is computed once. Sizes are estimates.
    """

    def __init__(self, model: str, thinking_tokens: Callable[[str], int | None] = lambda _key: None) -> None:
        self._factor = FAMILY_FACTORS[family_of(model)]
        # The reported tokens of a thinking block by its key: a signature says nothing of them.
        self._thinking_tokens = thinking_tokens
        # By the identity of the object, which is kept with it so that no other object can get the same one.
        self._known: dict[int, tuple[Any, _Part]] = {}

    def of(self, request: GivenRequest, messages: Sequence[Any], lifetime: str = "") -> BilledRequest:
        """Return the blocks of a request with these messages, and its breakpoints with this lifetime; empty is that of the client."""
        blocks: list[Block] = []
        breakpoints: list[Breakpoint] = []
        starts: list[int] = []
        heads = self._heads(request)
        for number, value in enumerate((*heads, *messages), -len(heads)):
            known = self._known.get(id(value))
            if known is None or known[0] is not value:
                known = self._known[id(value)] = (value, self._part(value, request.wire))
            part = known[1]
            if number >= 0:
                starts.append(len(blocks))
            if part.marks:
                breakpoints += [Breakpoint(len(blocks) + mark.at, lifetime == "1h" if lifetime else mark.long) for mark in part.marks]
            blocks += part.blocks
        if len(self._known) > 2 * (len(heads) + len(messages)) + 64:
            self._known = {id(value): self._known[id(value)] for value in (*heads, *messages)}
        return BilledRequest(blocks, breakpoints, starts, len(request.tools))

    def _heads(self, request: GivenRequest) -> list[Any]:
        system = request.system
        return [*request.tools, *(system if isinstance(system, list) else [system] if system else [])]

    def _part(self, value: Any, wire: WireName) -> _Part:
        content = value.get("content") if is_json(value) and wire == "anthropic" else None
        if not isinstance(content, list) or not content:
            plain = value if is_json(value) else {"content": value}
            found = lifetime_of(plain)
            return _Part(((digest_of_message(plain), self._size(value)),), (Breakpoint(0, found == "1h"),) if found else ())
        role = value.get("role")
        blocks = [(digest_of_message({"role": role, "content": [block]}), self._size(block)) for block in content]
        marks = [(at, mark) for at, block in enumerate(content) if is_json(block) and is_json(mark := block.get(BREAKPOINT))]
        return _Part(tuple(blocks), tuple(Breakpoint(at, text(mark, "ttl") == "1h") for at, mark in marks))

    def _size(self, value: Any) -> int:
        if is_json(value) and text(value, "type") in _UNMARKABLE and (tokens := self._thinking_tokens(thinking_key(value))):
            return tokens
        return max(1, round(self._factor * estimate_bytes(_encode(value))))


def lifetime_of(value: Any) -> str:
    """Return the lifetime of the last breakpoint in a message, a part of the system prompt or the tools; empty if there is none."""
    if not is_json(value):
        return ""
    entries = [value, *tables_at(value, "content"), *tables_at(value, "tools")]
    marks = [mark for entry in entries if is_json(mark := entry.get(BREAKPOINT))]
    return text(marks[-1], "ttl") or "5m" if marks else ""
