"""Messages of Chat Completions as contents, and back."""

from typing import Final

from palimpsest.core.items import Content, Document, Image, Item, Part, Role, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.view import speaker
from palimpsest.mirror.shapes.shape import WHOLE, PartRead, ShapeParts, part_of, result_text, side_of
from palimpsest.wire.encoding.media import linked_part
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text
from palimpsest.wire.models.cards import WireName

_THINKING: Final = ("reasoning_content", "reasoning", "reasoning_text")
_FIELDS: Final = frozenset({"content", "tool_calls", "refusal", *_THINKING})
_ROLES: Final[dict[str, Role]] = {"assistant": "assistant", "system": "system", "developer": "developer"}


class ChatShape(ShapeParts):
    """Messages with a role, a content and tool calls; a tool result is a message."""

    wire: WireName = "chat"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message: reasoning, texts and media, then calls."""
        name = text(message, "role")
        if name == "tool":
            parts = tuple(part_of(found) for _, found in self._contents(message, "user"))
            return [PartRead(WHOLE, ToolResult(text(message, "tool_call_id"), parts), "user")]
        if name == "function":
            return [PartRead(WHOLE, self.opaque(message), "user")]
        side = side_of(name)
        found: list[PartRead] = []
        if side == "model":
            found += [PartRead((field, -1), Thinking(text(message, field)), side) for field in _THINKING if text(message, field)]
        found += [PartRead(("content", index), content, side) for index, content in self._contents(message, _ROLES.get(name, "user"))]
        if side == "model":
            if text(message, "refusal"):
                found.append(PartRead(("refusal", -1), Text(text(message, "refusal"), "assistant"), side))
            calls = message.get("tool_calls")
            entries = calls if isinstance(calls, list) else []
            found += [PartRead(("tool_calls", index), self._call(entry), side) for index, entry in enumerate(entries)]
        return found

    def _call(self, entry: object) -> Content:
        if not is_json(entry):
            return self.opaque(entry)
        free = is_json(entry.get("custom"))
        function = table_at(entry, "custom" if free else "function")
        given = function.get("input" if free else "arguments")
        args = given if isinstance(given, str) else dump(given or {})
        return ToolCall(text(entry, "id"), text(function, "name"), args or "{}", form="free" if free else "json")

    def _contents(self, message: Json, role: Role) -> list[tuple[int, Part]]:
        content = message.get("content")
        if isinstance(content, str):
            return [(-1, Text(content, role))] if content else []
        entries = content if isinstance(content, list) else []
        return [(index, found) for index, entry in enumerate(entries) if (found := self._part(entry, role)) is not None]

    def _part(self, entry: object, role: Role) -> Part | None:
        if not is_json(entry):
            return Text(entry, role) if isinstance(entry, str) and entry else None
        match text(entry, "type"):
            case "text" | "refusal":
                words = text(entry, "text") or text(entry, "refusal")
                return Text(words, role) if words else None
            case "image_url":
                link = entry.get("image_url")
                return linked_part(text(link, "url") if is_json(link) else text(entry, "image_url"), self.blobs) or self.opaque(entry)
            case "file":
                file = table_at(entry, "file")
                return _named(linked_part(text(file, "file_data"), self.blobs), text(file, "filename")) or self.opaque(entry)
            case _:
                return self.opaque(entry)

    def written(self, entry: object, content: Content) -> object:
        """Return a message, a part or a call with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult():
                return {**entry, "content": result_text(content)}
            case ToolCall():
                field, key = ("custom", "input") if content.form == "free" else ("function", "arguments")
                return {**entry, field: {**table_at(entry, field), key: content.args}}
            case _:
                return {"type": "text", "text": text_of(content)}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other contents; a reply of calls only has the content null."""
        rest = {key: value for key, value in message.items() if key not in _FIELDS}
        return {**rest, "content": None, **fields} if "tool_calls" in fields else {**rest, **fields}

    def made(self, item: Item) -> Json:
        """Return a message of one content."""
        content = item.content
        match content:
            case ToolCall():
                call = {"id": content.call_id, "type": "function", "function": {"name": content.tool, "arguments": content.args}}
                return {"role": "assistant", "content": None, "tool_calls": [call]}
            case ToolResult():
                return {"role": "tool", "tool_call_id": content.call_id, "content": result_text(content)}
            case Text():
                return {"role": content.role, "content": content.text}
            case _:
                return {"role": speaker(item.kind), "content": text_of(content)}

    def replies(self, response: Json) -> list[Json]:
        """Return the message of the first choice."""
        return [table_at(choice, "message") for choice in tables_at(response, "choices")[:1]]


def _named(part: Part | None, name: str) -> Part | None:
    """A document under its name; what is sent as a file is a document even if it is a picture."""
    return Document(part.media, part.blob, part.url, name) if isinstance(part, Image | Document) else part
