"""Reads the numbers and switches in the settings of a profile, within limits, whatever somebody wrote there."""

from collections.abc import Mapping
from typing import Final

from palimpsest.core.errors import BadInput

# More digits than any number of tokens, bytes, lines or turns has.
_DIGITS: Final = 11
_SHOWN: Final = 40
_ON: Final = frozenset({"1", "true", "yes", "on"})


def whole(text: str, least: int = 1) -> int | None:
    """A whole number, `1_000` or `1000`, unless it is less than the least or longer than any that makes sense."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        return None
    number = int(digits)
    return number if number >= least else None


def number(settings: Mapping[str, str], name: str, *, least: int = 1, wanted: str = "a whole number") -> int | None:
    """The number of a setting, nothing where it is not set; anything else is told to whoever set it."""
    text = settings.get(name, "").strip()
    found = whole(text, least)
    if text and found is None:
        raise BadInput(f"{name} is {said(text)}; give {wanted} from {least} on", where="settings")
    return found


def sensible(settings: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    """The number of a setting; one out of its range is as if it were not there."""
    found = whole(settings.get(name, ""))
    return None if found is None or (most is not None and found > most) else found


def said(text: str) -> str:
    """What somebody wrote, short enough for an error."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Whether a switch that is off as a rule was set."""
    return settings.get(name, "").strip().lower() in _ON
