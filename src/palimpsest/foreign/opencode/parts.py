"""Converts parts of OpenCode's messages to contents and results, and keeps the rest of each row."""

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from palimpsest.core.events import ToolReturned, Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.rows import MessageRow, PartRow
from palimpsest.foreign.reading.files import without
from palimpsest.foreign.reading.opening import read_regular
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MediaPart: TypeAlias = Image | Document

# Media types that are not attached: their content follows as a text part.
SHOWN_AS_TEXT = frozenset({"text/plain", "application/x-directory"})
_OUTPUT_NAME = re.compile(r"tool_[0-9A-Za-z]+")
_PATHS = ("filePath", "path", "file_path")


def line_of(part: PartRow, *fields: str) -> Json:
    """The row of a part without the fields that are in its body."""
    return {"id": part.id, **without(part.data, *fields)}


def visible_line(part: PartRow) -> Json:
    """The row of a part of a reply without the text that is in its body."""
    return line_of(part, "text") if part.type in {"text", "reasoning"} and text(part.data, "text") else line_of(part)


def is_visible_text(part: PartRow) -> bool:
    """Whether a part is a text that the model sees."""
    return part.type == "text" and bool(text(part.data, "text")) and part.data.get("ignored") is not True


def is_synthetic(part: PartRow) -> bool:
    """Whether the program wrote the part, and not the user."""
    return part.data.get("synthetic") is True


def shown_file(part: Json, blobs: Blobs) -> MediaPart | None:
    """The image or document that the model sees; None if the file is shown as text, or its data is missing."""
    media, url = text(part, "mime"), text(part, "url")
    if media in SHOWN_AS_TEXT or not media:
        return None
    if url.startswith(("http://", "https://")):
        return Image(media, url=url) if media.startswith("image/") else Document(media, url=url, name=text(part, "filename"))
    content = _content(url)
    if not content:
        return None
    address = blobs.put(content)
    return Image(media, address) if media.startswith("image/") else Document(media, address, name=text(part, "filename"))


def _content(url: str) -> bytes:
    head, found, data = url.partition(",")
    if not found or not head.startswith("data:"):
        return b""
    if not head.endswith(";base64"):
        return unquote_to_bytes(data)
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return b""


def model_content(part: PartRow, model: str) -> Content | None:
    """The content of a part of a reply; None if it has none."""
    shown_text = text(part.data, "text")
    match part.type:
        case "text":
            return Text(shown_text, "assistant") if is_visible_text(part) else None
        case "reasoning":
            return _thinking(shown_text, table_at(part.data, "metadata"), model)
        case "tool":
            tool_input = part.state.get("input")
            args = dump(tool_input) if tool_input is not None and tool_input != {} else text(part.state, "raw") or "{}"
            return ToolCall(text(part.data, "callID"), text(part.data, "tool") or "unknown", args)
        case _:
            return None


def _thinking(shown_text: str, metadata: Json, model: str) -> Content | None:
    """Reasoning with its signature or encrypted content, which only its provider can use."""
    anthropic, openai = table_at(metadata, "anthropic"), table_at(metadata, "openai")
    if redacted := text(anthropic, "redactedData"):
        return Opaque("anthropic", model, dump({"type": "redacted_thinking", "data": redacted}))
    if signature := text(anthropic, "signature"):
        return Thinking(shown_text, Signature("anthropic", model, signature), "whole" if shown_text else "sealed")
    if encrypted := text(openai, "reasoningEncryptedContent"):
        return Thinking(shown_text, Signature("openai", model, encrypted), "digest" if shown_text else "sealed", text(openai, "itemId"))
    return Thinking(shown_text) if shown_text else None


def result_of(part: PartRow, blobs: Blobs, folder: str = "") -> ToolReturned:
    """The result of a call; a call without an end was interrupted. A truncated output is whole in a file of the program's folder."""
    state, name, call_id = part.state, text(part.data, "tool"), text(part.data, "callID")
    time, metadata = table_at(state, "time"), table_at(state, "metadata")
    match part.status:
        case "completed":
            files = (shown_file(each, blobs) for each in tables_at(state, "attachments"))
            parts = (Text(text(state, "output")), *(file for file in files if file is not None))
            result = ToolResult(call_id, parts, blob=_whole_output(text(metadata, "outputPath"), folder, blobs))
        case "error":
            # The output before an interruption is shown instead of the error.
            printed = text(metadata, "output") if metadata.get("interrupted") is True else ""
            result = ToolResult(call_id, (Text(printed or text(state, "error") or "error"),), error=True)
        case _:
            result = ToolResult(call_id, (Text(INTERRUPTED),), error=True)
    duration_ms = max(0, number(time, "end") - number(time, "start")) if number(time, "end") else 0
    exit_code = metadata.get("exit")
    tool_input = table_at(state, "input")
    paths = tuple(dict.fromkeys(path for key in _PATHS if (path := text(tool_input, key))))
    return ToolReturned(result, name, exit_code if type(exit_code) is int else None, paths, duration_ms)


def _whole_output(path: str, folder: str, blobs: Blobs) -> str:
    """The blob of a whole output, if its file exists. Only the file name is used: a row could name any file."""
    name = path.replace("\\", "/").rpartition("/")[2]
    if not folder or not _OUTPUT_NAME.fullmatch(name):
        return ""
    file = Path(folder) / "tool-output" / name
    try:
        return blobs.put(read_regular(file, follow=False))
    except OSError:
        return ""


def result_line(part: PartRow) -> Json:
    """The row of a tool part without what is in its call and its result."""
    state = without(part.state, "input", *(("output",) if part.status == "completed" else ()))
    time, metadata = state.get("time"), state.get("metadata")
    if part.status == "completed" and is_json(time):
        # The time of clearing came later, and is in the edit.
        state["time"] = without(time, "compacted") if number(time, "compacted") else time
    if part.status == "completed" and is_json(metadata) and metadata.get("output") == part.state.get("output"):
        # The row of a shell command has its output twice.
        state |= {"metadata": without(metadata, "output"), "same": ["output"]}
    return {**line_of(part, "state"), "state": state}


def usage_of(message: MessageRow, parts: Iterable[PartRow]) -> Usage:
    """The usage of a reply: of its last step, or else of its message."""
    ends = [part for part in parts if part.type == "step-finish" and is_json(part.data.get("tokens"))]
    table = table_at(ends[-1].data, "tokens") if ends else table_at(message.data, "tokens")
    cache = table_at(table, "cache")
    uncached, output, reasoning = number(table, "input"), number(table, "output"), number(table, "reasoning")
    read, written = number(cache, "read"), number(cache, "write")
    # Rows with a total count reasoning separately from output; in older ones it is part of the output.
    is_separate = uncached + read + written + output + reasoning <= number(table, "total")
    return Usage(uncached, read, written, output=output + reasoning if is_separate else max(output, reasoning), reasoning=reasoning)


def model_of(message: MessageRow) -> str:
    """The model that a message names."""
    model_field = table_at(message.data, "model")
    return text(message.data, "modelID") or text(model_field, "modelID") or text(model_field, "id")


def system_of(message: MessageRow) -> tuple[str, ...]:
    """The system prompts of a message: one text in a user message, several in a model message of older versions."""
    prompts = message.data.get("system")
    texts = prompts if isinstance(prompts, list) else [prompts]
    return tuple(each for each in texts if isinstance(each, str) and each)


def wire_of(message: MessageRow) -> str:
    """The wire of the provider of a message."""
    provider = text(message.data, "providerID") or text(table_at(message.data, "model"), "providerID")
    return {"anthropic": "anthropic", "openai": "responses"}.get(provider, "chat")
