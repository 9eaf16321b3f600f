"""Anthropic Messages as contents, and back."""

from typing import Final

from palimpsest.core.items import Content, Document, Image, Item, Part, Role, Text, ToolCall, ToolResult, text_of
from palimpsest.core.view import speaker
from palimpsest.mirror.shapes.shape import PartRead, ShapeParts, Side, call_arguments, part_of, result_text, side_of
from palimpsest.wire.anthropic.decode import decode_block
from palimpsest.wire.encoding.media import blob_part
from palimpsest.wire.encoding.messages import framed_statement, is_statement
from palimpsest.wire.json_reading import Json, is_json, table_at, text
from palimpsest.wire.models.cards import WireName

_CACHE: Final = "cache_control"


class MessagesShape(ShapeParts):
    """Messages with a role and blocks; tool results are blocks of the user."""

    wire: WireName = "anthropic"

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message, one for each block."""
        content, side = message.get("content"), side_of(text(message, "role"))
        if isinstance(content, str):
            return [PartRead(("content", -1), Text(content, _role(side)), side)] if content else []
        if not isinstance(content, list):
            return []
        return [PartRead(("content", index), found, side) for index, block in enumerate(content) for found in self._block(block, side)]

    def _block(self, block: object, side: Side) -> list[Content]:
        if not is_json(block):
            return [Text(block, _role(side))] if isinstance(block, str) and block else []
        if side == "model":
            return list(decode_block(block, self.card))
        if text(block, "type") == "tool_result" and text(block, "tool_use_id"):
            parts = tuple(part_of(each) for each in self._parts(block.get("content")))
            return [ToolResult(text(block, "tool_use_id"), parts, error=block.get("is_error") is True)]
        found = self._part(block, _role(side))
        return [] if found is None else [found]

    def _parts(self, content: object) -> list[Part]:
        entries = content if isinstance(content, list) else [{"type": "text", "text": content}] if isinstance(content, str) else []
        return [found for entry in entries if (found := self._part(entry if is_json(entry) else {"type": "text", "text": entry}, "user"))]

    def _part(self, block: Json, role: Role) -> Part | None:
        match text(block, "type"):
            case "text":
                return Text(text(block, "text"), role) if text(block, "text") else None
            case "image" | "document":
                return self._media(block) or self.opaque(block)
            case _:
                return self.opaque(block)

    def _media(self, block: Json) -> Part | None:
        source = table_at(block, "source")
        url, name = text(source, "url"), text(block, "title")
        if text(source, "type") == "url" and url:
            return Image("image/*", url=url) if block["type"] == "image" else Document("application/pdf", url=url, name=name)
        return blob_part(text(source, "media_type"), text(source, "data"), self.blobs, name) if text(source, "type") == "base64" else None

    def written(self, entry: object, content: Content) -> object:
        """Return a block with the text of another content."""
        if not is_json(entry):
            return text_of(content)
        match content:
            case ToolResult():
                return {**entry, "content": result_text(content)}
            case ToolCall():
                return {**entry, "input": call_arguments(content)}
            case _:
                cached = {_CACHE: entry[_CACHE]} if _CACHE in entry else {}
                return {"type": "text", "text": text_of(content), **cached}

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other blocks."""
        return {**message, "content": _paired_server_tools(fields.get("content", []))}

    def made(self, item: Item) -> Json:
        """Return a message of one block."""
        content = item.content
        match content:
            case ToolCall():
                block: Json = {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": call_arguments(content)}
                return {"role": "assistant", "content": [block]}
            case ToolResult():
                block = {"type": "tool_result", "tool_use_id": content.call_id, "content": result_text(content)}
                return {"role": "user", "content": [block]}
            case Text() if is_statement(content):
                words, role = framed_statement(content.text), "user"
            case Text():
                words, role = content.text, content.role
            case _:
                words, role = text_of(content), speaker(item.kind)
        return {"role": role, "content": [{"type": "text", "text": words}]}

    def replies(self, response: Json) -> list[Json]:
        """Return the reply as the one message that it adds."""
        return [{"role": "assistant", "content": response.get("content")}]


def _role(side: Side) -> Role:
    return "assistant" if side == "model" else "system" if side == "system" else "user"


def _paired_server_tools(blocks: object) -> object:
    """The blocks without those tool calls of the server that have lost their result, and results that have lost their call."""
    if not isinstance(blocks, list):
        return blocks
    calls = {text(block, "id") for block in blocks if is_json(block) and text(block, "type") in ("server_tool_use", "mcp_tool_use")}
    answered = {text(block, "tool_use_id") for block in blocks if is_json(block) and text(block, "type").endswith("_tool_result")}
    return [
        block
        for block in blocks
        if not is_json(block)
        or not (
            (text(block, "type") in ("server_tool_use", "mcp_tool_use") and text(block, "id") not in answered)
            or (text(block, "type").endswith("_tool_result") and text(block, "tool_use_id") not in calls)
        )
    ]
