"""Thinking that still fits the lists of one client, reports about it in the client's places, and conversations held as threads."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from pal.gateway.routing import GivenRequest, value_at
from palimpsest.core.errors import WireError
from palimpsest.core.events import ForeignNoted
from palimpsest.core.items import ReasoningLost, Value
from palimpsest.core.log import Log
from palimpsest.wire.binding import (
    Binding,
    BlockFacts,
    BlockFactsCache,
    SentList,
    fitting,
    listed_bindings,
    read_list,
    reply_bindings,
    thinking_key,
    without_thinking,
)
from palimpsest.wire.json_reading import Json, is_json, parse, table_at, tables_at, text
from palimpsest.wire.reply import error_object, mismatch_facts, thinking_refused
from palimpsest.wire.wires import WIRES

ThinkingMode: TypeAlias = Literal["strip", "ask", "keep"]
"""What is done with thinking that no longer fits because of an edit: left out, left to the provider to drop, or sent all the same."""
BETA: Final = "thinking-binding-controls-2026-08-01"
DROP: Final = "drop_block"
_FORMAT: Final = "gateway_thinking"
# Types of thinking that take the setting; a request without any gets the one that these models use anyway.
_DROPPING: Final = frozenset({"adaptive", "enabled"})
_MISMATCH: Final = "anthropic-thinking-prefix-mismatch"
# Blocks of the newest replies that are kept for other conversations.
_MOST_SEEN: Final = 20_000
# Fields of a request to OpenAI that count among what its reasoning is bound to.
_COUNTED: Final = ("text", "reasoning")


class ThinkingMismatch(NamedTuple):
    """A refusal of thinking that does not fit: the path of the first block, the message of the provider, and its word for the cause."""

    path: str
    message: str
    cause: str = ""


def refusal_of(body: bytes, headers: Mapping[str, str]) -> ThinkingMismatch | None:
    """Return what a reply of status 400 says of thinking that does not fit the list; `None` if it is another error."""
    try:
        refused = thinking_refused(text(error_object(parse(body, "provider")), "message"), "provider")
    except WireError:
        return None
    path, cause = mismatch_facts(headers.get(_MISMATCH, ""))
    return None if refused is None else ThinkingMismatch(refused.path or path, refused.message, cause)


def asked_behavior(fields: Mapping[str, Raw]) -> str:
    """Return what a client wants the provider to do with thinking that does not fit: `error`, `drop_block`, or empty if it does not say."""
    thinking = value_at(fields, "thinking")
    return text(table_at(thinking, "block_binding"), "prefix_mismatch_behavior") if is_json(thinking) else ""


def dropping_field(fields: Mapping[str, Raw]) -> bytes | None:
    """Return the field `thinking` of a request with the wish that the provider drops what does not fit; `None` if it cannot be wished.

    OpenAI drops it in any case, without a report.
    """
    if "messages" not in fields:
        return None
    thinking = value_at(fields, "thinking")
    given: Json = thinking if is_json(thinking) else {"type": "adaptive"}
    if text(given, "type") not in _DROPPING:
        return None
    return msgspec.json.encode({**given, "block_binding": {**table_at(given, "block_binding"), "prefix_mismatch_behavior": DROP}})


def with_beta(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with the beta value of this setting, in one header with those of the client."""
    listed = [*headers]
    values = [value for name, value in listed if name.lower() == b"anthropic-beta"]
    rest = [(name, value) for name, value in listed if name.lower() != b"anthropic-beta"]
    return [*rest, (b"anthropic-beta", b",".join([*values, BETA.encode()]))]


