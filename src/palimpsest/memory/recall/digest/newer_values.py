"""Finds sentences of different days that say the same with other numbers, by their words; what they mean is not understood."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.recall.terms import query_terms

# Two sentences are about one value if they share this much of their words without numbers, as a share of the words of both.
SAME_WORDS: Final = 0.6
# Sentences with fewer words say too little to be about one value.
FEWEST_WORDS: Final = 3


class DatedSentence(Value, frozen=True):
    """A sentence that gives numbers, with the day on which it was said, as an ISO date."""

    text: str
    numbers: frozenset[str]
    date: str


def newer_values(given: Sequence[DatedSentence]) -> dict[int, int]:
    """Return, by place, the place of the newest later sentence that says the same with other numbers, for those that have one.

    Sentences without numbers or date are about no value. A value that was said in other words is not found: that takes a model, or notes.
    """
    frames = [_frame(each) if each.numbers and each.date else frozenset() for each in given]
    having: dict[str, list[int]] = {}
    for place, frame in enumerate(frames):
        for term in frame:
            having.setdefault(term, []).append(place)
    found: dict[int, int] = {}
    for place, frame in enumerate(frames):
        shared = Counter(other for term in frame for other in having[term])
        later = [
            (given[other].date, other)
            for other, count in shared.items()
            if given[other].date[:10] > given[place].date[:10]
            and count >= SAME_WORDS * len(frame | frames[other])
            and given[other].numbers != given[place].numbers
        ]
        if later:
            found[place] = max(later)[1]
    return found


def _frame(sentence: DatedSentence) -> frozenset[str]:
    """Return the terms of a sentence without those that have a digit; none if they are few."""
    terms = frozenset(term for term in query_terms(sentence.text) if not any(letter.isdigit() for letter in term))
    return terms if len(terms) >= FEWEST_WORDS else frozenset()
