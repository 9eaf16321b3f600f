"""Encodes items of a view as items of a rollout, whatever program they came from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.audit.context_tags import is_context_text
from palimpsest.core.items import Content, Document, Image, Item, Kind, Opaque, Part, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.item_reader import ITEM_TYPES, PROVIDER
from palimpsest.foreign.codex.stored_lines import media_url
from palimpsest.wire.encoding.tools import call_kind, opaque_type, tool_name
from palimpsest.wire.json_reading import Json, is_object

IdField = Callable[[str, str], Json]
_USER_KINDS: frozenset[Kind] = frozenset({"user", "steering"})
_USER_TEXT = "user.text"
_MESSAGE_PARTS = frozenset({"input_text", "input_image", "output_text", "input_audio", "encrypted_content"})


class ItemEncoding(NamedTuple):
    """How items are encoded: the blob store, `name` for the id field of an item, and `call_id` for the ids of calls and results.

    `name` takes a prefix and the provider's id; `call_id` takes the item and the recorded call id.
    """

    blobs: Blobs
    name: IdField
    call_id: Callable[[str, str], str]


@dataclass(slots=True)
class _MessageDraft:
    """A message that is being collected. `kinds` has the kind of each part that a reader would mistake for something else."""

    role: str
    phase: str
    group: str
    ref: str
    parts: list[object] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def add(self, part: object, kind: str) -> None:
        self.parts.append(part)
        self.kinds.append(kind)

    def json(self, id_field: Json) -> Json:
        message: Json = {"type": "message", **id_field, "role": self.role, "content": self.parts}
        if self.phase:
            message["phase"] = self.phase
        if any(self.kinds):
            message["internal_chat_message_metadata_passthrough"] = {"content_item_kinds": [kind or _USER_TEXT for kind in self.kinds]}
        return message


def encode_items(items: Iterable[Item], encoding: ItemEncoding) -> Iterator[Json]:
    """Items of a view as items of a rollout; adjacent parts of one message become one message."""
    message: _MessageDraft | None = None
    for item in items:
        content = item.content
        if isinstance(content, Text | Image | Document) or (isinstance(content, Opaque) and not _is_item(content)):
            role = encoded_role(item)
            part = _part(content, role, encoding.blobs)
            if part is None:
                continue
            phase = content.phase if isinstance(content, Text) else ""
            event, _, rest = item.id.partition(".")
            group = f"{role}:{phase}:{content.ref or (item.id if '.' in rest else event)}"
            if message is None or message.group != group:
                if message is not None:
                    yield message.json(encoding.name("msg", message.ref))
                message = _MessageDraft(role, phase, group, content.ref)
            message.add(part, _part_kind(item, role))
            continue
        if isinstance(content, Thinking) and content.signature is not None and content.signature.provider != PROVIDER:
            # It is not written, so the parts around it are still one message.
            continue
        if message is not None:
            yield message.json(encoding.name("msg", message.ref))
            message = None
        encoded = _encode_item(item, encoding)
        if encoded is not None:
            yield encoded
    if message is not None:
        yield message.json(encoding.name("msg", message.ref))


def encoded_role(item: Item) -> str:
    """The role of an item in a rollout, which has no system role."""
    content = item.content
    role = content.role if isinstance(content, Text) else "assistant" if item.kind == "assistant" else "user"
    return "developer" if role == "system" else role


def _part_kind(item: Item, role: str) -> str:
    """The kind of a part in the user's role, if its text alone would be mistaken for another kind; empty otherwise."""
    if role != "user" or not isinstance(item.content, Text):
        return ""
    if item.kind in _USER_KINDS:
        return _USER_TEXT if is_context_text(item.content.text) else ""
    if is_context_text(item.content.text):
        return ""
    source = item.source or item.kind
    return f"context.{source}" if source.startswith("user.") or source == "unknown" else source


