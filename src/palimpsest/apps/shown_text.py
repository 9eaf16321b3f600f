"""Texts and numbers as a terminal may show them: without control characters, short, and with units."""

from typing import Final

# Control characters of a log, a model or a file must not reach the terminal; newline and tab are kept.
_HARMLESS: Final = {ord("\n"), ord("\t")}
_CONTROLS: Final = {code: 0x2400 + code for code in range(0x20) if code not in _HARMLESS} | {
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}


def plain(text: str) -> str:
    """Return a text with control characters replaced, safe for a terminal."""
    return text.translate(_CONTROLS)


def short(number: int) -> str:
    """Format a count in at most five characters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def dollars(cost: float | None) -> str:
    """Format dollars, with four decimals below a cent; `?` for None."""
    if cost is None:
        return "?"
    if cost < 0:
        return f"-{dollars(-cost)}"
    return f"${cost:,.2f}" if cost >= 0.01 or cost == 0 else f"${cost:.4f}"
