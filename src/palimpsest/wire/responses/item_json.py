"""The JSON of a content on the Responses wire, for size rules."""

import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw

from palimpsest.core.items import Content, Document, Image, Opaque, Part, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.tokens.patterns import lazy_pattern

IMAGE_PAYLOAD = 7_373

Json: TypeAlias = "str | Raw | Sequence[Json] | dict[str, Json] | None"

_DATA_IMAGE = lazy_pattern(r"(data:image/[A-Za-z0-9.+-]{1,40}(?:;[a-z0-9=-]{1,40})*;base64,)[A-Za-z0-9+/=_-]*", re.IGNORECASE)


class ItemJson(Value, frozen=True):
    """JSON without its base64 images, and their number."""

    json: Json
    payloads: int = 0


def without_payloads(text: str) -> tuple[str, int]:
    """The text without the base64 of its images, and their number."""
    return _DATA_IMAGE.subn(r"\1", text) if "data:image/" in text else (text, 0)


def item_json(content: Content) -> ItemJson:
    """The Responses item of a content."""
    match content:
        case Text():
            part: dict[str, Json] = {"type": "output_text" if content.role == "assistant" else "input_text", "text": content.text}
            message: dict[str, Json] = {"type": "message", "role": content.role, "content": [part]}
            return ItemJson({**message, "phase": content.phase} if content.phase else message)
        case Thinking():
            return ItemJson({"type": "reasoning", "summary": [{"type": "summary_text", "text": content.text}]})
        case Image() | Document():
            inside = _part(content)
            return ItemJson({"type": "message", "role": "user", "content": [inside.json]}, inside.payloads)
        case Opaque():
            return _part(content)
        case ToolCall():
            return ItemJson(_call(content))
        case ToolResult():
            return _result(content)


def _part(part: Part) -> ItemJson:
    match part:
        case Text():
            return ItemJson({"type": "input_text", "text": part.text})
        case Image():
            url, payloads = without_payloads(part.url) if part.url else (f"data:{part.media};base64,", 1)
            image: dict[str, Json] = {"type": "input_image", "image_url": url}
            return ItemJson({**image, "detail": part.detail} if part.detail else image, payloads)
        case Document():
            if part.url:
                return ItemJson({"type": "input_file", "file_url": part.url})
            return ItemJson({"type": "input_file", "filename": part.name, "file_data": f"data:{part.media};base64,"}, 1)
        case Opaque():
            data, payloads = without_payloads(part.data)
            return ItemJson(_json(data), payloads)


def _json(text: str) -> Json:
    """Raw JSON if the text is valid, else a JSON string: arguments of a model may be malformed."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return Raw(text.encode())


def _call(call: ToolCall) -> Json:
    match call.form:
        case "json":
            return {"type": "function_call", "name": call.tool, "arguments": call.args, "call_id": call.call_id}
        case "free":
            return {"type": "custom_tool_call", "call_id": call.call_id, "name": call.tool, "input": call.args}
        case "shell":
            return {"type": "local_shell_call", "call_id": call.call_id, "status": "completed", "action": _json(call.args)}
        case "search":
            searching: dict[str, Json] = {"type": "tool_search_call", "call_id": call.call_id, "execution": "client"}
            return {**searching, "arguments": _json(call.args)}


def _result(result: ToolResult) -> ItemJson:
    parts = [_part(part) for part in result.parts]
    payloads = sum(part.payloads for part in parts)
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    output: Json = "\n".join(texts) if len(texts) == len(parts) else [part.json for part in parts]
    match result.form:
        case "json" | "shell":
            return ItemJson({"type": "function_call_output", "call_id": result.call_id, "output": output}, payloads)
        case "free":
            return ItemJson({"type": "custom_tool_call_output", "call_id": result.call_id, "output": output}, payloads)
        case "search":
            found: dict[str, Json] = {"type": "tool_search_output", "call_id": result.call_id, "status": "completed", "execution": "client"}
            return ItemJson({**found, "tools": _json("\n".join(texts))}, payloads)
