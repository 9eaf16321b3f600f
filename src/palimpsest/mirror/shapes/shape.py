"""What a shape of messages can do: read a message as contents, write a content back at its place, and make a message of a new content."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from palimpsest.core.items import Content, Document, Image, Item, Opaque, Part, Text, ToolCall, ToolResult, text_of
from palimpsest.core.ports import Blobs
from palimpsest.wire.json_reading import Json, dump, is_json
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.reply import text_fallback

# A field of a message and the number of an entry in it; the number is -1 if the field is a text.
At: TypeAlias = tuple[str, int]
WHOLE: Final[At] = ("", -1)
"""The place of a content that is the message itself, such as a tool result of Chat Completions."""
Side: TypeAlias = Literal["model", "user", "system"]


class PartRead(NamedTuple):
    """A content of a message, where it stands in the message, and who says it."""

    at: At
    content: Content
    side: Side


class MessageShape(Protocol):
    """One shape of messages, for one model."""

    @property
    def wire(self) -> WireName:
        """The wire on which messages of this shape are sent."""
        ...

    def read(self, message: Json) -> list[PartRead]:
        """Return the contents of a message, in order; texts that are empty are left out."""
        ...

    def written(self, entry: object, content: Content) -> object:
        """Return an entry of a message, or a whole message, with the text of another content; all else in it stays."""
        ...

    def framed(self, message: Json, fields: dict[str, object]) -> Json:
        """Return a message with other values of the fields that hold its contents."""
        ...

    def made(self, item: Item) -> Json:
        """Return a message for an item that no message of the owner holds."""
        ...

    def replies(self, response: Json) -> list[Json]:
        """Return the messages that a response of the provider adds to the list."""
        ...


class ShapeParts:
    """What reading needs in every shape: the model whose state opaque parts are, and the store of images and documents."""

    def __init__(self, card: ModelCard, blobs: Blobs) -> None:
        self.card = card
        self.blobs = blobs

    def opaque(self, entry: object, ref: str = "") -> Opaque:
        """Return an entry that only its provider understands."""
        data: Json = entry if is_json(entry) else {"type": "unknown", "value": entry}
        return Opaque(self.card.provider, self.card.name, dump(data), text_fallback(data), ref)


def side_of(role: str) -> Side:
    """Return who speaks in a role."""
    return "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"


def part_of(content: Content) -> Part:
    """Return a content as a part of a user message or a result; a call or a result inside of one becomes its text."""
    return content if isinstance(content, Text | Image | Document | Opaque) else Text(text_of(content))


def rebuilt(shape: MessageShape, raw: object, plain: Json, kept: Sequence[tuple[At, Content | None]]) -> object:
    """Return a message with some of its contents; a content of `None` stays as it is, and the same object if it is one of the owner's."""
    if any(at == WHOLE for at, _ in kept):
        replaced = next((content for _, content in kept if content is not None), None)
        return raw if replaced is None else shape.written(plain, replaced)
    source = raw if is_json(raw) else plain
    fields: dict[str, object] = {}
    for (field, index), content in kept:
        whole = plain[field]
        if index < 0 or not isinstance(whole, list):
            fields[field] = whole if content is None else shape.written(whole, content)
            continue
        given = source[field]
        entry = given[index] if isinstance(given, list) else whole[index]
        entries = fields.setdefault(field, [])
        if isinstance(entries, list):
            entries.append(entry if content is None else shape.written(whole[index], content))
    return shape.framed(source, fields)


def call_arguments(call: ToolCall) -> object:
    """Return the arguments of a call as a value; the text itself if it is no JSON."""
    try:
        value: object = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"text": call.args}
    return value


def result_text(result: ToolResult) -> str:
    """Return the text of a result; images in it become a word about them."""
    return text_of(result)
