"""Reading JSON of a provider that may leave out, null or add anything."""

import re
from typing import TypeAlias, TypeGuard

import msgspec

from palimpsest.core.errors import WireError

Json: TypeAlias = dict[str, object]

_LARGEST = 2**53
_DEEPEST = 200
# Strings are matched as a whole, so that brackets within them do not count.
_BRACKETS = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*"?', re.DOTALL)
_encoder = msgspec.json.Encoder()


def parse(data: str | bytes, where: str) -> Json:
    """A JSON object, or a `WireError` that shows how it begins."""
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
    """The beginning of some data on one line."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text.split())
    return line if len(line) <= size else f"{line[:size]}…"


def is_json(value: object) -> TypeGuard[Json]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def dump(value: object) -> str:
    """A value as compact JSON."""
    return _encoder.encode(value).decode()


def text(table: Json, key: str) -> str:
    """A string, or the empty one."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def number(table: Json, key: str) -> int:
    """A whole number that is not negative, or zero; `true` is no number, and neither is what no counter can hold."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return 0
    return int(value)


def table_at(table: Json, key: str) -> Json:
    """An object, or an empty one."""
    value = table.get(key)
    return value if is_json(value) else {}


def tables_at(table: Json, key: str) -> list[Json]:
    """The objects of a list, or none."""
    value = table.get(key)
    return [each for each in value if is_json(each)] if isinstance(value, list) else []


def is_object(text: str) -> bool:
    """Whether a text is a JSON object; one nested deeper than any reader must go is none."""
    if _too_deep(text):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _too_deep(text: str) -> bool:
    # A limit of our own: the interpreter's depends on who calls, and the bytes of a request may not.
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