def _part(content: Content, role: str, blobs: Blobs) -> object | None:
    match content:
        case Text():
            return {"type": "output_text" if role == "assistant" else "input_text", "text": content.text} if content.text else None
        case Image() if role != "assistant" and (content.blob or content.url):
            return {"type": "input_image", "image_url": media_url(content, blobs), "detail": content.detail or "auto"}
        case Opaque() if content.provider == PROVIDER and opaque_type(content) in _MESSAGE_PARTS:
            return Raw(content.data.encode())
        case _:
            part_text = text_of(content)
            return {"type": "output_text" if role == "assistant" else "input_text", "text": part_text} if part_text else None


def _is_item(content: Opaque) -> bool:
    return content.provider == PROVIDER and opaque_type(content) in ITEM_TYPES


def _encode_item(item: Item, encoding: ItemEncoding) -> Json | None:
    content = item.content
    match content:
        case Thinking():
            return _reasoning(content, encoding)
        case ToolCall():
            return encode_call(content, encoding.call_id(item.id, content.call_id), encoding)
        case ToolResult():
            return encode_result(content, encoding.call_id(item.id, content.call_id), encoding)
        case Opaque():
            return msgspec.json.decode(content.data, type=dict[str, object])
        case _:
            return None


def _reasoning(content: Thinking, encoding: ItemEncoding) -> Json | None:
    """Reasoning with its encrypted content; None for that of another provider, which cannot be read there."""
    if content.signature is None or content.signature.provider != PROVIDER:
        return None
    digest = [{"type": "summary_text", "text": content.text}] if content.text and content.form == "digest" else []
    id_field, data = encoding.name("rs", content.ref), content.signature.data
    reasoning: Json = {"type": "reasoning", **id_field, "summary": digest, "encrypted_content": data}
    full_text = [{"type": "reasoning_text", "text": content.text}] if content.text and content.form == "whole" else None
    return {**reasoning, "content": full_text} if full_text else reasoning


def encode_call(call: ToolCall, call_id: str, encoding: ItemEncoding) -> Json:
    """A call in the shape of its form, under its id in the file."""
    match call.form:
        case "free":
            custom_call: Json = {"type": "custom_tool_call", **encoding.name("ctc", call.ref), "status": "completed"}
            return {**custom_call, "call_id": call_id, "name": tool_name(call.tool), "input": call.args}
        case "shell" if is_object(call.args):
            shell_call: Json = {"type": "local_shell_call", **encoding.name("lsh", call.ref), "call_id": call_id}
            return {**shell_call, "status": "completed", "action": Raw(call.args.encode())}
        case "search" if is_object(call.args):
            search_call: Json = {"type": "tool_search_call", **encoding.name("tsc", call.ref), "call_id": call_id}
            return {**search_call, "status": "completed", "execution": "client", "arguments": Raw(call.args.encode())}
        case _:
            function_call: Json = {"type": "function_call", **encoding.name("fc", call.ref), "name": tool_name(call.tool)}
            return {**function_call, "arguments": call.args, "call_id": call_id}


def encode_result(result: ToolResult, call_id: str, encoding: ItemEncoding) -> Json:
    """A result in the shape of its call, under the call's id in the file."""
    kind = call_kind(result.form)
    if kind == "search":
        search_output: Json = {"type": "tool_search_output", **encoding.name("tso", result.ref), "call_id": call_id}
        return {**search_output, "status": "completed", "execution": "client", "tools": _tools(result)}
    prefix, name = ("ctco", "custom_tool_call_output") if kind == "custom" else ("fco", "function_call_output")
    return {"type": name, **encoding.name(prefix, result.ref), "call_id": call_id, "output": _output(result.parts, encoding.blobs)}


def _output(parts: tuple[Part, ...], blobs: Blobs) -> object:
    match parts:
        case ():
            return ""
        case (Text(text=part_text),):
            return part_text
        case _:
            return [part for each in parts if (part := _part(each, "user", blobs)) is not None]


def _tools(result: ToolResult) -> object:
    part_text = "".join(part.text for part in result.parts if isinstance(part, Text))
    try:
        tools = msgspec.json.decode(part_text)
    except (msgspec.DecodeError, UnicodeError):
        return []
    return tools if isinstance(tools, list) else []
