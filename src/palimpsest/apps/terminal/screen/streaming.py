"""Divides Markdown that arrives in fragments into a part that is final and a part that may still change."""

import re
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
# Characters of one piece. A paragraph or a fence without an end is committed in pieces, so that the part that is painted again and again
# stays small.
MOST_OPEN: Final = 4_000


class StreamedText:
    """A text of which fragments arrive. `open` is the part that was not taken yet; it `continues` a paragraph or fence that was divided."""

    def __init__(self) -> None:
        self.open = ""
        self.continues = False
        # The fence that an earlier piece opened, and the line that opened it.
        self._fence = ""
        self._opener = ""
        # Whether a paragraph ends as soon as the next one begins.
        self._is_ending = False

    def add(self, fragment: str) -> str:
        """Add a fragment and return the text that became final: whole paragraphs, lists and fences; mostly empty.

        A fence that is too long is divided: each piece is a fence of its own.
        """
        self.open += fragment
        if "\n" not in fragment and not self._is_ending and len(self.open) <= MOST_OPEN:
            return ""
        end, fence, opener = self._final_end()
        if not end and len(self.open) > MOST_OPEN:
            return self._divided()
        if not end:
            return ""
        taken, self.open = self._wrapped(self.open[:end], fence), self.open[end:]
        self._fence, self._opener = fence, opener
        self.continues = False
        return taken

    def end(self) -> str:
        """Return the rest, as final."""
        taken, self.open = self._wrapped(self.open, ""), ""
        self._fence = self._opener = ""
        self.continues = False
        return taken

    def shown(self) -> str:
        """Return the open part as it is painted meanwhile: with the fence that an earlier piece opened."""
        return f"{self._opener}\n{self.open}" if self._fence else self.open

    def _final_end(self) -> tuple[int, str, str]:
        """Return where the final part of the open text ends, with the fence that is open there and its first line."""
        place = end = blank = 0
        fence = self._fence
        for line in self.open.splitlines(keepends=True):
            mark = _FENCE.match(line)
            # What is indented below a blank line may belong to the list above it.
            if blank and line.strip():
                end, blank = (end if line[0].isspace() else blank), 0
            if not line.endswith("\n"):
                break
            place += len(line)
            if fence:
                closes = mark is not None and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not line[mark.end() :].strip()
                if closes:
                    fence, end = "", place
            elif mark is not None:
                fence = mark[1]
            elif not line.strip():
                blank = place
        self._is_ending = bool(blank) and not fence
        # Inside a fence nothing is final but what stood before it.
        return (end, "", "") if end else (0, self._fence, self._opener)

    def _divided(self) -> str:
        """Take the whole lines of an open text that has no end, the whole words if it is one line, or all of it if it is one word."""
        cut = self.open.rfind("\n") + 1 or self.open.rfind(" ") + 1 or len(self.open)
        lines, fence, opener = self.open[:cut], self._fence, self._opener
        for line in lines.splitlines():
            mark = _FENCE.match(line)
            if mark is not None and not fence:
                fence, opener = mark[1], line
        taken, self.open = self._wrapped(lines, fence), self.open[cut:]
        self._fence, self._opener = fence, opener
        self.continues = True
        return taken

    def _wrapped(self, text: str, fence_after: str) -> str:
        """Return a piece with the fences that it needs to be Markdown by itself."""
        if not text.strip():
            return ""
        before = f"{self._opener}\n" if self._fence else ""
        after = "" if not fence_after else f"{'' if text.endswith(chr(10)) else chr(10)}{fence_after}\n"
        return f"{before}{text}{after}"
