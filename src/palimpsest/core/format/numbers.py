"""Whole numbers written as text by users, files and models."""

from typing import Final

# Far below the 4,300 digits from which on `int` raises, and enough for any count of events, bytes or milliseconds.
_MOST_DIGITS: Final = 18


def whole_number(text: str) -> int | None:
    """Return the number that 1 to 18 ASCII digits write; `None` for any other text, also for signs and for digits of other scripts."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal() else None
