"""Words in place of pictures and documents, for requests that need not see them; the log keeps what they were."""

from msgspec.structs import replace

from palimpsest.core.items import Content, Document, Image, Item, Opaque, Part, Text, Thinking, ToolCall, ToolResult

IMAGE = "[image]"
DOCUMENT = "[document]"


def strip_images(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items with `[image]` and `[document]` where such things were, within results too; the others are the same objects."""
    return tuple(item if (content := _plain(item.content)) is item.content else replace(item, content=content) for item in items)


def _plain(content: Content) -> Content:
    match content:
        case Image() | Document():
            return _part(content)
        case ToolResult(parts=parts):
            plain = tuple(_part(part) for part in parts)
            return content if plain == parts else replace(content, parts=plain)
        case Text() | Thinking() | ToolCall() | Opaque():
            return content


def _part(part: Part) -> Part:
    match part:
        case Image(ref=ref):
            return Text(IMAGE, ref=ref)
        case Document(ref=ref):
            return Text(DOCUMENT, ref=ref)
        case Text() | Opaque():
            return part
