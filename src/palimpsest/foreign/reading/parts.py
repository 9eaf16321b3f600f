"""Conversion of timestamps, images, reasoning, calls, model names and token counts of other programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from palimpsest.core.events import CallStarted, Usage
from palimpsest.core.format.texts import is_date
from palimpsest.core.items import Part, Role, Signature, Text, Thinking, ToolCall
from palimpsest.core.ports import Blobs
from palimpsest.wire.encoding.media import blob_part, linked_part
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

# A number below this is in seconds (until the year 5138), one above in milliseconds (since 1973).
_SECONDS_END = 100_000_000_000
_TOKEN_FIELDS = (("prompt", "input"), ("completion", "output"))


def milliseconds(value: object) -> int:
    """A timestamp (ISO 8601, or a number of seconds or milliseconds) in milliseconds since 1970.

    It is 0 if it is none, or outside of the years 1970 to 9999: then only the recorded line has it, as it stood there.
    """
    at = _milliseconds(value)
    return at if is_date(at) else 0


def _milliseconds(value: object) -> int:
    try:
        match value:
            case str():
                time = datetime.fromisoformat(value.strip())
                return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
            case int() | float() if not isinstance(value, bool):
                return int(value if value >= _SECONDS_END else value * 1000)
            case _:
                return 0
    except (OverflowError, ValueError):
        return 0


def call_of(model: str) -> CallStarted:
    """A call of a model by another program, with the wire that the model's provider uses."""
    return CallStarted(model, wire_of(model))


def wire_of(model: str) -> str:
    """The wire that the provider of a model uses, guessed from the model's name."""
    name = model.rpartition("/")[2]
    if name.startswith("claude"):
        return "anthropic"
    return "responses" if name.startswith(("gpt-5", "gpt-6", "codex")) else "chat"


def provider_of(model: str) -> str:
    """The provider of a model as signatures name it, guessed from the model's name."""
    return {"anthropic": "anthropic", "responses": "openai"}.get(wire_of(model), "other")


def parts_of(content: object, blobs: Blobs, role: Role = "user") -> tuple[Part, ...]:
    """The parts of a message: a text, or a list of texts and images in one of the usual shapes. Empty texts are left out."""
    if isinstance(content, str):
        return (Text(content, role),) if content else ()
    if not isinstance(content, Sequence):
        return ()
    found = (part for each in content for part in (linked_parts(each, blobs) or (_part(each, blobs, role),)))
    return tuple(part for part in found if part is not None)


def linked_parts(holder: object, blobs: Blobs) -> list[Part]:
    """The images at the URLs that an object lists as `image_urls`."""
    links = holder.get("image_urls") if is_json(holder) else None
    listed = links if isinstance(links, list) else []
    return [part for link in listed if isinstance(link, str) and (part := linked_part(link, blobs)) is not None]


def _part(each: object, blobs: Blobs, role: Role) -> Part | None:
    if isinstance(each, str):
        return Text(each, role) if each else None
    if not is_json(each):
        return None
    match text(each, "type"):
        case "image_url":
            link = each.get("image_url")
            return linked_part(text(link, "url") if is_json(link) else text(each, "image_url"), blobs)
        case "image":
            source = table_at(each, "source") or each
            media = text(source, "media_type") or text(source, "mimeType") or text(source, "mime_type")
            return blob_part(media, text(source, "data"), blobs)
        case _:
            return Text(text(each, "text"), role) if text(each, "text") else None


def texts_of(content: object) -> str:
    """The text of a message in one of the usual shapes, its texts joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(found for each in content if (found := each if isinstance(each, str) else text(each, "text") if is_json(each) else ""))


def arguments_of(value: object) -> str:
    """The arguments of a call as JSON text; they may be text already."""
    return value if isinstance(value, str) else dump(value or {})


def calls_of(message: Json) -> Iterator[ToolCall]:
    """The calls of a message in the shape of Chat Completions."""
    for request in tables_at(message, "tool_calls"):
        function = table_at(request, "function")
        yield ToolCall(text(request, "id"), text(function, "name"), arguments_of(function.get("arguments")))


def thinking_of(holder: Json, model: str) -> Iterator[Thinking]:
    """The reasoning of a message: blocks with the provider's signature, or else a text."""
    blocks = tables_at(holder, "thinking_blocks")
    for block in blocks:
        thinking, signature = text(block, "thinking"), text(block, "signature")
        seal = Signature(provider_of(model), model.rpartition("/")[2], signature) if signature else None
        if thinking or seal is not None:
            yield Thinking(thinking, seal, "whole" if thinking else "sealed")
    if not blocks and text(holder, "reasoning_content"):
        yield Thinking(text(holder, "reasoning_content"))


def chat_usage(usage: Json) -> Usage:
    """Token counts from the usage of Chat Completions or Responses, where cached tokens are part of the prompt."""
    details = table_at(usage, "prompt_tokens_details") or table_at(usage, "input_tokens_details")
    written = number(usage, "cache_creation_input_tokens") or number(details, "cache_creation_tokens")
    cached = number(details, "cached_tokens") or number(usage, "cache_read_input_tokens") or number(usage, "prompt_cache_hit_tokens")
    prompt, output = (number(usage, f"{old}_tokens") or number(usage, f"{new}_tokens") for old, new in _TOKEN_FIELDS)
    thoughts = table_at(usage, "completion_tokens_details") or table_at(usage, "output_tokens_details")
    return Usage(max(0, prompt - cached - written), cached, written, output=output, reasoning=number(thoughts, "reasoning_tokens"))
