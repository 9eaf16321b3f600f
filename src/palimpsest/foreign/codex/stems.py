"""File stems of the summaries that Codex writes about its threads."""

from uuid import UUID

from palimpsest.core.format.texts import utc_text

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEED_LENGTH = 4
_SLUG_LENGTH = 60
_TIME_ORDERED = 7


def stem_of(thread: str, slug: str = "", at: int = 0) -> str:
    """The file stem of a summary: start time, four base-62 digits, and a slug; `at` (milliseconds) counts if the id has no time."""
    milliseconds, seed = _time_and_seed(thread, at)
    time = utc_text(milliseconds, "%Y-%m-%dT%H-%M-%S")
    suffix = slug_of(slug)
    return f"{time}-{_digits(seed)}-{suffix}" if suffix else f"{time}-{_digits(seed)}"


def slug_of(title: str) -> str:
    """A text as lower-case ASCII letters, digits and underscores, at most 60 characters."""
    slug = "".join(letter.lower() if letter.isascii() and letter.isalnum() else "_" for letter in title)
    return slug[:_SLUG_LENGTH].rstrip("_")


def _time_and_seed(thread: str, at: int) -> tuple[int, int]:
    try:
        number = UUID(thread)
    except ValueError:
        seed = 0
        for byte in thread.encode():
            seed = (seed * 31 + byte) % 2**32
        return at, seed
    return (number.int >> 80 if number.version == _TIME_ORDERED else at), number.int & 0xFFFFFFFF


def _digits(seed: int) -> str:
    rest, digits = seed % len(_DIGITS) ** _SEED_LENGTH, ""
    for _ in range(_SEED_LENGTH):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
