"""MEMORY.md: the index of the active notes, one line a note, generated from them and bounded."""

from collections.abc import Iterable
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import KINDS, Note

MOST_LINES: Final = 200
MOST_BYTES: Final = 25_000
MOST_TOKENS: Final = 2_500
# Lines of the warning: an empty one and the sentence.
_WARNING_LINES: Final = 2


class IndexText(Value, frozen=True):
    """The text of MEMORY.md, and the line of the first note that did not fit; empty if all did."""

    text: str
    first_left_out: str = ""


def index_of(notes: Iterable[Note], *, lines: int = MOST_LINES, size: int = MOST_BYTES, tokens: int = MOST_TOKENS) -> IndexText:
    """Return the index of the active notes: pinned ones first, then by kind and name, so that it depends on nothing but the notes.

    It has at most so many lines, bytes and tokens; a warning in its last line names the first note that was left out, and how many.
    """
    active = sorted((note for note in notes if note.status == "active" and note.trust != "quarantined"), key=_place)
    whole = [line_of(note) for note in active]
    if _fits(whole, lines, size, tokens):
        return IndexText("".join(f"{line}\n" for line in whole))
    kept = _most_that_fit(whole, lines, size, tokens)
    return IndexText("".join(f"{line}\n" for line in (*whole[:kept], *_warning(whole, kept))), whole[kept])


def line_of(note: Note) -> str:
    """Return the line of a note in the index."""
    return f"- [{note.name}](notes/{note.name}.md): {' '.join(note.about.split())}"


def _place(note: Note) -> tuple[bool, int, str]:
    return not note.pinned, KINDS.index(note.kind), note.name


def _warning(whole: list[str], kept: int) -> tuple[str, str]:
    left = len(whole) - kept
    return "", f"> {left:,} of {len(whole):,} notes are not listed here; the first is: {whole[kept]}"


def _most_that_fit(whole: list[str], lines: int, size: int, tokens: int) -> int:
    """Return how many lines fit together with the warning, by bisection: each further line makes the text longer."""
    low, high = 0, min(len(whole) - 1, max(0, lines - _WARNING_LINES))
    while low < high:
        middle = (low + high + 1) // 2
        if _fits([*whole[:middle], *_warning(whole, middle)], lines, size, tokens):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(parts: list[str], lines: int, size: int, tokens: int) -> bool:
    text = "".join(f"{line}\n" for line in parts)
    return len(parts) <= lines and len(text.encode()) <= size and estimate(text) <= tokens
