"""Long texts that the user pasted: the input line shows a short mark, and the message has the text."""

import re
from typing import Final

LONGEST_INLINE: Final = 1_000
MOST_LINES_INLINE: Final = 8
# Characters of one paste.
LONGEST_PASTE: Final = 4_000_000
_MARK: Final = re.compile(r"\[pasted #(\d{1,6}), [\d,]+ (?:lines|characters)\]")


class Attachments:
    """The pasted texts of one message by their marks."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def folded(self, text: str) -> str:
        """Return what the input line shows for a pasted text: itself, or a mark if it is long."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_INLINE and lines <= MOST_LINES_INLINE:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text[:LONGEST_PASTE]
        return f"[pasted #{number}, {lines:,} lines]" if lines > 1 else f"[pasted #{number}, {len(text):,} characters]"

    def unfolded(self, line: str) -> str:
        """Return the message of an input line: each mark replaced by its text. Marks of no paste are the user's own words."""
        return _MARK.sub(lambda mark: self._texts.get(int(mark[1]), mark[0]), line)

    def clear(self) -> None:
        """Drop the texts: their message was sent."""
        self._texts.clear()
