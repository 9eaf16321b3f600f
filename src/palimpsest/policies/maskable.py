"""Which tool results of a view Claude Code may mask, and what a result is when it is written to a file."""

from collections.abc import Set as AbstractSet

import msgspec

from palimpsest.audit.pins import pinned
from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import pairs_of
from palimpsest.core.view import View

TOOLS = frozenset({"Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write"})
CLEARED = "[Old tool result content cleared]"
PERSISTED = "<persisted-output>"


def maskable(view: View, tools: AbstractSet[str] = TOOLS) -> tuple[Item, ...]:
    """The results of these tools, masked or not, in the order they came."""
    return tuple([result for call, result in pairs_of(view.items) if isinstance(call.content, ToolCall) and call.content.tool in tools])


def spared(view: View) -> frozenset[str]:
    """The items that a mask leaves alone: those that the user pinned, or brought back by an undo."""
    return pinned(view) | view.held


def is_placeholder(item: Item) -> bool:
    """Whether a result is empty, or says already that its content lies elsewhere."""
    text = text_of(item.content)
    return not text or text.isspace() or text == CLEARED or PERSISTED in text


def whole(result: ToolResult) -> tuple[str, str]:
    """A result as the text of a file, and the file's suffix: plain text, or a list as indented JSON."""
    match result.parts:
        case (Text(text=text),):
            return text, ".txt"
        case parts:
            return msgspec.json.format(listed(parts), indent=2).decode(), ".json"


def listed(parts: tuple[Part, ...]) -> bytes:
    """The parts of a result as compact JSON."""
    return msgspec.json.encode([_block(part) for part in parts])


def _block(part: Part) -> object:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(media=media, blob=blob, url=url):
            return {"type": "image", "media_type": media, "source": url or blob}
        case Document(media=media, blob=blob, url=url):
            return {"type": "document", "media_type": media, "source": url or blob}
        case Opaque(twin=twin):
            return {"type": "text", "text": twin}
