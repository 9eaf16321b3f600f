"""What is recalled: a turn, a message or a note as a frozen value, and the cutting of long texts into such units."""

import re
from collections.abc import Iterator
from typing import Final

from palimpsest.core.items import Value

# Words in a unit of the log; a character of a script without spaces counts half a word.
WORDS_A_UNIT: Final = 120
_UNSPACED: Final = "\u2e80-\uffff\U00020000-\U000323af"
_ATOMS: Final = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+|\\s+")
_SENTENCE_ENDS: Final = (".", "!", "?", "。", "！", "？", "\n")


TURN, STEP, FIX = "turn", "step", "fix"


class RecallUnit(Value, frozen=True):
    """One thing that can be recalled.

    id: evidence id, unique in an index: `session:seq`, or the name of a note.
    who, role: the name of the person who speaks, empty if unknown; `user`, `assistant` or another role.
    session, position: the session it belongs to, and its place there; empty and 0 for notes.
    date: when it was said, as an ISO date or date and time; empty if unknown.
    kind: `turn`; `step`, which is what a model said while it worked, between the beginning and the end of a turn; `fix`; or that of a note.
    paths: files it is about.
    sources: evidence ids of other events whose text is in its text, such as errors that a tool printed.
    """

    id: str
    text: str
    who: str = ""
    role: str = ""
    session: str = ""
    position: int = 0
    date: str = ""
    kind: str = TURN
    paths: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def cut(text: str, most: int = WORDS_A_UNIT) -> Iterator[str]:
    """Yield consecutive parts of a text, at most `most` words each, cut behind the last sentence or line that fits, else behind a word."""
    start = sentence_end = 0
    size = size_of_sentences = 0.0
    for atom in _ATOMS.finditer(text):
        found = atom[0]
        weight = 0.0 if found.isspace() else 0.5 if found > "\u2e7f" else 1.0
        if size + weight > most and sentence_end > start:
            yield from _stripped(text[start:sentence_end])
            start, size, size_of_sentences = sentence_end, size - size_of_sentences, 0.0
        if size + weight > most and atom.start() > start:
            yield from _stripped(text[start : atom.start()])
            start, size = atom.start(), 0.0
        size += weight
        if found.endswith(_SENTENCE_ENDS) or "\n" in found:
            sentence_end, size_of_sentences = atom.end(), size
    yield from _stripped(text[start:])


def _stripped(part: str) -> Iterator[str]:
    """Yield a part without white space around it, unless nothing is left."""
    if stripped := part.strip():
        yield stripped
