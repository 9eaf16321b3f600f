"""Chat completions to contents: whole answers, and streams chunk by chunk."""

from collections.abc import Iterator

from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Content, Text, Thinking, ToolCall
from palimpsest.wire.cards import ModelCard
from palimpsest.wire.deltas import CallDelta, Delta, TextDelta, ThinkingDelta
from palimpsest.wire.failures import error_of, failure
from palimpsest.wire.lenient import Json, dump, is_json, number, table_at, tables_at, text

# Servers do not agree on the name of what a model thinks aloud.
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")


def decode_completion(completion: Json, card: ModelCard) -> ModelReplied:
    """A whole completion; its first choice is the reply."""
    if error := error_of(completion):
        raise failure(error, card.provider)
    choices = tables_at(completion, "choices")
    if not choices:
        raise WireError("the answer has no choice", where=card.provider)
    assembler = ChunkAssembler(card)
    tuple(assembler.take({**completion, "choices": [{**choices[0], "delta": table_at(choices[0], "message")}]}))
    return assembler.reply()


def decode_usage(usage: Json) -> Usage:
    """Tokens by part; the provider counts what it read from its cache as prompt."""
    details = table_at(usage, "prompt_tokens_details")
    read = number(details, "cached_tokens") or number(usage, "prompt_cache_hit_tokens")
    written = number(details, "cache_write_tokens")
    return Usage(
        input=max(0, number(usage, "prompt_tokens") - read - written),
        cache_read=read,
        cache_write=written,
        output=number(usage, "completion_tokens"),
        reasoning=number(table_at(usage, "completion_tokens_details"), "reasoning_tokens"),
    )


class _Call:
    """A call whose arguments are still coming."""

    def __init__(self) -> None:
        self.call_id = ""
        self.tool = ""
        self.args: list[str] = []
        self.free = False

    def content(self, index: int) -> ToolCall:
        args = "".join(self.args)
        return ToolCall(
            self.call_id or f"call_{index}", self.tool, args if self.free else args or "{}", form="free" if self.free else "json"
        )


class ChunkAssembler:
    """A streamed completion; its first choice is the reply."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._id = ""
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._usage: Json = {}
        self._stop = ""

    @property
    def complete(self) -> bool:
        """Whether the choice has a reason to end."""
        return bool(self._stop)

    def take(self, event: Json) -> Iterator[Delta]:
        """One chunk of the stream."""
        if error := error_of(event):
            raise failure(error, self._card.provider)
        self._id = self._id or text(event, "id")
        self._usage = table_at(event, "usage") or self._usage
        for choice in tables_at(event, "choices"):
            if number(choice, "index") == 0:
                self._stop = text(choice, "finish_reason") or self._stop
                yield from self._extend(table_at(choice, "delta"))

    def _extend(self, delta: Json) -> Iterator[Delta]:
        thought = next(filter(None, (text(delta, name) for name in _THOUGHTS)), "") + _parts(delta, "thinking")
        if thought:
            self._thought.append(thought)
            yield ThinkingDelta(thought)
        said = text(delta, "content") + _parts(delta, "text") + text(delta, "refusal")
        if said:
            self._said.append(said)
            yield TextDelta(said)
        for place, entry in enumerate(tables_at(delta, "tool_calls")):
            yield self._call(entry, place)

    def _call(self, entry: Json, place: int) -> Delta:
        call = self._calls.setdefault(self._index(entry, place), _Call())
        free = is_json(entry.get("custom"))
        function = table_at(entry, "custom" if free else "function")
        given = function.get("input" if free else "arguments")
        args = dump(given) if is_json(given) else given if isinstance(given, str) else ""
        call.free = call.free or free
        call.call_id = call.call_id or text(entry, "id")
        call.tool = call.tool or text(function, "name")
        call.args.append(args)
        return CallDelta(call.call_id, call.tool, args)

    def _index(self, entry: Json, place: int) -> int:
        if isinstance(entry.get("index"), int):
            return number(entry, "index")
        # Without an index a new id is a new call, and no id goes on with the last one.
        named = text(entry, "id")
        for index, call in self._calls.items():
            if named and call.call_id == named:
                return index
        return max(len(self._calls), place) if named or not self._calls else len(self._calls) - 1

    def reply(self) -> ModelReplied:
        """What has arrived so far."""
        parts: list[Content] = []
        if self._thought:
            parts.append(Thinking("".join(self._thought)))
        if self._said:
            parts.append(Text("".join(self._said), role="assistant"))
        parts.extend(call.content(index) for index, call in sorted(self._calls.items()))
        return ModelReplied(parts=tuple(parts), usage=decode_usage(self._usage), stop=self._stop, model=self._card.name, message=self._id)


def _parts(delta: Json, kind: str) -> str:
    """The text of content that comes as a list of parts."""
    return "".join(_said(part, kind) for part in tables_at(delta, "content") if text(part, "type") == kind)


def _said(part: Json, kind: str) -> str:
    return text(part, kind) or "".join(text(inner, "text") for inner in tables_at(part, kind))
