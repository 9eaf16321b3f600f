"""Lenient readers for the JSON of a provider, in which any field may be missing, null or of another type."""

import re
from typing import TypeAlias, TypeGuard

import msgspec

from palimpsest.core.errors import WireError
from palimpsest.core.text import lazy_pattern

Json: TypeAlias = dict[str, object]

_LARGEST = 2**53
_DEEPEST = 200
# Strings are matched whole, so that brackets inside them do not count.
_BRACKETS = lazy_pattern(r'[{}\[\]]|"(?:[^"\\]|\\.)*"?', re.DOTALL)
_encoder = msgspec.json.Encoder()


def parse(data: str | bytes, where: str) -> Json:
    """Parse a JSON object. Raises `WireError`, which quotes the beginning of the data, for anything else."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"expected JSON and got {shorten(data)!r} ({error})", where=where) from error
    except RecursionError as error:
        raise WireError(f"expected JSON and got {shorten(data)!r} (it is nested too deep)", where=where) from error
    if not is_json(value):
        raise WireError(f"expected a JSON object and got {shorten(data)!r}", where=where)
    return value


def shorten(data: str | bytes, size: int = 120) -> str:
    """The first `size` characters of the data on one line, with an ellipsis if it is longer."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text.split())
    return line if len(line) <= size else f"{line[:size]}…"


def is_json(value: object) -> TypeGuard[Json]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def dump(value: object) -> str:
    """Encode a value as compact JSON text."""
    return _encoder.encode(value).decode()


def text(table: Json, key: str) -> str:
    """The string at a key, or the empty string."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def number(table: Json, key: str) -> int:
    """The number at a key as an integer, or 0 if it is missing, negative, a boolean, or 2**53 and more."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return 0
    return int(value)


def table_at(table: Json, key: str) -> Json:
    """The object at a key, or an empty one."""
    value = table.get(key)
    return value if is_json(value) else {}


def tables_at(table: Json, key: str) -> list[Json]:
    """The objects in the list at a key; other entries are skipped. Empty if there is no list."""
    value = table.get(key)
    return [entry for entry in value if is_json(entry)] if isinstance(value, list) else []


def is_object(text: str) -> bool:
    """Whether a text is a JSON object of at most 200 nested levels."""
    if _too_deep(text):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _too_deep(text: str) -> bool:
    # The recursion limit of the interpreter depends on the caller, and the bytes of a request must not.
    if text.count("{") + text.count("[") <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(text):
        if bracket in "{[":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif bracket in "}]":
            depth -= 1
    return False
