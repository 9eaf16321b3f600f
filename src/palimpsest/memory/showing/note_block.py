"""Notes as a model sees them: data between tags that their texts cannot close, within a budget of tokens."""

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.format.tags import without_tags as text_without_tags
from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import ORIGINS, Note
from palimpsest.memory.recall.selection import more_line, one_line
from palimpsest.memory.showing.newer import older_mark, shown_time

TAG: Final = "notes"
CHANGED_FILE: Final = "(file changed since)"


class NotesShown(Value, frozen=True):
    """The texts of notes, one a note and best first, with their names, scores and tokens; `left_out` did not fit."""

    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    tokens: int = 0
    left_out: int = 0


class ScoredNote(Value, frozen=True):
    """A note that was found, its score, whether a file that it cites has other bytes now, and newer notes about the same, newest first."""

    note: Note
    score: float
    is_stale: bool = False
    newer: tuple[str, ...] = ()


def show_notes(found: Sequence[ScoredNote], query: str, *, tokens: int, most: int, factor: float = 1.0) -> NotesShown:
    """Return the texts of the best notes that fit a budget of tokens, at most `most`; the last text counts what was left out.

    A note that does not fit is left out, and smaller ones behind it may still fit. `factor` is the token factor of the model.
    """
    room = tokens - estimate(f"\n{more_line(9_999, query)}", factor)
    texts: list[str] = []
    shown: list[ScoredNote] = []
    for each in found:
        text = note_text(each.note, is_stale=each.is_stale, newer=each.newer)
        size = estimate(text, factor)
        if len(shown) < most and size <= room:
            room -= size
            texts.append(text)
            shown.append(each)
    left_out = len(found) - len(shown)
    if left_out and texts:
        texts[-1] += f"\n{more_line(left_out, query)}"
    total = sum(estimate(text, factor) for text in texts)
    return NotesShown(tuple(texts), tuple(each.note.name for each in shown), tuple(each.score for each in shown), total, left_out)


def note_text(note: Note, *, is_stale: bool = False, newer: Sequence[str] = ()) -> str:
    """Return a note between tags: a line with its id, time, person, relationship and trust, then the fact and its backstory."""
    return f"<{TAG}>\n{bare_note(note, is_stale=is_stale, newer=newer)}\n</{TAG}>"


def bare_note(note: Note, *, is_stale: bool = False, newer: Sequence[str] = ()) -> str:
    """Return a note without tags around it; tags in its text are escaped, so that it cannot end the block that it is shown in."""
    about_whom = f"about {one_line(note.person)} ({one_line(note.relationship)})"
    origin = ORIGINS[note.trust] or note.trust
    head = [f"[{note.name}]", shown_time(note.when, is_finer=True), about_whom, origin, *((CHANGED_FILE,) if is_stale else ())]
    head += [older_mark(newer, note.trust)] if newer else []
    body = note.body.strip()
    about = one_line(note.about)
    story = (f"Backstory: {note.story}",) if note.story else ()
    lines = (*(() if body.startswith(about) else (about,)), *body.splitlines(), *story)
    # A text of a repository may look like the line of another note, which the user stated.
    sign = "> " if note.trust == "repository" else ""
    return without_tags("\n".join((" · ".join(head), *(f"{sign}{line}" for line in lines))))


def without_tags(text: str) -> str:
    """Return a text in which the tags around notes are no tags."""
    return text_without_tags(text, TAG, "system-reminder", "system-message")


def near_duplicates_once(names: Iterable[str], terms: Sequence[frozenset[str]], least: float) -> frozenset[str]:
    """Return the names of units that say what an earlier one says: no term of their own, and at least this share of those of both."""
    kept: list[frozenset[str]] = []
    found: set[str] = set()
    for name, each in zip(names, terms, strict=True):
        if any(each and each <= other and len(each) >= least * len(other) for other in kept):
            found.add(name)
        else:
            kept.append(each)
    return frozenset(found)
