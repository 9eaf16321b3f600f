"""Decodes Anthropic messages into contents, whole or block by block."""

from collections.abc import Iterator

from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.events.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Content, Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.failures import error_object, provider_error
from palimpsest.wire.json_reading import Json, dump, is_json, number, parse, table_at, tables_at, text
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.reply import reply_of, text_fallback

_ARGS = "partial_json"


def decode_message(message: Json, card: ModelCard) -> ModelReplied:
    """Decode a message that was not streamed. Raises `WireError` if it is none."""
    if error := error_object(message):
        raise provider_error(error, card.provider)
    if text(message, "type") != "message" and "content" not in message:
        raise WireError("the answer is not a message", where=card.provider)
    parts = [part for block in tables_at(message, "content") for part in decode_block(block, card)]
    return reply_of(parts, text(message, "stop_reason"), decode_usage(table_at(message, "usage")), card, text(message, "id"))


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
            yield ToolCall(text(block, "id"), text(block, "name"), args or dump(block.get("input") or {}))
        case _:
            whole = {**block, "input": _input(args)} if args else block
            yield Opaque(card.provider, card.name, dump(whole), text_fallback(whole))


def _input(args: str) -> object:
    try:
        return parse(args, "input")
    except WireError:
        # The stream was cut inside the input, so that its text is kept.
        return args


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
        self._stop = ""
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
                self._message = table_at(event, "message")
                if usage := table_at(self._message, "usage"):
                    self._count(usage)
                    yield UsageDelta(decode_usage(self._usage))
            case "content_block_start":
                block = dict(table_at(event, "content_block"))
                self._blocks[index] = block
                yield from _opening(block)
            case "content_block_delta":
                yield from self._extend(index, table_at(event, "delta"))
            case "message_delta":
                self._stop = text(table_at(event, "delta"), "stop_reason") or self._stop
                self._count(table_at(event, "usage"))
                self._complete = self._complete or bool(self._stop)
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

    def _contents(self, index: int) -> Iterator[Content]:
        block = dict(self._blocks[index])
        args = ""
        for key, pieces in self._pieces.get(index, {}).items():
            if key == _ARGS:
                args = "".join(pieces)
            else:
                block[key] = text(block, key) + "".join(pieces)
        return decode_block(block, self._card, args)

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        parts = [part for index in sorted(self._blocks) for part in self._contents(index)]
        return reply_of(parts, self._stop, decode_usage(self._usage), self._card, text(self._message, "id"))


def _opening(block: Json) -> Iterator[Delta]:
    match text(block, "type"):
        case "tool_use":
            yield CallDelta(text(block, "id"), text(block, "name"), "")
        case "text":
            if shown_text := text(block, "text"):
                yield TextDelta(shown_text)
        case _:
            return
