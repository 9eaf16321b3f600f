"""The name under which Codex keeps the summary of a rollout."""

from datetime import UTC, datetime
from uuid import UUID

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEED_LENGTH = 4
_SLUG_LENGTH = 60
_TIME_ORDERED = 7


def stem_of(thread: str, slug: str = "", at: int = 0) -> str:
    """When the thread began, four digits that tell it from others, and what it was about; `at` is used where the id tells no time."""
    milliseconds, seed = _told_by(thread, at)
    time = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S")
    words = slug_of(slug)
    return f"{time}-{_digits(seed)}-{words}" if words else f"{time}-{_digits(seed)}"


def slug_of(words: str) -> str:
    """Words as they may stand in a file name."""
    plain = "".join(letter.lower() if letter.isascii() and letter.isalnum() else "_" for letter in words)
    return plain[:_SLUG_LENGTH].rstrip("_")


def _told_by(thread: str, at: int) -> tuple[int, int]:
    try:
        number = UUID(thread)
    except ValueError:
        seed = 0
        for byte in thread.encode():
            seed = (seed * 31 + byte) % 2**32
        return at, seed
    return (number.int >> 80 if number.version == _TIME_ORDERED else at), number.int & 0xFFFFFFFF


def _digits(seed: int) -> str:
    left, digits = seed % len(_DIGITS) ** _SEED_LENGTH, ""
    for _ in range(_SEED_LENGTH):
        left, place = divmod(left, len(_DIGITS))
        digits = _DIGITS[place] + digits
    return digits
