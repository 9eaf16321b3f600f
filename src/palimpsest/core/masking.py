"""What a model sees of an item: its content, what stands in for it under a mask, or nothing."""

from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.items import Content, Document, Form, Image, Item, Kind, Opaque, Role, Text, Thinking, ToolCall, ToolResult

_BY_MODEL: Final[frozenset[Kind]] = frozenset({"assistant", "thinking", "call"})


def shown(item: Item, *, drops_cached: bool = False) -> Content | None:
    """What the model sees of an item: its content, its cover in the same place, or nothing.

    A `cached` cover leaves the content in the request. Only a provider with `drops_cached` takes it out, and only a result.
    """
    mask = item.mask
    if mask is None or (mask.form == "cached" and not (drops_cached and isinstance(item.content, ToolResult))):
        return item.content
    return stand_in(item, mask.text) if mask.text else None


def stand_in(item: Item, text: str) -> Content:
    """A text in place of what an item holds, in the same frame: calls and results stay paired, words stay with who said them."""
    content = item.content
    match content:
        case ToolResult():
            return replace(content, parts=(Text(text),), blob="")
        case ToolCall():
            return replace(content, args=_arguments(content.form, text))
        case Text():
            return replace(content, text=text)
        case Thinking() | Image() | Document() | Opaque():
            return Text(text, speaker(item.kind), ref=content.ref)


def is_readable(item: Item) -> bool:
    """Whether the model can read what an item holds."""
    return item.mask is None or item.mask.form == "cached"


def speaker(kind: Kind) -> Role:
    """The role of an item whose content does not state one."""
    return "assistant" if kind in _BY_MODEL else "user"


def _arguments(form: Form, text: str) -> str:
    """A text in place of arguments, in the shape that arguments of this form have."""
    match form:
        case "free":
            return text
        case "shell":
            return msgspec.json.encode({"type": "exec", "command": [text], "env": {}}).decode()
        case "json" | "search":
            return msgspec.json.encode({"note": text}).decode()
