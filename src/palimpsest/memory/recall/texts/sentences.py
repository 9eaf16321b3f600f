"""Sentences of a text, and the numbers and names in them, by the shape of characters only."""

import re
from collections.abc import Iterator
from typing import Final

from palimpsest.core.items import Value

# A stop behind a capital and at most two letters ends an abbreviation rather than a sentence.
_ENDS: Final = re.compile(
    r"(?<![A-Z])(?<![A-Z][a-z])(?<![A-Z][a-z][a-z])[.!?]+[\"')\]]*\s+|[!?]+[\"')\]]*\s+|[。！？]+[」』”’）]*\s*|\s*\n+\s*"
)
# A run of letters and digits with at least one digit, and the marks that hold amounts, times and codes together.
_NUMBER: Final = re.compile(r"[^\W_]*(?:[-.][^\W\d_]+)*-?\d[\w.,:%/-]*")
_NAME: Final = re.compile(r"\b[^\W\d_a-z][\w&-]+")
_MARKS: Final = ".,:-/"
_LETTERS_OF_A_NAME: Final = re.compile(r"[A-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f]")


class Sentence(Value, frozen=True):
    """A sentence with what it may state as a fact.

    numbers: amounts, dates, times and codes, folded; names: capitalised words behind the first word, folded.
    """

    text: str
    numbers: frozenset[str]
    names: frozenset[str]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, without white space around them; line breaks end sentences too."""
    return list(_parts(text))


def _parts(text: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(text):
        if part := text[start : end.end()].strip():
            yield part
        start = end.end()
    if part := text[start:].strip():
        yield part


def read_sentence(text: str) -> Sentence:
    """Return a sentence with its numbers and names."""
    numbers = frozenset(found.strip(_MARKS).lower() for found in _NUMBER.findall(text))
    names = frozenset(
        found[0].lower() for found in _NAME.finditer(text) if found.start() > 0 and _LETTERS_OF_A_NAME.match(found[0]) is not None
    )
    return Sentence(text, numbers, names - numbers)