def is_reporting(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the reply to a request with these headers reports what became of the thinking that was sent."""
    return any(name.lower() == b"anthropic-beta" and BETA.encode() in value for name, value in headers)


class _BoundBlock(Value, frozen=True):
    """The binding of a thinking block, whether its list was edited by us, and its tokens, `None` if they are not known."""

    prefix: str
    after: str = ""
    edited: bool = False
    tokens: int | None = None


class ThinkingRecord(Value, frozen=True):
    """What a log records about thinking: the blocks of a reply by their keys, blocks that the provider refused, or all that is left out."""

    bound: dict[str, _BoundBlock] = {}
    withdrawn: tuple[str, ...] = ()
    left_out: tuple[str, ...] | None = None

    def noted(self) -> ForeignNoted:
        """Return the event that records it."""
        return ForeignNoted(_FORMAT, foreign=Raw(msgspec.json.encode(self)))


_decoder: Final = msgspec.json.Decoder(ThinkingRecord)


def thinking_records(log: Log) -> Iterable[ThinkingRecord]:
    """Yield what a log records about thinking, on all of its branches: a block that is gone can come back."""
    for event in log.reader.run(0, log.tip):
        if isinstance(event.body, ForeignNoted) and event.body.format == _FORMAT:
            with suppress(msgspec.DecodeError):
                yield _decoder.decode(event.body.foreign)


class FittedList(NamedTuple):
    """The messages that are sent, and the keys of the thinking that no longer fits them because of us."""

    messages: Sequence[Any]
    misfits: frozenset[str] = frozenset()


class _SeenBlocks(BlockFactsCache):
    """Facts about the blocks of the newest requests, by the identity of the block, which a client's next request keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[object, BlockFacts]] = {}
        self._older: dict[int, tuple[object, BlockFacts]] = {}

    def facts(self, block: object) -> BlockFacts:
        """The facts about a block."""
        found = self._seen.get(id(block))
        if found is None or found[0] is not block:
            older = self._older.get(id(block))
            found = self._seen[id(block)] = older if older is not None and older[0] is block else (block, super().facts(block))
        return found[1]

    def end_request(self) -> None:
        """Forget the blocks that the last request did not have."""
        self._older, self._seen = self._seen, {}


class SeenThinking:
    """What the thinking of all replies is bound to, of whichever conversation: after a switch of models a list goes on in another one."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[str, _BoundBlock] = OrderedDict()
        # Conversations take in their replies in threads of their own.
        self._lock = Lock()

    def take(self, bound: Mapping[str, _BoundBlock]) -> None:
        """Take in the blocks of a reply by their keys."""
        with self._lock:
            self._blocks.update(bound)
            while len(self._blocks) > _MOST_SEEN:
                self._blocks.popitem(last=False)

    def of(self, keys: Iterable[str]) -> dict[str, _BoundBlock]:
        """Return those of the blocks with these keys that are known."""
        with self._lock:
            return {key: self._blocks[key] for key in keys if key in self._blocks}


class ListThinking:
    """What the thinking of one list is bound to. `records` are those of its log, `seen` is shared with other lists.

    Blocks whose reply was never seen are bound to where they stand in the list as the client gave it.
    """

    def __init__(self, records: Iterable[ThinkingRecord] = (), seen: SeenThinking | None = None) -> None:
        self._seen = seen or SeenThinking()
        self._bindings: dict[str, Binding] = {}
        # Those of replies to lists that were edited by us, which no other list fits.
        self._ours: set[str] = set()
        self._withdrawn: set[str] = set()
        # What the newest request was without.
        self.left_out: frozenset[str] = frozenset()
        self._tokens: dict[str, int | None] = {}
        self._cache = _SeenBlocks()
        self._given: tuple[GivenRequest, SentList] | None = None
        for record in records:
            self._take(record)

    def _take(self, record: ThinkingRecord) -> None:
        self._seen.take(record.bound)
        for key, block in record.bound.items():
            self._bindings[key] = Binding(block.prefix, block.after)
            self._tokens[key] = block.tokens
            if block.edited:
                self._ours.add(key)
        self._withdrawn.update(record.withdrawn)
        if record.left_out is not None:
            self.left_out = frozenset(record.left_out)

    def read(self, given: GivenRequest, messages: Sequence[Any]) -> SentList:
        """Return the thinking of a request with these messages."""
        if messages is not given.messages:
            return self._read(given, messages)
        if self._given is None or self._given[0] is not given:
            self._cache.end_request()
            self._given = given, self._read(given, messages)
        return self._given[1]

    def _read(self, given: GivenRequest, messages: Sequence[Any]) -> SentList:
        beside = {name: value_at(given.fields, name) for name in _COUNTED} if given.wire == "responses" else {}
        return read_list(given.wire, given.system, given.tools, messages, cache=self._cache, beside=beside)

    def learn(self, given: GivenRequest) -> ThinkingRecord | None:
        """Take it that thinking whose reply was never seen is bound to the list as it is given.

        Return what is known of such thinking from other lists; `None` if nothing is.
        """
        listed = listed_bindings(self.read(given, given.messages))
        new = [key for key in listed if key not in self._bindings]
        record = ThinkingRecord(self._seen.of(new))
        self._take(record)
        for key in new:
            self._bindings.setdefault(key, listed[key])
        return record if record.bound else None

    def fitted(self, given: GivenRequest, messages: Sequence[Any], *, keeps: bool = False) -> FittedList:
        """Return a request without the thinking that no longer fits because it is edited, or was when the thinking was made.

        What does not fit because the client itself has changed its list stays: that is for the client and the provider. With `keeps` only
        what the provider has refused is left out.
        """
        listed, sent = self.read(given, given.messages), self.read(given, messages)
        prefixes = {block.key: block.prefix for block in listed.thinking}
        caused = self._ours | self._withdrawn | {block.key for block in sent.thinking if prefixes.get(block.key) != block.prefix}
        if caused.isdisjoint(block.key for block in sent.thinking):
            return FittedList(messages)
        keys = {block.key for block in sent.thinking}
        fits = fitting(sent.thinking, {key: self._bindings[key] for key in keys - self._withdrawn if key in self._bindings})
        misfits = frozenset((keys - fits) & caused)
        # An empty key is thinking without a signature, which is not bound to anything.
        out = misfits & self._withdrawn if keeps else misfits
        return FittedList(without_thinking(messages, {*(keys - out), ""}) if out else messages, misfits)

    def expected_drops(self, given: GivenRequest, messages: Sequence[Any]) -> frozenset[str]:
        """The keys that a provider drops of these messages if it is asked to: the first block that does not fit, and every later one."""
        thinking, last = self.read(given, messages).thinking, ""
        for number, block in enumerate(thinking):
            bound = self._bindings.get(block.key)
            if bound is None or bound.prefix != block.prefix or (last and bound.after != last):
                return frozenset(each.key for each in thinking[number:])
            last = block.key
        return frozenset()

    def keys_at(self, given: GivenRequest, messages: Sequence[Any]) -> dict[str, str]:
        """The key of each thinking block of these messages, by its path."""
        return {f"messages.{each.message}.content.{each.block}": each.key for each in self.read(given, messages).thinking}

    def replied(
        self, given: GivenRequest, messages: Sequence[Any], dropped: Collection[str], content: Sequence[object], reasoning: int
    ) -> ThinkingRecord | None:
        """Take in the content of a reply to these messages, of which the provider did not read the `dropped` thinking; `None` without any.

        `reasoning` are the tokens of all thinking in the reply, 0 if they were not reported.
        """
        sent, listed = self.read(given, messages), self.read(given, given.messages)
        kept = [block.key for block in sent.thinking if block.key not in dropped]
        found = reply_bindings(sent.end, kept[-1] if kept else "", content, WIRES[given.wire].reply_role)
        if not found:
            return None
        tokens = reasoning // len(found) if reasoning else None
        is_edited = bool(dropped) or sent.end != listed.end or [*kept] != [block.key for block in listed.thinking]
        record = ThinkingRecord({key: _BoundBlock(*bound, is_edited, tokens) for key, bound in found.items()})
        self._take(record)
        return record

    def withdraw(self, keys: Iterable[str]) -> ThinkingRecord:
        """Leave these blocks out from now on, because the provider has refused the list with them and accepted it without."""
        record = ThinkingRecord(withdrawn=tuple(sorted(keys)))
        self._take(record)
        return record

    def leave_out(self, keys: Iterable[str]) -> ThinkingRecord:
        """Take it that these blocks, and no others, are left out of what is sent."""
        record = ThinkingRecord(left_out=tuple(sorted(keys)))
        self._take(record)
        return record

    def tokens_of(self, key: str) -> int | None:
        """The reported tokens of a thinking block; `None` if they are not known."""
        return self._tokens.get(key)

    def lost(self, keys: Collection[str]) -> ReasoningLost:
        """The reasoning that is lost with these blocks."""
        sizes = [self._tokens.get(key) for key in keys]
        known = [size for size in sizes if size is not None]
        return ReasoningLost(len(sizes), sum(known) if len(known) == len(sizes) else None)


def has_thinking(messages: Iterable[Any]) -> bool:
    """Whether a list has any thinking block with a signature."""
    return any(thinking_key(block) for message in messages if is_json(message) for block in tables_at(message, "content"))


_FIELD: Final = "input_transformations"
_MARK: Final = f'"{_FIELD}"'.encode()
_DATA: Final = b"data:"


class PathTranslator:
    """Translates the paths in a reply, whole or streamed, whose bytes are otherwise passed on as they are.

    `paths` are those of the client's list by those of the list that was sent; where one cannot be translated, and if there are none, the
    whole array is left out.
    """

    def __init__(self, paths: Mapping[str, str], *, is_stream: bool) -> None:
        self._paths = paths
        self._is_stream = is_stream
        self._held = bytearray()

    def passed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that may pass: whole lines of a stream; nothing of another reply before its end."""
        self._held += chunk
        end = self._held.rfind(b"\n") + 1 if self._is_stream else 0
        lines = bytes(self._held[:end])
        del self._held[:end]
        return b"".join(map(self._line, lines.splitlines(keepends=True))) if _MARK in lines else lines

    def rest(self) -> bytes:
        """Return what was held back."""
        held = bytes(self._held)
        self._held.clear()
        return self._line(held) if self._is_stream or _MARK not in held else self._translated(held)

    def _line(self, line: bytes) -> bytes:
        if _MARK not in line or not line.startswith(_DATA):
            return line
        data = line.removeprefix(_DATA)
        return _DATA + b" " + self._translated(data.strip()) + data[len(data.rstrip()) :]

    def _translated(self, data: bytes) -> bytes:
        try:
            value = parse(data, "provider")
        except WireError:
            return data
        message = table_at(value, "message")
        return msgspec.json.encode({**self._without(value), **({"message": self._without(message)} if message else {})})

    def _without(self, table: Json) -> Json:
        if _FIELD not in table:
            return table
        found = tables_at(table, _FIELD)
        translated = [{**each, "path": self._paths.get(text(each, "path"))} for each in found if is_json(each)]
        rest = {key: value for key, value in table.items() if key != _FIELD}
        return {**rest, _FIELD: translated} if self._paths and all(each["path"] for each in translated) else rest


ThreadMode: TypeAlias = Literal["refuse", "pass"]
"""Whether the client is made to send whole lists, or its threads pass unchanged and unedited."""
THREADS_BETA: Final = "message-threads-2026-08-12"
COUNTING_PATH: Final = "/v1/messages/count_tokens"
_BETA_HEADER: Final = b"anthropic-beta"
_THREADS_FIELD: Final = "thread"
# A client that gets this error sends the turn again with all messages, and uses no thread from then on.
REFUSAL: Final[Mapping[str, object]] = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": f"capability_rejected: beta_header:{THREADS_BETA}; "
        "this gateway holds no conversation. Resend the turn with all messages.",
        "details": {"error_code": "thread_unsupported_request"},
    },
}


