"""Settings of source sets: lists of names and numbers."""

from collections.abc import Sequence

import msgspec

from palimpsest.core.errors import BadInput

_names = msgspec.json.Decoder(list[str])
_QUOTED_CHARS = 40


def name_list(text: str, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a setting that is a list of names: a JSON list, or names with commas between; `default` if it is not set.

    Raises `BadInput` if it begins like a JSON list and is none.
    """
    text = text.strip()
    if not text:
        return tuple(default)
    if not text.startswith("["):
        return tuple(word for part in text.split(",") if (word := part.strip()))
    try:
        return tuple(_names.decode(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f'{name} is no list of names; write it as ["one", "two"]', where="settings") from error


def number(text: str, name: str) -> int:
    """Return a setting that is a whole number from 0 on. Raises `BadInput` for any other text."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 12):
        raise BadInput(f"{name} is {text[:_QUOTED_CHARS]!r}; give a whole number from 0 on", where="settings")
    return int(digits)
