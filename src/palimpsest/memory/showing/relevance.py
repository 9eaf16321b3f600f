"""Whether a note has enough to do with a prompt to be shown unasked: an absolute measure, which the score of a ranking is not."""

import math
from collections.abc import Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.memory.recall.candidates import QUERY_CHARACTERS, RecallQuery, read_query
from palimpsest.memory.recall.index import RecallIndex, term_character
from palimpsest.memory.recall.terms import query_terms

# In a small collection no word is known to be frequent; words are weighed as if there were at least so many notes.
_LEAST_NOTES: Final = 50
# The weight of a long prompt counts as that of so many rare words.
_MOST_WORDS: Final = 32
# A collection of N notes needs at least `_LEAST + _GROWTH * ln N`: in more notes there is more by chance. Chosen on the coding sessions of
# the corpus, which no recall figure is reported on: pieces of replies of one project stood for notes, and the line is where 10 % of the
# prompts of other projects find one of 5 to 300 notes; 29 to 57 % of the prompts of the same project do, most of which ask for nothing
# that was said before.
_LEAST, _GROWTH = 0.37, 0.058


class PromptWeight(Value, frozen=True):
    """The words of a prompt as an index weighs them: characters of its sequences with their weights, and the norm of the prompt.

    `named` are numbers of units that are about a file which the prompt names.
    """

    weights: tuple[tuple[str, float], ...]
    norm: float
    named: frozenset[int]


def weigh_prompt(index: RecallIndex, text: str) -> PromptWeight:
    """Return the weight of a prompt; words that no note has count as the rarest."""
    count = max(_LEAST_NOTES, len(index.numbers))
    rarest = _weight(0, count)
    weights: list[tuple[str, float]] = []
    total = 0.0
    for term in query_terms(text[:QUERY_CHARACTERS]):
        number = index.vocabulary.get(term)
        weight = rarest if number is None else _weight(len(index.postings[number]), count)
        total += weight
        if number is not None:
            weights.append((term_character(number), weight))
    query: RecallQuery = read_query(index, text)
    return PromptWeight(tuple(weights), math.sqrt(min(total, _MOST_WORDS * rarest) * rarest) or 1.0, query.paths)


def relevance(index: RecallIndex, prompt: PromptWeight, number: int) -> float:
    """Return how much of a prompt a unit has: 0 if they share no word, about 1 if it has a short prompt or many of its rare words."""
    sequence = index.sequences[number]
    return sum(weight for character, weight in prompt.weights if character in sequence) / prompt.norm


def least_relevance(notes: int) -> float:
    """Return the relevance from which one of so many notes is shown unasked."""
    return _LEAST + _GROWTH * math.log(max(1, notes))


def relevant(index: RecallIndex, text: str, numbers: Sequence[int]) -> list[bool]:
    """Return for each unit whether it is shown for a prompt: it is relevant enough, or about a file that the prompt names."""
    prompt = weigh_prompt(index, text)
    least = least_relevance(len(index.numbers))
    return [number in prompt.named or relevance(index, prompt, number) >= least for number in numbers]


def _weight(having: int, count: int) -> float:
    return math.log1p((max(0, count - having) + 0.5) / (having + 0.5))