class Thread(NamedTuple):
    """What a request says of its thread; `previous` is the id of the reply after which a continuation goes on.

    `unknown` is a field that is not understood, about which only the provider can say anything.
    """

    kind: Literal["none", "create", "continue", "unknown"] = "none"
    previous: str = ""


def thread_of(fields: Mapping[str, Raw]) -> Thread:
    """Return the thread of a request."""
    given = value_at(fields, _THREADS_FIELD)
    if given is None:
        return Thread("unknown" if bytes(fields.get(_THREADS_FIELD, b"null")) != b"null" else "none")
    kind = text(given, "type") if is_json(given) else ""
    if kind == "continue" and is_json(given):
        return Thread("continue", text(given, "previous_message_id"))
    return Thread("create" if kind == "create" else "unknown")


def without_thread(fields: Mapping[str, Raw]) -> bytes:
    """Return a request without its thread; all other values keep their bytes."""
    return msgspec.json.encode({name: value for name, value in fields.items() if name != _THREADS_FIELD})


def without_beta(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request without the beta value of threads."""
    kept: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name.lower() != _BETA_HEADER:
            kept.append((name, value))
        elif left := [each for each in value.split(b",") if each.strip() != THREADS_BETA.encode()]:
            kept.append((name, b",".join(left).strip()))
    return kept
