"""The thinking that still fits a request, by what each block is bound to, and compactions by a provider as folds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.items import EMPTY_MAPPING, Fold, Item, Keep, Opaque
from palimpsest.wire.encoding import opaque_type
from palimpsest.wire.json_reading import Json, is_json, parse, table_at, tables_at, text
from palimpsest.wire.rules import RESPONSES_ITEMS

# Three use it: our own encoder, lists that we follow, and the gateway. Each reads the list that it is about to send (`read_messages`),
# looks up what its thinking is bound to, and leaves out the blocks that are not in `fitting`. The key of a thinking block is a digest of
# its signature. Bindings come from replies (`reply_bindings`); blocks whose reply was never seen are bound to where they stand in the list
# as their owner wrote it (`listed_bindings`).
#
# A prefix is a rolling digest: system prompt and tools, then block by block. Values count and not bytes. Cache breakpoints, thinking, the
# addresses of media, and deferred tools before something refers to them are left out of it.


_canonical: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode
_DIGEST_BYTES: Final = 16
_CACHE: Final = "cache_control"
_SEALED: Final = "encrypted_content"
_REASONING: Final = "reasoning"
_MESSAGE: Final = "message"
# The items of Responses that belong to the reasoning before them.
_REASONED: Final = frozenset({"function_call", "custom_tool_call", _MESSAGE})
# What only a reply of Responses says of an item, which its owner need not send back.
_OUTPUT_ONLY: Final = frozenset({"id", "status", "annotations", "logprobs"})
_SECRETS: Final[Mapping[str, str]] = {"thinking": "signature", "redacted_thinking": "data", _REASONING: _SEALED}


ANY_PREFIX: Final = "*"
"""The prefix of thinking that a model made which binds it to nothing; the block before it counts all the same."""


class Binding(NamedTuple):
    """What a thinking block is bound to: the digest of the list before it, and the key of the thinking block before it, if any."""

    prefix: str
    after: str = ""


class SentThinking(NamedTuple):
    """A thinking block in a list: its key, its place (message and block, both from 0), and the digest of the list before it.

    `block` is -1 where the message itself is the thinking, as on Responses. `summarised` is the digest of the list before it with what its
    compaction block stands for; empty without one, and where that is not known.
    """

    key: str
    message: int
    block: int
    prefix: str
    summarised: str = ""


class SentList(NamedTuple):
    """The thinking of a list, in order, and the digest of the whole list: the prefix of the first block of its reply."""

    thinking: tuple[SentThinking, ...]
    end: str


def fitting(thinking: Sequence[SentThinking], bindings: Mapping[str, Binding]) -> frozenset[str]:
    """The keys of the thinking blocks that the provider accepts, of a list that holds all of them.

    A block fits if the list before it is what it is bound to. Those that are sent must be an unbroken run: each follows the block that it
    followed when it was made. Of several runs the one with the newest block is kept. A block without a binding never fits.
    """
    places: dict[str, int] = {}
    for number, block in enumerate(thinking):
        bound = bindings.get(block.key)
        if bound is not None and bound.prefix in (ANY_PREFIX, block.prefix, block.summarised or block.prefix):
            places[block.key] = number
    kept: list[str] = []
    key = max(places, key=places.__getitem__, default="")
    while key:
        kept.append(key)
        before = bindings[key].after
        # A damaged record must not lead round in a circle.
        key = before if places.get(before, len(thinking)) < places[key] else ""
    return frozenset(kept)


def listed_bindings(sent: SentList) -> dict[str, Binding]:
    """The bindings of thinking whose replies were never seen: each block is bound to where it stands in this list."""
    before, found = "", dict[str, Binding]()
    for block in sent.thinking:
        found.setdefault(block.key, Binding(block.prefix, before))
        before = block.key
    return found


def reply_bindings(end: str, after: str, content: Iterable[object], role: str = "assistant") -> dict[str, Binding]:
    """The bindings of the thinking in a reply to a list that ended with digest `end` and whose last thinking sent was `after`.

    `content` are the blocks of the reply as they will be sent back: JSON objects or their encoded bytes (`Raw`). The output of Responses
    has no `role`. With `ANY_PREFIX` as its end, the blocks are bound to no prefix.
    """
    rolling = _Rolling(end, role and "user")
    bindings: dict[str, Binding] = {}
    for block in content:
        facts = _block_facts(block)
        if facts.is_compaction:
            rolling.begin_at(facts, role, _NO_ENDS)
        elif facts.key:
            bindings[facts.key] = Binding(ANY_PREFIX if end == ANY_PREFIX else rolling.state, after)
            after = facts.key
        elif not facts.is_thinking:
            rolling.add(facts.digest, role)
    return bindings


def without_thinking(messages: Sequence[Any], fits: Iterable[str] = ()) -> list[Any]:
    """The messages of a list with no thinking but the blocks whose keys are given; all others are the same objects.

    On Anthropic Messages a message that has no other block goes too, and its neighbours become one message, because roles alternate. On
    Responses what belongs to reasoning that goes loses its id: with it, the provider asks for the reasoning.
    """
    kept = frozenset(fits)
    if any(text(item, "type") == _REASONING for item in messages if is_json(item)):
        return _without_reasoning(messages, kept)
    sent, gap = list[Any](), False
    for message in messages:
        content = message.get("content") if is_json(message) else None
        blocks = [block for block in content if not _is_left_out(block, kept)] if isinstance(content, list) else content
        if content and blocks == []:
            gap = True
            continue
        if gap and sent and text(sent[-1], "role") == text(message, "role"):
            sent[-1] = {**sent[-1], "content": [*_blocks_of_message(sent[-1]["content"]), *_blocks_of_message(blocks)]}
        else:
            sent.append(message if blocks == content else {**message, "content": blocks})
        gap = False
    return sent


def _without_reasoning(items: Sequence[Any], kept: frozenset[str]) -> list[Any]:
    sent, is_detached = list[Any](), False
    for item in items:
        kind = text(item, "type") if is_json(item) else ""
        if kind == _REASONING:
            is_detached = _is_left_out(item, kept)
            if not is_detached:
                sent.append(item)
            continue
        is_detached = is_detached and kind in _REASONED
        sent.append({key: value for key, value in item.items() if key != "id"} if is_detached and "id" in item else item)
        # Calls side by side belong to the same reasoning, a message ends it.
        is_detached = is_detached and kind != _MESSAGE
    return sent


def _is_left_out(block: object, kept: frozenset[str]) -> bool:
    return is_json(block) and text(block, "type") in _SECRETS and thinking_key(block) not in kept


def thinking_key(block: Json) -> str:
    """The key of a thinking block: a digest of its signature or encrypted content. Empty for other blocks, and for thinking without one."""
    secret = text(block, _SECRETS.get(text(block, "type"), ""))
    return signature_key(secret) if secret else ""


def compaction_key(block: Json) -> str:
    """The key of a compaction block: a digest of its signature; empty for one without."""
    signature = text(block, "signature")
    return signature_key(signature) if signature else ""


def signature_key(signature: str) -> str:
    """The key of the thinking block that has this signature or encrypted content."""
    return _digest(signature.encode())


class BlockFacts(NamedTuple):
    """What the digest needs of one block: its own digest, the tools that it refers to, and whether it is thinking, with its key.

    Thinking without a signature has no key: it is not bound to anything, and not part of a prefix either. A compaction has the key of its
    signature.
    """

    digest: bytes
    loads: tuple[str, ...] = ()
    is_compaction: bool = False
    is_thinking: bool = False
    key: str = ""


class BlockFactsCache:
    """Facts about the encoded blocks of the last list, so that a block of successive requests is decoded once."""

    def __init__(self) -> None:
        self._before: dict[bytes, BlockFacts] = {}
        self._now: dict[bytes, BlockFacts] = {}

    def facts(self, block: object) -> BlockFacts:
        """The facts about a block."""
        if not isinstance(block, Raw):
            return _block_facts(block)
        data = bytes(block)
        found = self._now.get(data)
        if found is None:
            found = self._now[data] = self._before.get(data) or _block_facts(block)
        return found

    def end_list(self) -> None:
        """Forget the blocks that the list which ends here does not have."""
        self._before, self._now = self._now, {}


class _Rolling:
    """The digest of a list as far as it was read. Neighbours of one role count as one message, as they do for the provider.

    A state is the digest of system prompt and tools, a point, and the digest of what follows them. Behind a compaction block, `summarised`
    is the state that the list would have with what the block stands for.
    """

    def __init__(self, state: str, role: str = "") -> None:
        self.state = state
        self.summarised: _Rolling | None = None
        self._role = role

    @property
    def head(self) -> str:
        return self.state.partition(".")[0]

    def add(self, digest: bytes, role: str = "") -> None:
        opening = b"" if role == self._role else role.encode() + b"\0"
        self.state, self._role = f"{self.head}.{_digest(self.state.encode() + opening + digest)}", role
        if self.summarised is not None:
            self.summarised.add(digest, role)

    def begin_at(self, compaction: BlockFacts, role: str, ends: Mapping[str, str]) -> None:
        """Go on behind a compaction block, from which the prefix begins.

        Thinking that was kept behind it fits too, if system prompt and tools are still those of the list that it summarises.
        """
        self.state, self._role, self.summarised = self.head, "", None
        self.add(compaction.digest, role)
        end = ends.get(compaction.key, "")
        if end and end.partition(".")[0] == self.head:
            # A list that is sent ends with a message of the user.
            self.summarised = _Rolling(end, "user")


_NO_ENDS: Final[Mapping[str, str]] = MappingProxyType({})


def read_messages(
    system: object, tools: object, messages: object, cache: BlockFactsCache | None = None, ends: Mapping[str, str] = _NO_ENDS
) -> SentList:
    """Read a list of Anthropic Messages as it would be sent: JSON values, or blocks as encoded bytes (`Raw`), which a cache helps.

    `ends` are the ends of summarised lists, by the keys of their compaction blocks.
    """
    cache = cache or BlockFactsCache()
    loaded, deferred = _tools(tools, cache)
    head = _digest(b"".join([cache.facts(block).digest for block in _blocks_of_message(system)]) + b"\0" + b"".join(loaded))
    rolling = _Rolling(head)
    thinking: list[SentThinking] = []
    for number, message in enumerate(messages if isinstance(messages, list | tuple) else ()):
        role, content = _message_parts(message)
        for at, block in enumerate(_blocks_of_message(content)):
            facts = cache.facts(block)
            if facts.is_thinking:
                summarised = "" if rolling.summarised is None else rolling.summarised.state
                thinking += [SentThinking(facts.key, number, at, rolling.state, summarised)] if facts.key else []
                continue
            if facts.is_compaction:
                # The provider reads nothing of the list before it.
                rolling.begin_at(facts, role, ends)
                continue
            rolling.add(facts.digest, role)
            for name in facts.loads:
                if name in deferred:
                    rolling.add(deferred.pop(name), role)
    cache.end_list()
    return SentList(tuple(thinking), rolling.state)


def read_list(
    wire: str, system: object, tools: object, messages: object, *, cache: BlockFactsCache | None = None, beside: Json = EMPTY_MAPPING
) -> SentList:
    """Read a list of either wire; `beside` are other fields of the request, some of which count on Responses."""
    if wire == "responses":
        return read_input({**beside, "instructions": system, "tools": tools}, messages, cache)
    return read_messages(system, tools, messages, cache)


def read_input(fields: Json, items: object, cache: BlockFactsCache | None = None) -> SentList:
    """Read a list of Responses; `fields` are those of the request, some of which count there: instructions, tools, format and effort."""
    cache = cache or BlockFactsCache()
    counted = (fields.get("instructions"), fields.get("tools"), table_at(fields, "text").get("format"))
    rolling = _Rolling(_digest(_canonical([*counted, table_at(fields, "reasoning").get("effort")])))
    thinking: list[SentThinking] = []
    for number, item in enumerate(items if isinstance(items, list | tuple) else ()):
        facts = cache.facts(item)
        if facts.is_compaction:
            rolling.begin_at(facts, "", _NO_ENDS)
        elif not facts.is_thinking:
            rolling.add(facts.digest)
        elif facts.key:
            thinking.append(SentThinking(facts.key, number, -1, rolling.state))
    cache.end_list()
    return SentList(tuple(thinking), rolling.state)


class _RawMessage(Struct):
    role: str
    content: list[Raw] | str


class _RawMessages(Struct):
    messages: list[_RawMessage]
    system: list[Raw] | str = ""
    tools: list[Raw] = []


class _RawInput(Struct):
    input: list[Raw]
    instructions: str | None = None
    tools: list[Raw] = []
    text: Raw = Raw(b"{}")
    reasoning: Raw = Raw(b"{}")


_messages_decoder: Final = msgspec.json.Decoder(_RawMessages)
_input_decoder: Final = msgspec.json.Decoder(_RawInput)


def read_body(body: bytes, wire: str, cache: BlockFactsCache, ends: Mapping[str, str] = _NO_ENDS) -> SentList:
    """Read the body of a request of ours to Anthropic Messages or Responses; `ends` as for `read_messages`."""
    if wire == "responses":
        raw = _input_decoder.decode(body)
        fields = {"instructions": raw.instructions, "tools": raw.tools, "text": _decode(raw.text), "reasoning": _decode(raw.reasoning)}
        return read_input(fields, raw.input, cache)
    request = _messages_decoder.decode(body)
    return read_messages(request.system, request.tools, request.messages, cache, ends)


def _tools(tools: object, cache: BlockFactsCache) -> tuple[list[bytes], dict[str, bytes]]:
    """The digests of the loaded tools in their order, and of the deferred ones by name."""
    loaded: list[bytes] = []
    deferred: dict[str, bytes] = {}
    for tool in tools if isinstance(tools, list | tuple) else ():
        digest = cache.facts(tool).digest
        value = _decode(tool) if isinstance(tool, Raw) and b"defer_loading" in bytes(tool) else tool
        if is_json(value) and value.get("defer_loading") is True:
            deferred[text(value, "name")] = digest
        else:
            loaded.append(digest)
    return loaded, deferred


def _message_parts(message: object) -> tuple[str, object]:
    if isinstance(message, _RawMessage):
        return message.role, message.content
    return (text(message, "role"), message.get("content")) if is_json(message) else ("", message)


def _blocks_of_message(content: object) -> Sequence[object]:
    """The blocks of a content; a string is the same as one text block, and an empty one as none."""
    if isinstance(content, list | tuple):
        return content
    if content is None or content == "":
        return ()
    return ({"type": "text", "text": content},) if isinstance(content, str) else (content,)


def _block_facts(block: object) -> BlockFacts:
    value = _decode(block) if isinstance(block, Raw) else block
    if not is_json(value):
        return BlockFacts(_hash(_canonical(value)))
    kind = text(value, "type")
    if kind in _SECRETS:
        return BlockFacts(b"", is_thinking=True, key=thinking_key(value))
    is_sealed_item = _SEALED in value
    if is_sealed_item if kind == "compaction" else kind in RESPONSES_ITEMS or (not kind and "role" in value):
        return BlockFacts(_hash(_canonical(_plain_item(value))), is_compaction=kind in COMPACTION_TYPES and is_sealed_item)
    plain = _plain_block(value)
    if isinstance(content := plain.get("content"), list) and any(is_json(part) for part in content):
        plain = {**plain, "content": [_plain_block(part) if is_json(part) else part for part in content]}
    loads = tuple(_references(value)) if kind != "tool_use" else ()
    if kind == "compaction" and value.get("content") is not None:
        return BlockFacts(_hash(_canonical(plain)), is_compaction=True, key=compaction_key(value))
    return BlockFacts(_hash(_canonical(plain)), loads)


def _plain_item(item: Json) -> Json:
    """An item of Responses by value: without what only a reply says, and a text alone as one part."""
    plain = {key: value for key, value in item.items() if key not in _OUTPUT_ONLY}
    plain.setdefault("type", _MESSAGE)
    content = plain.get("content")
    if isinstance(content, str):
        content = [{"type": "output_text" if text(item, "role") == "assistant" else "input_text", "text": content}]
    if isinstance(content, list):
        parts = ({key: value for key, value in part.items() if key not in _OUTPUT_ONLY} if is_json(part) else part for part in content)
        plain["content"] = [*parts]
    return plain


def _plain_block(block: Json) -> Json:
    """A block without its cache breakpoint and without the address of its media."""
    source = table_at(block, "source")
    has_address = text(source, "type") == "url" and "url" in source
    if _CACHE not in block and not has_address:
        return block
    bare = {key: value for key, value in block.items() if key != _CACHE}
    return {**bare, "source": {key: value for key, value in source.items() if key != "url"}} if has_address else bare


def _references(block: Json) -> Iterator[str]:
    """The names of the deferred tools that a block refers to, at whatever depth the provider puts them."""
    match text(block, "type"):
        case "tool_reference":
            yield text(block, "tool_name") or text(block, "name")
        case "tool_addition":
            yield from _references(table_at(block, "tool"))
        case "tool_result":
            for part in tables_at(block, "content"):
                yield from _references(part)
        case "tool_search_tool_result":
            for part in tables_at(table_at(block, "content"), "tool_references"):
                yield from _references(part)
        case _:
            return


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


COMPACTION_TYPES: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})
_NO_PINS: Final[frozenset[str]] = frozenset()


def is_compaction(content: object) -> bool:
    """Whether a content stands for what came before it; a compaction without content has failed and stands for nothing."""
    if not isinstance(content, Opaque) or opaque_type(content) not in COMPACTION_TYPES:
        return False
    block = parse(content.data, content.provider)
    return bool(text(block, "content") or text(block, "encrypted_content"))


def is_sealed(content: object) -> bool:
    """Whether a content is a compaction that only the provider's models can read. Its text fallback is for others, not what they read."""
    return is_compaction(content) and isinstance(content, Opaque) and not text(parse(content.data, content.provider), "content")


def fold_into_block(items: Sequence[Item], block: int, pins: AbstractSet[str] = _NO_PINS) -> Fold | None:
    """The fold of everything before the compaction at place `block`; pinned items stay, behind it. `None` if there is nothing before it.

    It spans the whole view, so that what is added to a fold comes behind the reply and not into it.
    """
    if not block:
        return None
    kept = (items[block], *(item for item in items[:block] if item.id in pins), *items[block + 1 :])
    return Fold(items[0].id, items[-1].id, tuple(Keep(item.id) for item in kept))
