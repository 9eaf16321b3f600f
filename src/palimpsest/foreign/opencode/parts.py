"""What single parts of OpenCode's messages become: contents, results, and the rest that only the way back needs."""

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw

from palimpsest.core.events import ToolReturned, Usage
from palimpsest.core.items import Content, Document, Image, Opaque, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.rows import Message, Part, tokens_of
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
Shown: TypeAlias = Image | Document

# Files that are not shown: what they hold follows as a text of its own.
_TOLD_IN_WORDS = frozenset({"text/plain", "application/x-directory"})
_OUTPUT = re.compile(r"tool_[0-9A-Za-z]+")
_PATHS = ("filePath", "path", "file_path")


def raw(value: object) -> Raw:
    """A value as JSON."""
    return Raw(msgspec.json.encode(value))


def line_of(part: Part, *said: str) -> Json:
    """A part less what its body says."""
    return {"id": part.id, **{name: value for name, value in part.data.items() if name not in said}}


def is_words(part: Part) -> bool:
    """Whether a part is a text that a model sees."""
    return part.type == "text" and bool(text(part.data, "text")) and part.data.get("ignored") is not True


def is_synthetic(part: Part) -> bool:
    """Whether the program wrote it and not the user."""
    return part.data.get("synthetic") is True


def shown_file(part: Json, blobs: Blobs) -> Shown | None:
    """A picture or a document that a model is shown; nothing if the file is told in words or is not at hand."""
    media, url = text(part, "mime"), text(part, "url")
    if media in _TOLD_IN_WORDS or not media:
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


def said_by_model(part: Part, model: str) -> Content | None:
    """What a part of a reply shows; nothing if it is no content."""
    words = text(part.data, "text")
    match part.type:
        case "text":
            return Text(words, "assistant") if is_words(part) else None
        case "reasoning":
            return _thought(words, table_at(part.data, "metadata"), model)
        case "tool":
            given = part.state.get("input")
            args = dump(given) if given is not None and given != {} else text(part.state, "raw") or "{}"
            return ToolCall(text(part.data, "callID"), text(part.data, "tool") or "unknown", args)
        case _:
            return None


def _thought(words: str, metadata: Json, model: str) -> Content | None:
    """A thought; what its provider signed or sealed goes with it, and is worth something to that provider only."""
    anthropic, openai = table_at(metadata, "anthropic"), table_at(metadata, "openai")
    if hidden := text(anthropic, "redactedData"):
        return Opaque("anthropic", model, dump({"type": "redacted_thinking", "data": hidden}))
    if signature := text(anthropic, "signature"):
        return Thinking(words, Signature("anthropic", model, signature), "whole" if words else "sealed")
    if sealed := text(openai, "reasoningEncryptedContent"):
        return Thinking(words, Signature("openai", model, sealed), "digest" if words else "sealed", text(openai, "itemId"))
    return Thinking(words) if words else None


def returned(part: Part, blobs: Blobs, folder: str = "") -> ToolReturned:
    """How a call ended; one that did not was interrupted. An output that was too long lies whole in a file of the program's folder."""
    state, name, call_id = part.state, text(part.data, "tool"), text(part.data, "callID")
    time, metadata = table_at(state, "time"), table_at(state, "metadata")
    match part.status:
        case "completed":
            files = (shown_file(each, blobs) for each in tables_at(state, "attachments"))
            parts = (Text(text(state, "output")), *(file for file in files if file is not None))
            result = ToolResult(call_id, parts, blob=_whole_output(text(metadata, "outputPath"), folder, blobs))
        case "error":
            # What a tool had printed when it was broken off is shown in place of the error.
            printed = text(metadata, "output") if metadata.get("interrupted") is True else ""
            result = ToolResult(call_id, (Text(printed or text(state, "error") or "error"),), error=True)
        case _:
            result = ToolResult(call_id, (Text(INTERRUPTED),), error=True)
    took = max(0, number(time, "end") - number(time, "start")) if number(time, "end") else 0
    code = metadata.get("exit")
    given = table_at(state, "input")
    paths = tuple(dict.fromkeys(path for key in _PATHS if (path := text(given, key))))
    return ToolReturned(result, name, code if type(code) is int else None, paths, took)


def _whole_output(path: str, folder: str, blobs: Blobs) -> str:
    """The address of a whole output, if its file is still there; only its name is taken from the row, for a row can name any file."""
    name = path.replace("\\", "/").rpartition("/")[2]
    if not folder or not _OUTPUT.fullmatch(name):
        return ""
    file = Path(folder) / "tool-output" / name
    try:
        return blobs.put(file.read_bytes()) if file.is_file() else ""
    except PermissionError:
        return ""


def result_line(part: Part) -> Json:
    """A call less what its call and its result say."""
    said = {"input", "output"} if part.status == "completed" else {"input"}
    state = {name: value for name, value in part.state.items() if name not in said}
    if number(table_at(state, "time"), "compacted") and part.status == "completed":
        # The time at which it was cleared came later, and is the time of the edit that says so.
        state["time"] = {name: value for name, value in table_at(state, "time").items() if name != "compacted"}
    if is_json(state.get("metadata")) and part.status == "completed":
        # A command's output stands in its row twice.
        metadata = table_at(part.state, "metadata")
        same = [name for name in ("output",) if metadata.get(name) == part.state.get("output")]
        state["metadata"] = {name: value for name, value in metadata.items() if name not in same}
        if same:
            state["same"] = same
    return {**line_of(part, "state"), "state": state}


def usage_of(message: Message, parts: Iterable[Part]) -> Usage:
    """What a reply took: as its last step says, else as the message does."""
    ends = [part for part in parts if part.type == "step-finish" and is_json(part.data.get("tokens"))]
    table = table_at(ends[-1].data, "tokens") if ends else table_at(message.data, "tokens")
    fresh, read, written, output, thought = tokens_of(table)
    return Usage(fresh, read, written, output=output, reasoning=thought)


def model_of(message: Message) -> str:
    """The model that a message names."""
    named = table_at(message.data, "model")
    return text(message.data, "modelID") or text(named, "modelID") or text(named, "id")


def system_of(message: Message) -> tuple[str, ...]:
    """The instructions that a message names: one text with a user's, several with a model's in older versions."""
    given = message.data.get("system")
    texts = given if isinstance(given, list) else [given]
    return tuple(each for each in texts if isinstance(each, str) and each)


def wire_of(message: Message) -> str:
    """The shape in which its provider is spoken to."""
    provider = text(message.data, "providerID") or text(table_at(message.data, "model"), "providerID")
    return {"anthropic": "anthropic", "openai": "responses"}.get(provider, "chat")
