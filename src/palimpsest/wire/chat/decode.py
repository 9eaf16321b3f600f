"""Decodes chat completions into contents, whole or chunk by chunk."""

from collections.abc import Iterator

from msgspec.structs import replace

from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.events.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Content, Text, Thinking, ToolCall
from palimpsest.wire.failures import error_object, provider_error
from palimpsest.wire.json_reading import Json, dump, is_json, is_object, number, table_at, tables_at, text
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.reply import reply_of, tier_of

# Servers disagree on the field of the thinking text.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


def decode_completion(completion: Json, card: ModelCard) -> ModelReplied:
    """Decode a completion that was not streamed; its first choice is the reply. Raises `WireError` if it has none."""
    if error := error_object(completion):
        raise provider_error(error, card.provider)
    choices = tables_at(completion, "choices")
    if not choices:
        raise WireError("the answer has no choice", where=card.provider)
    first = next((choice for choice in choices if choice.get("index") == 0), choices[0])
    message = table_at(first, "message")
    # In a whole response every entry is a separate call, whatever its index.
    calls = [{**entry, "index": place} for place, entry in enumerate(tables_at(message, "tool_calls"))]
    assembler = ChunkAssembler(card)
    tuple(assembler.take({**completion, "choices": [{**first, "index": 0, "delta": {**message, "tool_calls": calls}}]}))
    return assembler.reply()


def decode_usage(usage: Json) -> Usage:
    """Token usage by part; the provider counts cached tokens as prompt tokens.

    Some servers leave the reasoning out of the completion and count it in the total alone; it is billed as output everywhere.
    """
    details = table_at(usage, "prompt_tokens_details")
    read = number(details, "cached_tokens") or number(usage, "prompt_cache_hit_tokens")
    written = number(details, "cache_write_tokens")
    prompt, completion = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    reasoning = number(table_at(usage, "completion_tokens_details"), "reasoning_tokens")
    return Usage(
        input=max(0, prompt - read - written),
        cache_read=read,
        cache_write=written,
        output=max(completion, min(number(usage, "total_tokens") - prompt, completion + reasoning)),
        reasoning=reasoning,
    )


class _StreamedCall:
    """A tool call whose arguments are still arriving."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.call_id = ""
        self.tool = ""
        self.args: list[str] = []
        self.free = False

    def content(self, number: int) -> ToolCall:
        args = "".join(self.args)
        return ToolCall(
            self.call_id or f"call_{number}", self.tool, args if self.free else args or "{}", form="free" if self.free else "json"
        )

    def ended_by(self, call_id: str, tool: str) -> bool:
        """Whether an entry at the same index starts another call: it names a tool and has another id.

        Some servers invent an id for every chunk, so that an id alone starts no call.
        """
        return bool(tool and call_id and self.call_id and call_id != self.call_id)

    def whole(self) -> bool:
        """Whether the arguments are complete."""
        return is_object("".join(self.args))


class ChunkAssembler:
    """Assembles a streamed completion; its first choice is the reply."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._id = ""
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_StreamedCall] = []
        self._open: dict[int, _StreamedCall] = {}
        self._choice: int | None = None
        self._usage: Json = {}
        self._tier = ""
        self._stop = ""
        self._refused = False

    @property
    def complete(self) -> bool:
        """Whether the choice has a finish reason."""
        return bool(self._stop)

    def take(self, event: Json) -> Iterator[Delta]:
        """Apply one chunk and yield its deltas."""
        if error := error_object(event):
            raise provider_error(error, self._card.provider)
        self._id = self._id or text(event, "id")
        usage = table_at(event, "usage")
        self._usage = usage or self._usage
        self._tier = tier_of(event) or self._tier
        choices = tables_at(event, "choices")
        if self._choice is None and choices:
            self._choice = min(number(choice, "index") for choice in choices)
        for choice in choices:
            if number(choice, "index") == self._choice:
                self._stop = text(choice, "finish_reason") or self._stop
                yield from self._extend(table_at(choice, "delta"))
        # Usage after the finish reason is that of the whole reply, which `reply` returns.
        if usage and not self._stop:
            yield UsageDelta(decode_usage(usage))

    def _extend(self, delta: Json) -> Iterator[Delta]:
        thinking = next(filter(None, (text(delta, name) for name in _THINKING_FIELDS)), "") + _parts(delta, "thinking")
        if thinking:
            self._thinking.append(thinking)
            yield ThinkingDelta(thinking)
        refusal = text(delta, "refusal")
        self._refused = self._refused or bool(refusal)
        visible_text = text(delta, "content") + _parts(delta, "text") + refusal
        if visible_text:
            self._texts.append(visible_text)
            yield TextDelta(visible_text)
        extended_places: set[int] = set()
        for entry in tables_at(delta, "tool_calls"):
            yield self._call(entry, extended_places)

    def _call(self, entry: Json, extended_places: set[int]) -> Delta:
        free = is_json(entry.get("custom"))
        function = table_at(entry, "custom" if free else "function")
        call = self._call_for(entry, text(function, "name"), extended_places)
        extended_places.add(call.place)
        arguments = function.get("input" if free else "arguments")
        args = dump(arguments) if is_json(arguments) else arguments if isinstance(arguments, str) else ""
        call.free = call.free or free
        call.call_id = call.call_id or text(entry, "id")
        call.tool = call.tool or text(function, "name")
        call.args.append(args)
        return CallDelta(call.call_id, call.tool, args)

    def _call_for(self, entry: Json, tool: str, extended_places: set[int]) -> _StreamedCall:
        """The call that an entry extends, or a new one; `extended_places` are the indexes that this chunk has extended already."""
        named = text(entry, "id")
        if type(entry.get("index")) is int:
            place = number(entry, "index")
            call = self._open.get(place)
            return self._open_call(place) if call is None or call.ended_by(named, tool) else call
        if named:
            return next((call for call in self._calls if call.call_id == named), None) or self._open_call(len(self._calls))
        last = self._calls[-1] if self._calls else None
        # Without index and id an entry extends the last call, unless that is complete or was extended by this chunk.
        if last is None or last.place in extended_places or (tool and (tool != last.tool or last.whole())):
            return self._open_call(len(self._calls))
        return last

    def _open_call(self, place: int) -> _StreamedCall:
        call = _StreamedCall(place)
        self._calls.append(call)
        self._open[place] = call
        return call

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        parts: list[Content] = []
        if self._thinking:
            parts.append(Thinking("".join(self._thinking)))
        if self._texts:
            parts.append(Text("".join(self._texts), role="assistant"))
        calls = sorted(self._calls, key=lambda call: call.place)
        parts.extend(call.content(number) for number, call in enumerate(calls))
        reply = reply_of(parts, self._stop, decode_usage(self._usage), self._card, self._id, refused=self._refused)
        return replace(reply, tier=self._tier)


def _parts(delta: Json, kind: str) -> str:
    """The joined text of content that comes as a list of parts."""
    return "".join(_part_text(part, kind) for part in tables_at(delta, "content") if text(part, "type") == kind)


def _part_text(part: Json, kind: str) -> str:
    return text(part, kind) or "".join(text(inner, "text") for inner in tables_at(part, kind))
