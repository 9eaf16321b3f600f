"""Bounds what is read for its meaning: no word is as long as a hash of hashes, and no line as long as a book."""

import re
from collections.abc import Iterator
from typing import Final

LONGEST_WORD: Final = 160
LONGEST_LINE: Final = 1_500
# Patterns that look for the end of a word at each of its letters take time with the square of its length.
_WORDS: Final = re.compile(rf"[!-~]{{{LONGEST_WORD + 1},}}|[\u3400-\u9fff]{{{LONGEST_WORD + 1},}}")


def shortened(text: str) -> str:
    """The text with every endless word cut to its beginning."""
    return _WORDS.sub(lambda word: word[0][:LONGEST_WORD], text)


def pieces_of(line: str) -> Iterator[str]:
    """A line in pieces that can be read, cut at blanks."""
    rest = shortened(line)
    while len(rest) > LONGEST_LINE:
        at = rest.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
        at = LONGEST_LINE if at < 0 else at
        yield rest[:at]
        rest = rest[at:].lstrip(" ")
    yield rest
