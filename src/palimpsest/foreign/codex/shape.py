"""Contents of ours as the items of a rollout, whatever program they came from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Raw

from palimpsest.audit.context_tags import is_context_text
from palimpsest.core.items import Content, Document, Image, Item, Kind, Opaque, Part, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.items import ITEM_TYPES, PROVIDER
from palimpsest.foreign.codex.lines import picture_url
from palimpsest.wire.encoding.tools import call_kind, opaque_type, tool_name
from palimpsest.wire.json_reading import Json, is_object

Name = Callable[[str, str], Json]
_SPOKEN: frozenset[Kind] = frozenset({"user", "steering"})
_WORDS = "user.text"
_PARTS = frozenset({"input_text", "input_image", "output_text", "input_audio", "encrypted_content"})


class Shaping(NamedTuple):
    """How items are written: where pictures are, the id that a prefix and the provider's own id give an item, if any, and ids of calls.

    The latter are by the item and the recorded id of a call or result.
    """

    blobs: Blobs
    name: Name
    call_id: Callable[[str, str], str]


@dataclass(slots=True)
class _Message:
    """A message in the making; `kinds` says of each part what it is, where a reader would take it for something else."""

    role: str
    phase: str
    group: str
    ref: str
    parts: list[object] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def add(self, part: object, kind: str) -> None:
        self.parts.append(part)
        self.kinds.append(kind)

    def json(self, named: Json) -> Json:
        message: Json = {"type": "message", **named, "role": self.role, "content": self.parts}
        if self.phase:
            message["phase"] = self.phase
        if any(self.kinds):
            message["internal_chat_message_metadata_passthrough"] = {"content_item_kinds": [kind or _WORDS for kind in self.kinds]}
        return message


def items_of(items: Iterable[Item], shaping: Shaping) -> Iterator[Json]:
    """Items of a view as items of a rollout: neighbours that were one message are one again."""
    message: _Message | None = None
    for item in items:
        content = item.content
        if isinstance(content, Text | Image | Document) or (isinstance(content, Opaque) and not _is_item(content)):
            role = role_in(item)
            part = _part(content, role, shaping.blobs)
            if part is None:
                continue
            phase = content.phase if isinstance(content, Text) else ""
            group = f"{role}:{phase}:{content.ref or _origin(item)}"
            if message is None or message.group != group:
                if message is not None:
                    yield message.json(shaping.name("msg", message.ref))
                message = _Message(role, phase, group, content.ref)
            message.add(part, _kind_in(item, role))
            continue
        if isinstance(content, Thinking) and content.seal is not None and content.seal.provider != PROVIDER:
            # Nothing of it is sent, so that what stands around it is still one message.
            continue
        if message is not None:
            yield message.json(shaping.name("msg", message.ref))
            message = None
        made = _alone(item, shaping)
        if made is not None:
            yield made
    if message is not None:
        yield message.json(shaping.name("msg", message.ref))


def _origin(item: Item) -> str:
    event, _, rest = item.id.partition(".")
    return item.id if "." in rest else event


def role_in(item: Item) -> str:
    """Who says an item in a rollout, which knows no system messages."""
    content = item.content
    role = content.role if isinstance(content, Text) else "assistant" if item.kind == "assistant" else "user"
    return "developer" if role == "system" else role


def _kind_in(item: Item, role: str) -> str:
    """What a part in the user's role is, where its text alone would tell a reader otherwise; the names are open."""
    if role != "user" or not isinstance(item.content, Text):
        return ""
    if item.kind in _SPOKEN:
        return _WORDS if is_context_text(item.content.text) else ""
    if is_context_text(item.content.text):
        return ""
    source = item.source or item.kind
    return f"context.{source}" if source.startswith("user.") or source == "unknown" else source


