"""Decodes Anthropic messages into contents, whole or block by block."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.errors import WireError
from palimpsest.core.events import AppliedEdit, InputTransformation, ModelReplied, Usage
from palimpsest.core.events.calls import NULL, CacheDiagnosis, UsageBeside
from palimpsest.core.events.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Content, Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.failures import error_object, provider_error
from palimpsest.wire.json_reading import Json, dump, is_json, number, parse, shorten, table_at, tables_at, text
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.reply import reply_of, text_fallback, tier_of

_ARGS = "partial_json"
_OF_DELTA = frozenset({"type", "delta", "usage"})
_FALLBACK = "fallback_message"
_MESSAGES = ("message", _FALLBACK)
_TRANSFORMED: Final = "input_transformations"
_CHANGES: Final = frozenset({"model_changed", "system_changed", "tools_changed", "messages_changed"})
_MISSED: Final = "cache_missed_input_tokens"
# The most that is kept of what a provider says of its input: entries, and characters of a word.
_MOST_TRANSFORMATIONS: Final = 1_000
_LONGEST_WORD: Final = 100


def decode_message(message: Json, card: ModelCard) -> ModelReplied:
    """Decode a message that was not streamed. Raises `WireError` if it is none."""
    if error := error_object(message):
        raise provider_error(error, card.provider)
    if text(message, "type") != "message" and "content" not in message:
        raise WireError("the answer is not a message", where=card.provider)
    return _reply_of_message(message, [(block, "") for block in tables_at(message, "content")], card)


def _reply_of_message(message: Json, blocks: Sequence[tuple[Json, str]], card: ModelCard) -> ModelReplied:
    """The reply that a message with these blocks is; one that a fallback gave is a reply of that model."""
    usage, beside, fallback = split_usage(table_at(message, "usage"), text(message, "model"), card.name)
    card = replace(card, name=fallback) if fallback else card
    reply = reply_of(list(decode_blocks(blocks, card)), text(message, "stop_reason"), usage, card, text(message, "id"))
    details = table_at(message, "stop_details")
    reply = replace(
        reply, beside=beside, tier=tier_of(table_at(message, "usage")), stop_details=Raw(dump(details).encode()) if details else NULL
    )
    return _with_transformations(replace(reply, applied_edits=applied_edits(message), diagnosis=_diagnosis(message)), message)


def _diagnosis(message: Json) -> CacheDiagnosis | None:
    """What a message says of the cache; `null` says that nothing differed, or that nothing was asked."""
    if "diagnostics" not in message:
        return None
    if message["diagnostics"] is None:
        return CacheDiagnosis("same")
    reason = table_at(table_at(message, "diagnostics"), "cache_miss_reason")
    word = text(reason, "type")[:_LONGEST_WORD]
    if word not in _CHANGES:
        return CacheDiagnosis("unknown", word)
    return CacheDiagnosis("changed", word, max(0, number(reason, _MISSED)) if _MISSED in reason else None)


def _with_transformations(reply: ModelReplied, message: Json) -> ModelReplied:
    """The reply with what the provider did to the blocks of its request."""
    if not (listed := tables_at(message, _TRANSFORMED)):
        return reply
    words = ([text(each, name)[:_LONGEST_WORD] for name in ("type", "path", "reason")] for each in listed)
    return replace(reply, transformations=tuple(InputTransformation(*each) for each in islice(words, _MOST_TRANSFORMATIONS)))


def split_usage(usage: Json, model: str = "", asked: str = "") -> tuple[Usage, tuple[UsageBeside, ...], str]:
    """The usage of the last message of a reply, what was billed beside it, and the model if it was a fallback.

    `model` is the one that the reply names, for a fallback whose entry names none; what stands before a fallback is of the `asked` one.
    """
    entries = tables_at(usage, "iterations")
    last = next((index for index in reversed(range(len(entries))) if text(entries[index], "type") in _MESSAGES), None)
    whole = decode_usage(usage)
    if not entries:
        return whole, (), ""
    is_fallback = last is not None and text(entries[last], "type") == _FALLBACK
    before = asked if is_fallback else ""
    others = [entry for index, entry in enumerate(entries) if index != last and not _is_free(entry)]
    beside = tuple(UsageBeside(decode_usage(entry), text(entry, "model") or before) for entry in others)
    if last is None:
        return whole, beside, ""
    shown = decode_usage(entries[last])
    fallback = (text(entries[last], "model") or model) if is_fallback else ""
    return replace(shown, reasoning=min(shown.output, whole.reasoning)), beside, fallback


def _is_free(entry: Json) -> bool:
    """Whether an entry says that nothing was billed, which is more than saying nothing."""
    return (
        all(type(entry.get(name)) is int and entry[name] == 0 for name in ("input_tokens", "output_tokens"))
        and not decode_usage(entry).total
    )


def decode_blocks(blocks: Sequence[tuple[Json, str]], card: ModelCard) -> Iterator[Content]:
    """The contents of the blocks of a reply, each with its streamed input.

    An empty text yields nothing, unless it stands between two thinking blocks: the second may be bound to it.
    """
    kinds = [text(block, "type") for block, _ in blocks]
    for index, (block, args) in enumerate(blocks):
        found = list(decode_block(block, card, args))
        if not found and kinds[index - 1 : index + 2] == ["thinking", "text", "thinking"]:
            found = [Text("", role="assistant")]
        yield from found


def decode_block(block: Json, card: ModelCard, args: str = "") -> Iterator[Content]:
    """The content of a block; `args` is its streamed input. An empty text yields nothing."""
    match text(block, "type"):
        case "text":
            if shown_text := text(block, "text"):
                yield Text(shown_text, role="assistant")
        case "thinking":
            thinking, signed = text(block, "thinking"), text(block, "signature")
            signature = Signature(card.provider, card.name, signed) if signed else None
            if thinking or signature:
                yield Thinking(thinking, signature, form="whole" if thinking else "sealed")
        case "tool_use":
            caller = dump(block["caller"]) if is_json(block.get("caller")) else ""
            yield ToolCall(text(block, "id"), text(block, "name"), args or dump(block.get("input") or {}), caller=caller)
        case _:
            whole = {**block, "input": _input(args)} if args else block
            yield Opaque(card.provider, card.name, dump(whole), text_fallback(whole))


def _input(args: str) -> object:
    try:
        return parse(args, "input")
    except WireError:
        # The stream was cut inside the input, so that its text is kept.
        return args


_MOST_EDITS = 20


def applied_edits(message: Json) -> tuple[AppliedEdit, ...]:
    """What a message reports under `context_management`: the edits that the server made before the model read the list."""
    return tuple(
        AppliedEdit(
            shorten(kind),
            *(number(edit, name) if isinstance(edit.get(name), int) else None for name in _CLEARED),
        )
        for edit in tables_at(table_at(message, "context_management"), "applied_edits")[:_MOST_EDITS]
        if (kind := text(edit, "type"))
    )


_CLEARED = ("cleared_input_tokens", "cleared_tool_uses", "cleared_thinking_turns")


def decode_usage(usage: Json) -> Usage:
    """Token usage by part; cache writes are split by their lifetime."""
    split = table_at(usage, "cache_creation")
    long = number(split, "ephemeral_1h_input_tokens")
    short = number(split, "ephemeral_5m_input_tokens")
    written = number(usage, "cache_creation_input_tokens") or short + long
    details = table_at(usage, "output_tokens_details")
    return Usage(
        input=number(usage, "input_tokens"),
        cache_read=number(usage, "cache_read_input_tokens"),
        cache_write=max(0, written - long),
        cache_write_long=long,
        output=number(usage, "output_tokens"),
        reasoning=number(details, "thinking_tokens") or number(details, "reasoning_tokens"),
    )


class MessageAssembler:
    """Assembles a streamed message."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        # Joined once at the end, because a long reply has tens of thousands of pieces.
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._ending: Json = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether a stop reason or the end of the message has arrived."""
        return self._complete

    def take(self, event: Json) -> Iterator[Delta]:
        """Apply one event and yield its deltas."""
        index = number(event, "index")
        match text(event, "type"):
            case "message_start":
                self._message = dict(table_at(event, "message"))
                if usage := table_at(self._message, "usage"):
                    # The output of the start is a placeholder; one that the end does not replace is not known.
                    self._count({key: value for key, value in usage.items() if key != "output_tokens"})
                    yield UsageDelta(decode_usage(usage))
            case "content_block_start":
                block = dict(table_at(event, "content_block"))
                self._blocks[index] = block
                yield from _opening(block)
            case "content_block_delta":
                yield from self._extend(index, table_at(event, "delta"))
            case "message_delta":
                self._ending |= {key: value for key, value in table_at(event, "delta").items() if value is not None}
                self._message |= {key: value for key, value in event.items() if key not in _OF_DELTA}
                self._count(table_at(event, "usage"))
                # After a fallback in mid-stream it is said once more, and replaces what was said first.
                for told in (event, table_at(event, "delta")):
                    if isinstance(told.get(_TRANSFORMED), list):
                        self._ending[_TRANSFORMED] = told[_TRANSFORMED]
                self._complete = self._complete or bool(text(self._ending, "stop_reason"))
            case "message_stop":
                self._complete = True
            case "error":
                raise provider_error(error_object(event), self._card.provider)
            case _:
                # Pings, ends of blocks and unknown events carry nothing that is needed.
                return

    def _count(self, usage: Json) -> None:
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _extend(self, index: int, delta: Json) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            raise WireError(f"the stream adds to block {index}, which never began", where=self._card.provider)
        pieces = self._pieces.setdefault(index, {})
        kind = text(delta, "type")
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            if kind == "citations_delta" and is_json(value):
                block["citations"] = [*tables_at(block, "citations"), value]
            elif isinstance(value, str):
                pieces.setdefault(key, []).append(value)
            else:
                block[key] = value
        match kind:
            case "text_delta":
                yield TextDelta(text(delta, "text"))
            case "thinking_delta":
                yield ThinkingDelta(text(delta, "thinking"))
            case "input_json_delta" if text(block, "type") == "tool_use":
                yield CallDelta(text(block, "id"), text(block, "name"), text(delta, _ARGS))
            case _:
                return

    def _block(self, index: int) -> tuple[Json, str]:
        """A block with its pieces joined, and the text of its streamed input."""
        block = dict(self._blocks[index])
        args = ""
        for key, pieces in self._pieces.get(index, {}).items():
            if key == _ARGS:
                args = "".join(pieces)
            else:
                block[key] = text(block, key) + "".join(pieces)
        return block, args

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        message = {**self._message, **self._ending, "usage": self._usage}
        return _reply_of_message(message, [self._block(index) for index in sorted(self._blocks)], self._card)

    def message(self) -> Json:
        """The reply as the message that it would be if it were not streamed, with every block and field as the provider gave it."""
        blocks = [{**block, "input": _input(args)} if args else block for block, args in map(self._block, sorted(self._blocks))]
        return {**self._message, **self._ending, "content": blocks, "usage": self._usage}


def _opening(block: Json) -> Iterator[Delta]:
    match text(block, "type"):
        case "tool_use":
            yield CallDelta(text(block, "id"), text(block, "name"), "")
        case "text":
            if shown_text := text(block, "text"):
                yield TextDelta(shown_text)
        case _:
            return
