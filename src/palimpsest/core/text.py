"""Texts: times and numbers as people read them, tags that a text cannot close, and lazy patterns."""

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any, AnyStr, Final, cast


class _LazyPattern:
    """Looks like the compiled pattern. Each of its methods is kept in the object with its first use, so later uses cost nothing more."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Called only for names that the object does not have yet. `re` keeps what it compiled, so the next method finds it there.
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"lazy_pattern({self._source!r}, {self._flags!r})"


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled with its first use, for constants of modules.

    Its methods and attributes are those of `re.Pattern`, but it is none: `isinstance` says no, and the functions of `re` do not take it.
    An invalid source raises `re.error` with the first use.
    """
    # An object that has every attribute of a pattern, which the type checker cannot see.
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))


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


# Tags by which the program itself speaks to a model; no text that stands in another tag may have them.
_OWN_VOICE: Final = ("system-reminder", "system-message")
PLAN_TAG: Final = "proposed_plan"
"""The tag in which a model puts its plan in plan mode."""
# What a lenient reader takes for the beginning of a tag, for nothing, and for a hyphen.
_OPENING: Final = "[<\uff1c\ufe64]"
_UNSEEN: Final = "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
_HYPHEN: Final = "[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]"


def within(tag: str, text: str, attributes: str = "") -> str:
    """Return a text between the lines of a tag, which it cannot close; `attributes` stand behind the name in the opening tag."""
    return f"<{tag}{attributes}>\n{without_tags(text, tag, *_OWN_VOICE)}\n</{tag}>"


def between(tag: str, text: str) -> str | None:
    """Return what stands between the lines of the last complete pair of a tag in a text; `None` without one."""
    begun, closing, _ = text.rpartition(f"</{tag}>")
    _, opening, inner = begun.rpartition(f"<{tag}>")
    return inner.strip() if closing and opening else None


def attribute(name: str, value: str) -> str:
    """Return an attribute of a tag, which its value cannot end."""
    return f' {name}="{value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace(chr(34), "&quot;")}"'


def without_tags(text: str, *tags: str) -> str:
    """Return a text in which these tags are no tags: in any letter case, and with what a lenient reader overlooks in them."""
    return _pattern(tags).sub("&lt;", text) if "<" in text or not text.isascii() else text


def without_own_voice(text: str) -> str:
    """Return a text that cannot speak as the program does: for texts that are shown without a tag of ours, or in one of another program."""
    return without_tags(text, *_OWN_VOICE)


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    # White space and characters without width may stand around the slash, and these also in the name.
    names = "|".join(_UNSEEN.join(_HYPHEN if letter == "-" else re.escape(letter) for letter in tag) for tag in tags)
    return re.compile(rf"{_OPENING}(?=(?:[\s/\\\uff0f]|{_UNSEEN[:-1]})*(?:{names})(?![\w-]))", re.IGNORECASE)
