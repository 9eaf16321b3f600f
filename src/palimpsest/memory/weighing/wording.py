"""Where the wording of a note comes from: its structural tokens, its words and its word pairs, compared with the texts of events."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.recall.terms import stems, words

# Days between a date of a note and an event by which a relative date ("next friday") may have been made absolute.
DATE_DAYS: Final = 400
# Share of the words of a fact that an event must contain to say the same, and of the words of a whole text with reasons and applications.
LEAST_SHARE: Final = 0.5
LEAST_TEXT_SHARE: Final = 0.3
_FENCED: Final = re.compile(r"^[ \t]{0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]{0,3}\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_CITED_LINE: Final = re.compile(r"^[ \t]{0,3}>[^\n]*$", re.MULTILINE)
# Headings of our own format in the body of a note.
_HEADINGS: Final = re.compile(r"\*\*(?:why|how to apply):?\*\*:?", re.IGNORECASE)
_LIST_NUMBERS: Final = re.compile(r"^\s{0,20}\d{1,3}[.)]\s", re.MULTILINE)
_QUOTATIONS: Final = re.compile(r"`([^`\n]{1,300})`|\"([^\"\n]{1,300})\"|“([^”\n]{1,300})”|「([^」\n]{1,300})」|『([^』\n]{1,300})』")
_RUN: Final = re.compile(r"[!-~]+")
_OPENING, _CLOSING = "([{<'\"`*,;:!?", ")]}>'\"`*.,;:!?"
_SIGNS: Final = frozenset("/\\_=$@#~|&^")
_INNER: Final = re.compile(r"\w{2}\.\w|\w\.\w{2}|\w:\S|[a-z][A-Z]")
_FLAG: Final = re.compile(r"--?[A-Za-z]")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ISO_DATE: Final = re.compile(r"\b\d{4}-\d\d-\d\d(?:T[0-9:.]{0,15}(?:Z|[+-]\d\d:?\d\d)?)?")


class Wording(Value, frozen=True):
    """Words of a note by their origin: in the texts that are to support it, in other texts only, and pairs copied from the latter."""

    supported: int
    foreign: int
    share: float
    copied_pairs: tuple[tuple[str, str], ...] = ()


def folded(text: str) -> str:
    """Return a text without differences of case, width and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def own_words(text: str) -> str:
    """Return what a message says outside of fenced blocks and cited lines, which are usually pasted."""
    return _CITED_LINE.sub(" ", _FENCED.sub("\n", text))


def pasted_words(text: str) -> str:
    """Return what stands in fenced blocks and cited lines of a message."""
    fenced = [match[2] for match in _FENCED.finditer(text)]
    return "\n".join((*fenced, *(match[0].lstrip(" \t>") for match in _CITED_LINE.finditer(_FENCED.sub("\n", text)))))


def fact_of(body: str) -> str:
    """Return what a body says before its reason and its application."""
    return _HEADINGS.split(body, maxsplit=1)[0]


def missing_token(text: str, sources: Sequence[str], days: Iterable[date]) -> str:
    """Return the first structural token of a text that no source contains; empty if they contain all.

    Structural tokens are quotations, code, paths, URLs, flags, identifiers and numbers. A date may also be one that lies within 400 days
    of `days`, and a year one of theirs or the next: relative dates are written as absolute ones.
    """
    near = tuple(days)
    known = [folded(source) for source in sources]
    plain = unicodedata.normalize("NFKC", text)
    for token in _tokens(plain):
        bounded = re.compile(rf"(?<![0-9a-z]){re.escape(folded(token))}(?![0-9a-z])")
        if not any(bounded.search(source) for source in known):
            return token[:80]
    numbers = {number for source in known for number in _numbers(source)} | {f"{day.year + more}" for day in near for more in (0, 1)}
    rest = _LIST_NUMBERS.sub(" ", _ISO_DATE.sub(lambda match: " " if _is_near(match[0], near) else match[0], plain))
    return next((number for number in _whole_numbers(rest) if number not in numbers), "")


def wording_of(text: str, own: Iterable[str], others: Iterable[str], ignored: Iterable[str] = ()) -> Wording:
    """Return how far the words of a text are those of `own`, and which of them are those of `others` only.

    Words of `ignored` texts, such as the name of the person, do not count. Without any word the share is 0.
    """
    skipped = frozenset(term for each in ignored for term in _terms(each))
    sequence = [term for term in _terms(_HEADINGS.sub("\n", text)) if term not in skipped]
    own_texts, other_texts = [_terms(each) for each in own], [_terms(each) for each in others]
    mine = {term for terms in own_texts for term in terms}
    theirs = {term for terms in other_texts for term in terms} - mine
    found = set(sequence)
    own_pairs, pairs = ({pair for terms in texts for pair in _pairs(terms, skipped)} for texts in (own_texts, other_texts))
    # A pair of two words that are both in the supporting texts was put together from them, not copied.
    found_pairs = [pair for pair in dict.fromkeys(pairwise(sequence)) if pair in pairs and pair not in own_pairs]
    copied = tuple(pair for pair in found_pairs if not mine.issuperset(pair))
    return Wording(len(found & mine), len(found & theirs), len(found & mine) / len(found) if found else 0.0, copied)


@lru_cache(maxsize=512)
def _terms(text: str) -> tuple[str, ...]:
    # Each change of a reply is compared with the same events.
    return tuple(stems(words(text)))


def _pairs(terms: tuple[str, ...], skipped: frozenset[str]) -> Iterator[tuple[str, str]]:
    left = [term for term in terms if term not in skipped]
    return pairwise(left)


def _tokens(plain: str) -> Iterator[str]:
    """Yield the tokens of a text that are no words of a language: code, quotations, paths, URLs, flags and identifiers."""
    for match in _FENCED.finditer(plain):
        yield from (line.strip() for line in match[2].split("\n") if line.strip())
    plain = _HEADINGS.sub("\n", _FENCED.sub("\n", plain))
    for match in _QUOTATIONS.finditer(plain):
        if inner := (match[match.lastindex or 0]).strip():
            yield inner
    for match in _RUN.finditer(_QUOTATIONS.sub(" ", _ISO_DATE.sub(" ", plain))):
        token = match[0].lstrip(_OPENING).rstrip(_CLOSING)
        letters = any(letter.isalpha() for letter in token)
        if letters and (_SIGNS.intersection(token) or _INNER.search(token) or _FLAG.match(token)):
            yield token


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers of a text, and the parts of those that consist of several, such as dates."""
    for number in _whole_numbers(text):
        yield number
        yield from re.split(r"[.,:/-]", number)


def _whole_numbers(text: str) -> list[str]:
    return _NUMBER.findall(_THOUSANDS.sub("", text))


def _is_near(text: str, days: Iterable[date]) -> bool:
    try:
        day = date.fromisoformat(text[:10])
    except ValueError:
        return False
    return any(abs((day - each).days) <= DATE_DAYS for each in days)
