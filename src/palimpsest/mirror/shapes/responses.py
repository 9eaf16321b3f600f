"""Input items of OpenAI Responses as contents, and back."""

from typing import Final

from palimpsest.core.items import Content, Form, Image, Item, Part, Role, Text, ToolCall, ToolResult, text_of
from palimpsest.core.view import speaker
from palimpsest.mirror.shapes.shape import WHOLE, PartRead, ShapeParts, Side, part_of, result_text, side_of
from palimpsest.wire.encoding.media import linked_part
from palimpsest.wire.json_reading import Json, dump, is_json, tables_at, text
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.responses.decode import decode_item

_ROLES: Final[dict[str, Role]] = {"assistant": "assistant", "system": "system", "developer": "developer"}
# Calls of tools that the client runs, with the field of their arguments; `decode_item` knows the others.
_CLIENT_CALLS: Final = {"computer_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
_OUTPUTS: Final[dict[str, Form]] = {
    "function_call_output": "json",
    "computer_call_output": "json",
    "shell_call_output": "json",
    "apply_patch_call_output": "json",
    "custom_tool_call_output": "free",
    "local_shell_call_output": "shell",
    "tool_search_output": "search",
}
# What a client states to the model from here on: tools that join, and another effort or format.
_STATEMENTS: Final = frozenset({"additional_tools", "configuration_update"})
_ARGUMENTS: Final = {"json": "arguments", "free": "input", "shell": "action", "search": "arguments"}


class ResponsesShape(ShapeParts):
    """Items: messages with parts, reasoning, calls and outputs."""

    wire: WireName = "responses"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of an item; reasoning has one for each part of its summary."""
        kind = text(message, "type") or ("message" if "role" in message else "")
        call_id = text(message, "call_id")
        if kind == "message":
            name = text(message, "role")
            role = _ROLES.get(name, "user")
            return [PartRead(("content", index), found, side_of(name)) for index, found in self._contents(message, role)]
        if kind in _OUTPUTS and call_id:
            output = message.get("output")
            told = output if isinstance(output, str | list) else dump(message.get("tools") if output is None else output)
            parts = tuple(part_of(found) for _, found in self._contents({"content": told}, "user"))
            return [PartRead(WHOLE, ToolResult(call_id, parts, form=_OUTPUTS[kind], ref=text(message, "id")), "user")]
        if kind in _CLIENT_CALLS and call_id:
            call = ToolCall(call_id, kind, dump(message.get(_CLIENT_CALLS[kind]) or {}), ref=text(message, "id"))
            return [PartRead(WHOLE, call, "model")]
        side: Side = "user" if kind in _OUTPUTS else "system" if kind in _STATEMENTS else "model"
        return [PartRead(WHOLE, found, side) for found in decode_item(message, self.card)]

    def _contents(self, message: Json, role: Role) -> list[tuple[int, Part]]:
        content = message.get("content")
        phase = text(message, "phase")
        if isinstance(content, str):
            return [(-1, Text(content, role, phase))] if content else []
        entries = content if isinstance(content, list) else []
        return [(index, found) for index, entry in enumerate(entries) if (found := self._part(entry, role, phase)) is not None]

    def _part(self, entry: object, role: Role, phase: str) -> Part | None:
        if not is_json(entry):
            return Text(entry, role, phase) if isinstance(entry, str) and entry else None
        match text(entry, "type"):
            case "input_text" | "output_text" | "text" | "refusal":
                words = text(entry, "text") or text(entry, "refusal")
                return Text(words, role, phase) if words else None
            case "input_image":
                found = linked_part(text(entry, "image_url"), self.blobs)
                return found if isinstance(found, Image) else self.opaque(entry)
            case _:
                return self.opaque(entry)

    def written(self, entry: object, content: Content) -> object:
        """Return an item or a part with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult() if text(entry, "type") in _OUTPUTS:
                return {**entry, "output": result_text(content)}
            case ToolCall():
                return {**entry, _ARGUMENTS[content.form]: content.args}
            case _ if "role" in entry or text(entry, "type") not in ("input_text", "output_text", "refusal", "text"):
                return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text_of(content)}]}
            case _:
                return {**entry, "text": text_of(content)}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other parts, without its id: what the provider stored under it is another message."""
        return {**{key: value for key, value in message.items() if key != "id"}, **fields}

    def made(self, item: Item) -> Json:
        """Return an item of one content."""
        content = item.content
        match content:
            case ToolCall():
                return {"type": "function_call", "call_id": content.call_id, "name": content.tool, "arguments": content.args}
            case ToolResult():
                return {"type": "function_call_output", "call_id": content.call_id, "output": result_text(content)}
            case Text():
                role, words = content.role, content.text
            case _:
                role, words = speaker(item.kind), text_of(content)
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": words}
        return {"type": "message", "role": role, "content": [part]}

    def replies(self, response: Json) -> list[Json]:
        """Return the output items."""
        return tables_at(response, "output")
