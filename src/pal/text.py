"""Texts and numbers as a terminal may show them: without control characters, short, and with units."""

from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

if TYPE_CHECKING:
    from palimpsest.core.events import NoteSaved


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


class PlainStream:
    """A standard stream on which no text acts: whatever is written goes through `plain`, so that no caller can forget it.

    Bytes go to `buffer`: to a file or a pipe as they are, to a terminal as the same text without control characters. Escape sequences of
    our own are written to `unfiltered` of the stream; rich takes the same way.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        # A character may begin in one chunk of bytes and end in the next.
        self._decoder = getincrementaldecoder("utf-8")("replace")

    @property
    def buffer(self) -> "BinaryIO | PlainStream":
        """Where bytes are written."""
        return self if self.rich_proxied_file.isatty() else self.rich_proxied_file.buffer

    def write(self, text: str | bytes) -> int:
        """Write a text without control characters; bytes only on a terminal."""
        if isinstance(text, str):
            return self.rich_proxied_file.write(plain(text))
        if not self.rich_proxied_file.isatty():
            raise TypeError("bytes are written to the buffer of a stream")
        self.rich_proxied_file.write(plain(self._decoder.decode(text)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts without control characters."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream below a `PlainStream`, for escape sequences of our own; any other stream itself."""
    found: TextIO = getattr(stream, "rich_proxied_file", stream)
    return found


def escaped_json(text: str) -> str:
    """Return JSON in which every character that could act on a terminal is escaped; its value is the same."""
    return text.translate(_JSON_ESCAPES)


def saved_note_line(saved: "NoteSaved") -> str:
    """Return the line that tells the user what was noted, and how to take it back."""
    about = f": {' '.join(saved.about.split())}" if saved.about else ""
    return f"noted as {saved.name}{about} (`pal memory forget {saved.name}` takes it back)"


def one_line(text: str, longest: int = 400) -> str:
    """Return the beginning of a text of at most so many characters, with all white space as single spaces."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short(number: int) -> str:
    """Format a count in at most five characters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"
