"""Removes secrets from values and from lines of JSON, which stay valid JSON."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct, structs

from palimpsest.core.items import Document, Image, Signature, Thinking
from palimpsest.core.view import View

AnyValue = TypeVar("AnyValue")
Clean: TypeAlias = Callable[[str], str]

# Fields with ciphertext or image data: changing one character makes them useless.
_ENCRYPTED_FIELDS = frozenset({"signature", "encrypted_content"})
_SECRET_KEY = re.compile(r"(?i)key|token|secret|pass|pwd|credential|authorization")
# Fields with ids and references: a session is unusable if one of them changes.
_ID_FIELDS = frozenset({"blob", "before", "call_id", "digest", "first", "id", "ids", "keys", "last", "link", "ref", "session", "tools"})

# Strings of JSON may contain JSON, and so on, so that escapes are escaped again.
_ESCAPED = re.compile(r"\\+([nrtfb\"'/])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": " ", "b": " "}


def as_is(text: str) -> str:
    """The text unchanged."""
    return text


def clean_value(value: AnyValue, clean: Clean) -> AnyValue:
    """A copy of a value in which `clean` was applied to every text; ids and references stay as they are."""
    return cast("AnyValue", _cleaned(value, clean))


def _cleaned(value: object, clean: Clean) -> object:
    match value:
        case str():
            return clean_text(value, clean)
        case Raw():
            line = bytes(value)
            return value if (cleaned := clean_line(line, clean)) == line else Raw(cleaned)
        case tuple():
            return tuple(_cleaned(each, clean) for each in value)
        case dict():
            return {name: _clean_named(name, each, clean) for name, each in value.items()}
        case Signature():
            # Encrypted: it shows no secret, and is worthless once a character changes.
            return value
        case Image() | Document() if value.url.startswith("data:"):
            return value
        case Thinking():
            text = clean_text(value.text, clean)
            # A provider refuses thinking that does not match its signature.
            return value if text == value.text else structs.replace(value, text=text, signature=None)
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _ID_FIELDS}
            changed = {name: after for name, before in fields.items() if (after := _cleaned(before, clean)) != before}
            return structs.replace(value, **changed) if changed else value
        case _:
            return value


def clean_view(view: View, clean: Clean) -> View:
    """A copy of a view in which `clean` was applied to every text."""
    return structs.replace(view, head=clean_value(view.head, clean), items=clean_value(view.items, clean))


def clean_line(line: bytes, clean: Clean) -> bytes:
    """A line of JSON with `clean` applied to its strings; a line without secrets keeps its bytes."""
    if _has_no_secrets(line, clean):
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


def _has_no_secrets(line: bytes, clean: Clean) -> bool:
    """Whether a whole line has no secrets, both as written and with escapes resolved: much faster than checking each string.

    False for lines with numeric escapes, because those are not resolved here.
    """
    if b"\\u" in line:
        return False
    text = line.decode("utf-8", "replace")
    unescaped = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)
    return clean(text) == text and clean(unescaped) == unescaped


def clean_text(text: str, clean: Clean) -> str:
    """A text with `clean` applied; a text that is JSON stays JSON."""
    cleaned = clean(text)
    if not text.lstrip().startswith(("{", "[")):
        return cleaned
    try:
        value = json.loads(text)
    except ValueError:
        return cleaned
    # Keys next to values reveal secrets only in the whole text, and escapes hide them only there: so both are checked, in this order.
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
    # The type may have any JSON value here.
    encrypted = _ENCRYPTED_FIELDS | {"data"} if value.get("type") in ("base64", "redacted_thinking") else _ENCRYPTED_FIELDS
    cleaned = {clean(name): each if name in encrypted else _clean_named(name, each, clean) for name, each in value.items()}
    thinking = value.get("thinking")
    if value.get("type") == "thinking" and cleaned.get("thinking") != thinking:
        # A provider refuses thinking that does not match its signature.
        return {"type": "text", "text": cleaned["thinking"]}
    return cleaned


def _clean_named(name: str, value: Any, clean: Clean) -> Any:
    if isinstance(value, str) and _SECRET_KEY.search(name):
        opening = f'{name}="'
        assignment = clean(f'{opening}{value}"')
        if assignment.startswith(opening) and assignment.endswith('"'):
            value = assignment[len(opening) : -1]
    return _clean_value(value, clean)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
