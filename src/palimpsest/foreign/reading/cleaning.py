"""Taking secrets out of values of ours and out of lines of JSON that stay JSON."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct, structs

from palimpsest.core.items import Document, Image, Signature, Thinking
from palimpsest.core.view import View

Thing = TypeVar("Thing")
Clean: TypeAlias = Callable[[str], str]

# What only a machine reads, and what breaks when a letter of it changes: ciphertext and pictures.
_SEALED = frozenset({"signature", "encrypted_content"})
_TELLING_NAME = re.compile(r"(?i)key|token|secret|pass|pwd|credential|authorization")
# Names by which parts find each other: they are no text, and a session falls apart when one changes.
_NAMES = frozenset({"blob", "before", "call_id", "digest", "first", "id", "ids", "keys", "last", "link", "ref", "session", "tools"})

# JSON may stand in a text of JSON, and so on: escapes of escapes.
_ESCAPED = re.compile(r"\\+([nrtfb\"'/])")
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "f": " ", "b": " "}


def as_is(text: str) -> str:
    """A text unchanged."""
    return text


def clean_value(value: Thing, clean: Clean) -> Thing:
    """A value of ours with every text in it cleaned; names by which parts find each other stay as they are."""
    return cast("Thing", _cleaned(value, clean))


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
            # Encrypted, so nobody reads anything in it, and worth nothing with a letter changed.
            return value
        case Image() | Document() if value.url.startswith("data:"):
            return value
        case Thinking():
            text = clean_text(value.text, clean)
            # A provider refuses thinking that no longer fits its seal.
            return value if text == value.text else structs.replace(value, text=text, signature=None)
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _NAMES}
            changed = {name: after for name, before in fields.items() if (after := _cleaned(before, clean)) != before}
            return structs.replace(value, **changed) if changed else value
        case _:
            return value


def clean_view(view: View, clean: Clean) -> View:
    """A view that shows the same without secrets."""
    return structs.replace(view, head=clean_value(view.head, clean), items=clean_value(view.items, clean))


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
    # A type may be anything in a line of somebody else.
    sealed = _SEALED | {"data"} if value.get("type") in ("base64", "redacted_thinking") else _SEALED
    cleaned = {clean(name): each if name in sealed else _clean_named(name, each, clean) for name, each in value.items()}
    thought = value.get("thinking")
    if value.get("type") == "thinking" and cleaned.get("thinking") != thought:
        # A provider refuses thinking that no longer fits its signature.
        return {"type": "text", "text": cleaned["thinking"]}
    return cleaned


def _clean_named(name: str, value: Any, clean: Clean) -> Any:
    if isinstance(value, str) and _TELLING_NAME.search(name):
        opening = f'{name}="'
        whole = clean(f'{opening}{value}"')
        if whole.startswith(opening) and whole.endswith('"'):
            value = whole[len(opening) : -1]
    return _clean_value(value, clean)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
