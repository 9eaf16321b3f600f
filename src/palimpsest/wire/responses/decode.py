"""Decodes OpenAI responses into contents, whole or item by item."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.events.calls import CacheDiagnosis
from palimpsest.core.events.deltas import CallDelta, Delta, TextDelta, ThinkingDelta, UsageDelta
from palimpsest.core.items import Content, Opaque, Signature, Text, Thinking, ToolCall
from palimpsest.wire.failures import error_object, provider_error
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.reply import reply_of, text_fallback, tier_of

# The most characters that are kept of a word of the provider.
_LONGEST_WORD: Final = 100


def decode_response_object(response: Json, card: ModelCard) -> ModelReplied:
    """Decode a response that was not streamed. Raises `WireError` if it is none, `ProviderError` if it failed."""
    _refuse_failed(response, card)
    if not isinstance(response.get("output"), list):
        raise WireError("the answer is not a response", where=card.provider)
    return _reply(response, tables_at(response, "output"), card)


def _refuse_failed(response: Json, card: ModelCard) -> None:
    error = error_object(response)
    if error or text(response, "status") == "failed":
        raise provider_error(error or {"message": "the response failed without a reason"}, card.provider)


def _reply(response: Json, output: list[Json], card: ModelCard) -> ModelReplied:
    parts = [part for item in output for part in decode_item(item, card)]
    refused = any(text(part, "type") == "refusal" for item in output for part in tables_at(item, "content"))
    reason = text(table_at(response, "incomplete_details"), "reason") or text(response, "status")
    reply = reply_of(parts, reason, decode_usage(table_at(response, "usage")), card, text(response, "id"), refused=refused)
    return replace(reply, diagnosis=_diagnosis(table_at(response, "prompt_cache_diagnostics")), tier=tier_of(response))


def _diagnosis(said: Json) -> CacheDiagnosis | None:
    """What a response says of the cache; `None` if nothing."""
    if not said:
        return None
    word = text(said, "type")[:_LONGEST_WORD]
    if word == "cache_hit":
        return CacheDiagnosis("same", word)
    if word != "cache_miss":
        return CacheDiagnosis("unknown", word)
    missed = max(0, number(said, "cache_missed_tokens")) if "cache_missed_tokens" in said else None
    return CacheDiagnosis("changed", text(said, "reason")[:_LONGEST_WORD], missed)


def decode_item(item: Json, card: ModelCard) -> Iterator[Content]:
    """The contents of an output item."""
    ref, call_id = text(item, "id"), text(item, "call_id")
    match text(item, "type"):
        case "message" if all(text(part, "type") in ("output_text", "refusal") for part in tables_at(item, "content")):
            for part in tables_at(item, "content"):
                yield Text(text(part, "text") or text(part, "refusal"), role="assistant", phase=text(item, "phase"), ref=ref)
        case "reasoning":
            yield from _decode_reasoning(item, card)
        case "function_call":
            arguments = item.get("arguments")
            # Some servers send the object itself instead of its text.
            args = arguments if isinstance(arguments, str) else dump(arguments) if is_json(arguments) else ""
            yield ToolCall(call_id, text(item, "name"), args or "{}", ref=ref)
        case "custom_tool_call":
            yield ToolCall(call_id, text(item, "name"), text(item, "input"), form="free", ref=ref)
        case "local_shell_call":
            yield ToolCall(call_id or ref, "local_shell", dump(item.get("action") or {}), form="shell", ref=ref)
        # A search that the server ran has no call id and needs no result.
        case "tool_search_call" if call_id:
            yield ToolCall(call_id, "tool_search", dump(item.get("arguments") or {}), form="search", ref=ref)
        case _:
            yield Opaque(card.provider, card.name, dump(item), text_fallback(item), ref)


def _decode_reasoning(item: Json, card: ModelCard) -> Iterator[Content]:
    ref, encrypted = text(item, "id"), text(item, "encrypted_content")
    signature = Signature(card.provider, card.name, encrypted) if encrypted else None
    parts = [Thinking(text(part, "text"), form="digest", ref=ref) for part in tables_at(item, "summary")]
    parts += [Thinking(text(part, "text"), form="whole", ref=ref) for part in tables_at(item, "content")]
    if not parts:
        yield Thinking("", signature, "sealed", ref)
        return
    yield from parts[:-1]
    yield Thinking(parts[-1].text, signature, parts[-1].form, ref)


def decode_usage(usage: Json) -> Usage:
    """Token usage by part; the provider counts cached tokens as input tokens."""
    details = table_at(usage, "input_tokens_details")
    read = number(details, "cached_tokens")
    written = number(details, "cache_write_tokens")
    long = min(written, number(table_at(details, "cache_write_tokens_details"), "ttl_12h_tokens"))
    return Usage(
        input=max(0, number(usage, "input_tokens") - read - written),
        cache_read=read,
        cache_write=written - long,
        cache_write_long=long,
        output=number(usage, "output_tokens"),
        reasoning=number(table_at(usage, "output_tokens_details"), "reasoning_tokens"),
    )


# The target of each delta event: the list of parts, the type of a part and its field, or the field of the item.
_PARTS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
}
_FIELDS = {"response.function_call_arguments.delta": "arguments", "response.custom_tool_call_input.delta": "input"}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"})


class ResponseAssembler:
    """Assembles a streamed response."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._response: Json = {}
        self._items: dict[int, Json] = {}
        self._refs: dict[str, int] = {}
        # By item, then by event type and index of the part. Joined once, because a long reply has tens of thousands of pieces.
        self._pieces: dict[int, dict[tuple[str, int], list[str]]] = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether the final event has arrived."""
        return self._complete

    def take(self, event: Json) -> Iterator[Delta]:
        """Apply one event and yield its deltas."""
        kind, index = text(event, "type"), self._index(event)
        if kind in _PARTS:
            yield self._extend_part(kind, index, event)
        elif kind in _FIELDS:
            item = self._items.setdefault(index, {})
            self._keep(index, kind, 0, text(event, "delta"))
            yield CallDelta(text(item, "call_id"), text(item, "name"), text(event, "delta"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = dict(table_at(event, "item"))
            self._items[index] = item
            self._pieces.pop(index, None)
            if kind.endswith("added"):
                # That of an item that has only begun is not what goes back.
                item.pop("encrypted_content", None)
            if kind.endswith("added") and text(item, "type") in ("function_call", "custom_tool_call"):
                yield CallDelta(text(item, "call_id"), text(item, "name"), "")
        elif kind in ("response.created", "response.in_progress"):
            self._response = table_at(event, "response")
            if usage := table_at(self._response, "usage"):
                yield UsageDelta(decode_usage(usage))
        elif kind in _ENDS:
            self._end(table_at(event, "response"))
        elif kind == "error":
            raise provider_error(error_object(event) or event, self._card.provider)

    def _index(self, event: Json) -> int:
        if isinstance(event.get("output_index"), int):
            return number(event, "output_index")
        # Some servers send no index and identify an item by its id or call id.
        item = table_at(event, "item")
        ref = text(event, "item_id") or text(item, "id") or text(item, "call_id")
        return self._refs.setdefault(ref, len(self._refs)) if ref else max(0, len(self._refs) - 1)

    def _end(self, response: Json) -> None:
        self._response = response
        self._complete = True
        _refuse_failed(response, self._card)

    def _extend_part(self, kind: str, index: int, event: Json) -> Delta:
        thinks = "reasoning" in kind
        self._items.setdefault(index, {"type": "reasoning" if thinks else "message"})
        place = number(event, "summary_index" if _PARTS[kind][0] == "summary" else "content_index")
        self._keep(index, kind, place, text(event, "delta"))
        return ThinkingDelta(text(event, "delta")) if thinks else TextDelta(text(event, "delta"))

    def _keep(self, index: int, kind: str, place: int, piece: str) -> None:
        self._pieces.setdefault(index, {}).setdefault((kind, place), []).append(piece)

    def _whole(self, index: int) -> Json:
        item = dict(self._items[index])
        for (kind, _), pieces in sorted(self._pieces.get(index, {}).items()):
            joined = "".join(pieces)
            if kind in _FIELDS:
                item[_FIELDS[kind]] = text(item, _FIELDS[kind]) + joined
            else:
                parts, part_type, field = _PARTS[kind]
                item[parts] = [*tables_at(item, parts), {"type": part_type, field: joined}]
        return item

    def reply(self) -> ModelReplied:
        """The reply as far as it has arrived."""
        # Some servers omit the output at the end, because it was streamed.
        output = tables_at(self._response, "output") or [self._whole(index) for index in sorted(self._items)]
        return _reply(self._response, output, self._card)
