"""Taking secrets out of what is written for others: contents, views, and lines of JSON that stay JSON."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from msgspec import structs

from palimpsest.core.items import Content, Document, Image, Item, Opaque, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.view import View

AnyContent = TypeVar("AnyContent", bound=Content)
Clean: TypeAlias = Callable[[str], str]

# What only a machine reads, and what breaks when a letter of it changes: ciphertext and pictures.
_SEALED = frozenset({"signature", "encrypted_content"})
_TELLING_NAME = re.compile(r"(?i)key|token|secret|passw|passphrase|credential|authorization")

# JSON may stand in a text of JSON, and so on: escapes of escapes.
_ESCAPED = re.compile(r"\\+([nrtfb\"'/])")
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "f": " ", "b": " "}


def as_is(text: str) -> str:
    """A text unchanged."""
    return text


def clean_content(content: AnyContent, clean: Clean) -> AnyContent:
    """A content with every readable text of it cleaned; thinking that changed loses its seal, which no longer fits it."""
    return _cleaned(content, clean)  # type: ignore[return-value]  # each arm gives back the type it was given


def _cleaned(content: Content, clean: Clean) -> Content:
    match content:
        case Text():
            return structs.replace(content, text=clean(content.text))
        case Thinking():
            text = clean(content.text)
            return content if text == content.text else structs.replace(content, text=text, seal=None)
        case ToolCall():
            return structs.replace(content, args=clean_text(content.args, clean))
        case ToolResult():
            return structs.replace(content, parts=tuple(clean_content(part, clean) for part in content.parts))
        case Image() | Document():
            return content if content.url.startswith("data:") else structs.replace(content, url=clean(content.url))
        case Opaque():
            return structs.replace(content, data=clean_text(content.data, clean), twin=clean(content.twin))


def clean_view(view: View, clean: Clean) -> View:
    """A view that shows the same without secrets."""
    return structs.replace(view, head=_clean_items(view.head, clean), items=_clean_items(view.items, clean))


def _clean_items(items: tuple[Item, ...], clean: Clean) -> tuple[Item, ...]:
    return tuple(_clean_item(item, clean) for item in items)


def _clean_item(item: Item, clean: Clean) -> Item:
    mask = None if item.mask is None else structs.replace(item.mask, text=clean(item.mask.text))
    return structs.replace(item, content=clean_content(item.content, clean), mask=mask)


def clean_line(line: bytes, clean: Clean) -> bytes:
    """A line of JSON with the secrets in its texts replaced; one that holds none keeps its bytes."""
    if _free_of_secrets(line, clean):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return clean(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    cleaned = _clean_value(value, clean)
    if cleaned == value:
        return line
    end = b"\n" if line.endswith(b"\n") else b""
    return _dumped(cleaned).encode("utf-8", "backslashreplace") + end


def _free_of_secrets(line: bytes, clean: Clean) -> bool:
    """Whether two looks at a whole line are enough, as it is written and as it is meant: many looks at its texts would see no more.

    Where letters are written as numbers they are not.
    """
    if b"\\u" in line:
        return False
    text = line.decode("utf-8", "replace")
    meant = _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), text)
    return clean(text) == text and clean(meant) == meant


def clean_text(text: str, clean: Clean) -> str:
    """A text cleaned; one that is JSON stays JSON."""
    cleaned = clean(text)
    if not text.lstrip().startswith(("{", "[")):
        return cleaned
    try:
        value = json.loads(text)
    except ValueError:
        return cleaned
    # Names beside values tell secrets only in the whole text, and escapes hide them only there: so both ways, one after the other.
    try:
        value = json.loads(cleaned)
    except ValueError:
        cleaned = text
    inner = _clean_value(value, clean)
    return cleaned if inner == value else _dumped(inner)


def _clean_value(value: Any, clean: Clean) -> Any:
    match value:
        case str():
            return value if value.startswith("data:") else clean_text(value, clean)
        case list():
            return [_clean_value(each, clean) for each in value]
        case dict():
            return _clean_object(value, clean)
        case _:
            return value


def _clean_object(value: dict[str, Any], clean: Clean) -> dict[str, Any]:
    sealed = _SEALED | {"data"} if value.get("type") in {"base64", "redacted_thinking"} else _SEALED
    cleaned = {clean(name): each if name in sealed else _clean_named(name, each, clean) for name, each in value.items()}
    thought = value.get("thinking")
    if value.get("type") == "thinking" and cleaned.get("thinking") != thought:
        # A provider refuses thinking that no longer fits its signature.
        return {"type": "text", "text": cleaned["thinking"]}
    return cleaned


def _clean_named(name: str, value: Any, clean: Clean) -> Any:
    if isinstance(value, str) and _TELLING_NAME.search(name):
        opening = f"{name}: "
        whole = clean(opening + value)
        if whole.startswith(opening):
            value = whole[len(opening) :]
    return _clean_value(value, clean)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
