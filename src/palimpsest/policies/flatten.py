"""A conversation as one text: who said what, which tools were called, what they gave back."""

from collections.abc import Iterable

from palimpsest.core.items import Content, Document, Image, Item, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.masking import shown

LONGEST_RESULT = 2_000


def flatten(items: Iterable[Item], longest: int = LONGEST_RESULT) -> str:
    """Items as text with a blank line between them; a long result is cut and says so."""
    return "\n\n".join(line for item in items if (line := _line(shown(item), longest)))


def attached(part: Image | Document) -> str:
    """What stands for a file that is not sent."""
    name = part.name if isinstance(part, Document) else part.url
    return f"[Attached {part.media}: {name}]" if name else f"[Attached {part.media}]"


def _line(content: Content | None, longest: int) -> str:
    match content:
        case None:
            return ""
        case Text():
            return f"[{'Assistant' if content.role == 'assistant' else 'User'}]: {content.text}"
        case Thinking():
            return f"[Assistant reasoning]: {content.text}" if content.text else ""
        case ToolCall():
            return f"[Assistant tool call]: {content.tool}({content.args})"
        case ToolResult():
            text = "\n".join(_part(part) for part in content.parts)
            cut = f"{text[:longest]}\n[truncated]" if len(text) > longest else text
            return f"[{'Tool error' if content.error else 'Tool result'}]: {cut}"
        case Image() | Document():
            return f"[User]: {attached(content)}"
        case Opaque():
            return f"[Assistant]: {content.twin}" if content.twin else ""


def _part(part: Text | Image | Document | Opaque) -> str:
    match part:
        case Text():
            return part.text
        case Opaque():
            return part.twin
        case Image() | Document():
            return attached(part)
