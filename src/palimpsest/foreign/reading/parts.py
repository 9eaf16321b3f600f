"""Times, pictures, models and tokens as other programs write them, and as we do."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime

from palimpsest.core.events import CallStarted, Usage
from palimpsest.core.items import Document, Image, Part, Role, Text
from palimpsest.core.ports import Blobs
from palimpsest.wire.json_reading import Json, is_json, number, table_at, text

# Seconds since 1970 stay below this for three thousand years, and milliseconds are above it since 1973.
_SECONDS_END = 100_000_000_000
_COUNTS = (("prompt", "input"), ("completion", "output"))


def milliseconds(value: object) -> int:
    """A time as a program wrote it (ISO 8601, or a number of seconds or milliseconds) in milliseconds since 1970; 0 if it is none."""
    match value:
        case str():
            return _of_text(value)
        case bool():
            return 0
        case int() | float():
            return _of_number(value)
        case _:
            return 0


def _of_number(value: float) -> int:
    try:
        return int(value if value >= _SECONDS_END else value * 1000)
    except (OverflowError, ValueError):
        return 0


def _of_text(value: str) -> int:
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        return 0
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def call_of(model: str) -> CallStarted:
    """A call of another program: which model, and the shape that its maker takes."""
    return CallStarted(model, wire_of(model))


def wire_of(model: str) -> str:
    """The shape of requests that the maker of a model takes."""
    name = model.rpartition("/")[2]
    if name.startswith("claude"):
        return "anthropic"
    return "responses" if name.startswith(("gpt-5", "gpt-6", "codex")) else "chat"


def provider_of(model: str) -> str:
    """Who made a model, as seals name it."""
    return {"anthropic": "anthropic", "responses": "openai"}.get(wire_of(model), "other")


def blob_part(media: str, data: str, blobs: Blobs, name: str = "") -> Part | None:
    """A picture or a file that stands in a text as base64; nothing if it does not."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not content:
        return None
    address = blobs.put(content)
    return Image(media or "image/png", address) if media.startswith("image/") or not media else Document(media, address, name=name)


def linked_part(url: str, blobs: Blobs) -> Part | None:
    """A picture by its URL, which may hold the picture itself."""
    if not url.startswith("data:"):
        return Image("image/*", url=url) if url.startswith(("http://", "https://")) else None
    media, _, data = url[len("data:") :].partition(";base64,")
    return blob_part(media, data, blobs)


def parts_of(content: object, blobs: Blobs, role: Role = "user") -> tuple[Part, ...]:
    """The parts of a message that is a text, or a list of texts and pictures in one of the usual shapes; empty texts are left out."""
    if isinstance(content, str):
        return (Text(content, role),) if content else ()
    if not isinstance(content, Sequence):
        return ()
    return tuple(part for each in content if (part := _part(each, blobs, role)) is not None)


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
    """The text of a message in one of the usual shapes."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(found for each in content if (found := each if isinstance(each, str) else text(each, "text") if is_json(each) else ""))


def chat_usage(usage: Json) -> Usage:
    """Tokens as Chat Completions and Responses count them: what was cached is part of the prompt."""
    details = table_at(usage, "prompt_tokens_details") or table_at(usage, "input_tokens_details")
    written = number(usage, "cache_creation_input_tokens") or number(details, "cache_creation_tokens")
    cached = number(details, "cached_tokens") or number(usage, "cache_read_input_tokens") or number(usage, "prompt_cache_hit_tokens")
    prompt, output = (number(usage, f"{old}_tokens") or number(usage, f"{new}_tokens") for old, new in _COUNTS)
    thoughts = table_at(usage, "completion_tokens_details") or table_at(usage, "output_tokens_details")
    return Usage(max(0, prompt - cached - written), cached, written, output=output, reasoning=number(thoughts, "reasoning_tokens"))
