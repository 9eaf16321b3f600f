"""Tells the shape of a message list by its structure: types of items and blocks, roles and fields."""

from collections.abc import Iterable, Mapping
from typing import Final

from palimpsest.core.ports import Blobs
from palimpsest.mirror.plain import plain_value
from palimpsest.mirror.shapes.chat import ChatShape
from palimpsest.mirror.shapes.messages import MessagesShape
from palimpsest.mirror.shapes.responses import ResponsesShape
from palimpsest.mirror.shapes.shape import MessageShape
from palimpsest.wire.json_reading import Json, is_json, tables_at, text
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.rules.anthropic import ANTHROPIC_BLOCKS
from palimpsest.wire.rules.responses import RESPONSES_ITEMS, RESPONSES_PARTS

# Parts that more than one shape has.
_SHARED_PARTS: Final = frozenset({"text", "refusal"})
_CHAT_PARTS: Final = frozenset({"image_url", "input_audio", "file"})


def shape_of(wire: WireName, card: ModelCard, blobs: Blobs) -> MessageShape:
    """Return the shape of messages on a wire."""
    match wire:
        case "anthropic":
            return MessagesShape(card, blobs)
        case "responses":
            return ResponsesShape(card, blobs)
        case "chat":
            return ChatShape(card, blobs)


def is_whole_list(request: Mapping[str, object], messages: Iterable[object]) -> bool:
    """Whether the messages of a request are its whole conversation: nothing of it is a list, or an item of one, that the provider holds.

    A `thread` that is not understood is taken for one that the provider holds.
    """
    thread = request.get("thread")
    if thread is not None and not (is_json(thread) and text(thread, "type") == "create"):
        return False
    if request.get("previous_response_id") or request.get("conversation"):
        return False
    return not any(text(plain, "type") == "item_reference" for each in messages if is_json(plain := _shallow(each)))


def _shallow(message: object) -> object:
    return message if is_json(message) else getattr(message, "__dict__", None)


def detected_wire(messages: Iterable[object]) -> WireName | None:
    """Return the wire of the first message that only one shape has, or `None` if all of them are texts with a role."""
    for message in messages:
        plain = plain_value(message)
        if is_json(plain) and (wire := _wire_of(plain)) is not None:
            return wire
    return None


def _wire_of(message: Json) -> WireName | None:
    kind = text(message, "type")
    if kind in RESPONSES_ITEMS:
        return "responses"
    if text(message, "role") in ("tool", "function") or "tool_calls" in message or "refusal" in message:
        return "chat"
    for block in tables_at(message, "content"):
        found = text(block, "type")
        if found in _CHAT_PARTS and found not in RESPONSES_PARTS | ANTHROPIC_BLOCKS:
            return "chat"
        if found in RESPONSES_PARTS - _SHARED_PARTS:
            return "responses"
        if found in ANTHROPIC_BLOCKS - _SHARED_PARTS:
            return "anthropic"
    return None
