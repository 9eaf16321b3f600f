"""Texts and numbers as a terminal may show them: without control characters, short, and with units."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from palimpsest.core.events import NoteSaved

from palimpsest.core.format.texts import dollars as dollars  # noqa: PLC0414 - shown with the rest

# Control characters of a log, a model or a file must not reach the terminal; newline and tab are kept.
_HARMLESS: Final = {ord("\n"), ord("\t")}
# C1 control characters, signs that reorder text, and the line separators of Unicode.
_MISLEADING: Final = (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS: Final = {code: 0x2400 + code for code in range(0x20) if code not in _HARMLESS} | {
    0x7F: 0x2421,
    **dict.fromkeys(_MISLEADING, 0xFFFD),
}
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (0x7F, *_MISLEADING)}


def plain(text: str) -> str:
    """Return a text with control characters replaced, safe for a terminal."""
    return text.translate(_CONTROLS)


def escaped_json(text: str) -> str:
    """Return JSON in which every character that could act on a terminal is escaped; its value is the same."""
    return text.translate(_JSON_ESCAPES)


def saved_note_line(saved: "NoteSaved") -> str:
    """Return the line that tells the user what was noted, and how to take it back."""
    about = f": {' '.join(saved.about.split())}" if saved.about else ""
    return f"noted as {saved.name}{about} (`pal memory forget {saved.name}` takes it back)"


def short(number: int) -> str:
    """Format a count in at most five characters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"