def _part(content: Content, role: str, blobs: Blobs) -> object | None:
    match content:
        case Text():
            return {"type": "output_text" if role == "assistant" else "input_text", "text": content.text} if content.text else None
        case Image() if role != "assistant" and (content.blob or content.url):
            return {"type": "input_image", "image_url": picture_url(content, blobs), "detail": content.detail or "auto"}
        case Opaque() if content.provider == PROVIDER and opaque_type(content) in _PARTS:
            return Raw(content.data.encode())
        case _:
            said = text_of(content)
            return {"type": "output_text" if role == "assistant" else "input_text", "text": said} if said else None


def _is_item(content: Opaque) -> bool:
    return content.provider == PROVIDER and opaque_type(content) in ITEM_TYPES


def _alone(item: Item, shaping: Shaping) -> Json | None:
    content = item.content
    match content:
        case Thinking():
            return _reasoning(content, shaping)
        case ToolCall():
            return call_of(content, shaping.call_id(item.id, content.call_id), shaping)
        case ToolResult():
            return result_of(content, shaping.call_id(item.id, content.call_id), shaping)
        case Opaque():
            return msgspec.json.decode(content.data, type=dict[str, object])
        case _:
            return None


def _reasoning(content: Thinking, shaping: Shaping) -> Json | None:
    """Sealed thoughts go back to the provider that sealed them; those of others cannot be read there."""
    if content.seal is None or content.seal.provider != PROVIDER:
        return None
    digest = [{"type": "summary_text", "text": content.text}] if content.text and content.form == "digest" else []
    thought: Json = {"type": "reasoning", **shaping.name("rs", content.ref), "summary": digest, "encrypted_content": content.seal.data}
    whole = [{"type": "reasoning_text", "text": content.text}] if content.text and content.form == "whole" else None
    return {**thought, "content": whole} if whole else thought


def call_of(call: ToolCall, call_id: str, shaping: Shaping) -> Json:
    """A call under the id that it has in the file, in the shape of its form."""
    match call.form:
        case "free":
            called: Json = {"type": "custom_tool_call", **shaping.name("ctc", call.ref), "status": "completed"}
            return {**called, "call_id": call_id, "name": tool_name(call.tool), "input": call.args}
        case "shell" if is_object(call.args):
            ran: Json = {"type": "local_shell_call", **shaping.name("lsh", call.ref), "call_id": call_id}
            return {**ran, "status": "completed", "action": Raw(call.args.encode())}
        case "search" if is_object(call.args):
            sought: Json = {"type": "tool_search_call", **shaping.name("tsc", call.ref), "call_id": call_id}
            return {**sought, "status": "completed", "execution": "client", "arguments": Raw(call.args.encode())}
        case _:
            asked: Json = {"type": "function_call", **shaping.name("fc", call.ref), "name": tool_name(call.tool)}
            return {**asked, "arguments": call.args, "call_id": call_id}


def result_of(result: ToolResult, call_id: str, shaping: Shaping) -> Json:
    """A result under the id that its call has in the file, in the shape that its call has."""
    kind = call_kind(result.form)
    if kind == "search":
        found: Json = {"type": "tool_search_output", **shaping.name("tso", result.ref), "call_id": call_id}
        return {**found, "status": "completed", "execution": "client", "tools": _tools(result)}
    prefix, name = ("ctco", "custom_tool_call_output") if kind == "custom" else ("fco", "function_call_output")
    return {"type": name, **shaping.name(prefix, result.ref), "call_id": call_id, "output": _output(result.parts, shaping.blobs)}


def _output(parts: tuple[Part, ...], blobs: Blobs) -> object:
    match parts:
        case ():
            return ""
        case (Text(text=said),):
            return said
        case _:
            return [part for each in parts if (part := _part(each, "user", blobs)) is not None]


def _tools(result: ToolResult) -> object:
    said = "".join(part.text for part in result.parts if isinstance(part, Text))
    try:
        tools = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError):
        return []
    return tools if isinstance(tools, list) else []
