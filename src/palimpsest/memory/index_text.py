"""MEMORY.md: the index of the active notes, one line a note, generated from them and bounded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import KINDS, ORIGINS, Note, time_of
from palimpsest.memory.showing.newer import days_shared, newest_first, older_mark, shown_time

MOST_LINES: Final = 200
MOST_BYTES: Final = 25_000
MOST_TOKENS: Final = 2_500
# Lines of the warning: an empty one and the sentence.
_WARNING_LINES: Final = 2
_NONE_NEWER: Final[Mapping[str, Sequence[str]]] = {}


class IndexText(Value, frozen=True):
    """The text of MEMORY.md, and the line of the first note that did not fit; empty if all did."""

    text: str
    first_left_out: str = ""


def index_of(
    notes: Iterable[Note],
    newer: Mapping[str, Sequence[str]] = _NONE_NEWER,
    *,
    lines: int = MOST_LINES,
    size: int = MOST_BYTES,
    tokens: int = MOST_TOKENS,
) -> IndexText:
    """Return the index of the active notes: pinned ones first, then by kind, the newest first, and notes of a repository last.

    It depends on nothing but the notes. `newer` are the names of newer notes about the same, by name: these stand before the older one,
    whose line names the newest of them.
    The index has at most so many lines, bytes and tokens; a warning in its last line names the first note that was left out, and how many.
    """
    shown = sorted((note for note in notes if note.status == "active" and note.trust != "quarantined"), key=lambda note: note.name)
    shown = sorted(shown, key=lambda note: time_of(note.when), reverse=True)
    shown = sorted(shown, key=lambda note: (not note.pinned, note.trust == "repository", KINDS.index(note.kind)))
    active = newest_first(shown, lambda note: note.name, newer)
    days = days_shared(note.when for note in active)
    whole = [line_of(note, newer.get(note.name, ()), is_finer=shown_time(note.when) in days) for note in active]
    if _fits(whole, lines, size, tokens):
        return IndexText("".join(f"{line}\n" for line in whole))
    kept = _most_that_fit(whole, lines, size, tokens)
    return IndexText("".join(f"{line}\n" for line in (*whole[:kept], *_warning(whole, kept))), whole[kept])


def line_of(note: Note, newer: Sequence[str] = (), *, is_finer: bool = False) -> str:
    """Return the line of a note in the index: its name and time, whom it is about and whose word it is if not the user, and the fact."""
    whom = f"about {note.whom}" if note.whom else ""
    head = " · ".join(filter(None, (shown_time(note.when, is_finer=is_finer), whom, ORIGINS[note.trust], older_mark(newer, note.trust))))
    return f"- [{note.name}](notes/{note.name}.md) {head}: {' '.join(note.about.split())}"


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
