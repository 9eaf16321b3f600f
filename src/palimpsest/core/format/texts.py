"""Times, counts, shares and whole numbers as texts: how they are written for people and programs, and read from words of a command."""

from datetime import UTC, datetime
from typing import Final

# Milliseconds since 1970 at the end of the year 9999; later times, and those before 1970, are no dates of a session.
END: Final = 253_402_300_800_000
# Far below the 4,300 digits from which on `int` raises, and enough for any count of events, bytes or milliseconds.
_MOST_DIGITS: Final = 18
_SMALLEST_SHOWN: Final = 0.0001


def is_date(at: int) -> bool:
    """Return whether a time in milliseconds since 1970 lies in the years 1970 to 9999."""
    return 0 <= at < END


def iso_time(at: int, timespec: str = "milliseconds") -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; outside of the years 1970 to 9999 as the number with its unit."""
    if not is_date(at):
        return f"{at} ms"
    return _moment(at).isoformat(timespec=timespec).replace("+00:00", "Z")


def utc_text(at: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time in milliseconds since 1970 in a format of `strftime`, in UTC; outside of the years 1970 to 9999 as the number."""
    return _moment(at).strftime(form) if is_date(at) else f"{at} ms"


def _moment(at: int) -> datetime:
    # A division would lose the last millisecond of late years.
    return datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)


def whole_number(text: str) -> int | None:
    """Return the number that 1 to 18 ASCII digits write; `None` for any other text, also for signs and for digits of other scripts."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal() else None


def counted(number: int, word: str) -> str:
    """Return a number and its noun for a message, in the plural unless the number is 1: `1 session`, `2,000 sessions`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def percent_of(tokens: int, window: int) -> int:
    """Return the share of a window in whole percent, halves rounded up; 0 without a window."""
    return (200 * tokens + window) // (2 * window) if window else 0


def dollars(usd: float | None) -> str:
    """Format US dollars, with four decimals below a cent, and never as zero if they are not; `unknown` for `None`."""
    if usd is None:
        return "unknown"
    if usd < 0:
        return f"-{dollars(-usd)}"
    if 0 < usd < _SMALLEST_SHOWN:
        return f"<${_SMALLEST_SHOWN}"
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def price_facts(price_usd: float | None, saved_usd_per_call: float | None) -> tuple[str, ...]:
    """Return what an edit saves with each call and what it costs once, in words, the most important first; nothing that is unknown or 0."""
    facts = []
    if saved_usd_per_call:
        verb = "saves" if saved_usd_per_call > 0 else "adds"
        facts.append(f"{verb} {dollars(abs(saved_usd_per_call))} a call")
    if price_usd:
        facts.append(f"costs {dollars(price_usd)} once" if price_usd > 0 else f"saves {dollars(-price_usd)} at once")
    return tuple(facts)


def cost_text(usd: float | None) -> str:
    """Return what something cost for a line of facts: the dollars, or that they are not known."""
    return "cost unknown" if usd is None else dollars(usd)
