"""Candidates of a query: units that share its rarest words, found within a budget of postings, and the units around the best of them."""

import re
from collections.abc import Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Final, Protocol

from msgspec.structs import replace

from palimpsest.audit.entities import names_of
from palimpsest.core.items import Value
from palimpsest.memory.recall.index import HIGHEST_IMPACT, RecallIndex, file_name, slashed
from palimpsest.memory.recall.terms import fold, query_terms

# Postings read for one query. Complete lists are read, those of rare words first; what would exceed the budget is not read.
POSTINGS_BUDGET: Final = 20_000
BEST, BEST_WITH_NEIGHBOURS, BEST_WITH_SECOND_NEIGHBOURS = 100, 40, 20
BEST_BY_SIMILARITY: Final = 50
# Most terms of a query: those beyond are the most frequent ones.
MOST_TERMS: Final = 12
# Characters of a query that are read: a pasted file is no question.
QUERY_CHARACTERS: Final = 4_000
# Names of the calendar, to compare a date in a query with the date of a unit; at the beginning `May` is mostly a verb.
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MONTH: Final = re.compile(rf"(?<!^)\b({'|'.join(_MONTHS)})\b|(?<!\d)(1[0-2]|[1-9])\s?月|\b\d{{4}}-(0[1-9]|1[0-2])\b")
_PATH: Final = re.compile(r"[\w~@+./\\-]*[./][\w@+./\\-]+")
# Files, symbols and lines of a query that are compared letter by letter.
_MOST_NAMES: Final = 12
# Units about a named file that are candidates without sharing a word, the newest ones.
_MOST_BY_PATH: Final = 50
# One posting of so many is looked at to guess how good the best ones are.
_SAMPLED: Final = 16


class RecallQuery(Value, frozen=True):
    """A query as the index sees it.

    terms: numbers of its terms, the rarest first; idf: their weights; pairs: terms that are neighbours in the query, by number.
    speakers: numbers of the speakers that it names; months: numbers of the months that it names.
    files: paths and names of files that it names; paths: numbers of the units that are about a file with one of these names.
    only_files: share of its terms that are in the names of files, from 0 to 1.
    symbols: identifiers, branches and codes that it names; lines: its lines of several words, such as commands and errors. These only if
    the index has units about files.
    """

    terms: tuple[int, ...]
    idf: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]
    speakers: frozenset[int]
    months: frozenset[int]
    files: tuple[str, ...] = ()
    paths: frozenset[int] = frozenset()
    only_files: float = 0.0
    symbols: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


class Candidates(Value, frozen=True, eq=False):
    """Unit numbers in ascending order, and the BM25 score of every unit of the index; `scores[-1]` is always 0."""

    numbers: list[int]
    scores: list[float]


class Similar(Protocol):
    """Similarity of the meaning of one query to units, by number, from vectors that another layer keeps; optional."""

    def nearest(self, count: int) -> Sequence[int]:
        """Return the numbers of the most similar units, at most `count`."""

    def similarities(self, numbers: Sequence[int]) -> Sequence[float]:
        """Return the similarity of each of these units."""


def read_query(index: RecallIndex, text: str) -> RecallQuery:
    """Return the query of a text: names of speakers are no terms, unless there is nothing else."""
    text = text[:QUERY_CHARACTERS]
    folded = fold(text)
    found = query_terms(index.without_speakers(folded)) or query_terms(folded)
    known = [index.vocabulary[term] for term in found if term in index.vocabulary]
    place = {term: at for at, term in enumerate(found)}
    by_rarity = sorted(known, key=lambda term: len(index.postings[term]))[:MOST_TERMS]
    kept = {term: at for term, at in place.items() if index.vocabulary.get(term) in by_rarity}
    pairs = tuple(
        (index.vocabulary[first], index.vocabulary[second]) for first, second in pairwise(found) if first in kept and second in kept
    )
    speakers = frozenset(index.speakers[name] for name in index.speakers_named(folded))
    idf = tuple(index.idf(term) for term in by_rarity)
    query = RecallQuery(tuple(by_rarity), idf, pairs, speakers, _months(text))
    return _with_names(index, query, text) if index.files else query


def _with_names(index: RecallIndex, query: RecallQuery, text: str) -> RecallQuery:
    """Return the query of a text with what it names letter by letter."""
    files = tuple(dict.fromkeys(slashed(found.rstrip(".")).removeprefix("./") for found in _PATH.findall(text)))[:_MOST_NAMES]
    others = len(query_terms(_PATH.sub(" ", text))) if files else 0
    only_files = 1 - others / max(1, len(query_terms(text))) if files else 0.0
    numbers = frozenset().union(*(index.files.get(file_name(each), ()) for each in files))
    symbols = tuple(each for each in names_of(text) if each not in files)[:_MOST_NAMES]
    lines = tuple(line for each in text.splitlines() if (line := each.strip()).count(" "))[:_MOST_NAMES]
    return replace(query, files=files, paths=numbers, only_files=only_files, symbols=symbols, lines=lines)


def _months(text: str) -> frozenset[int]:
    found = _MONTH.findall(text)
    return frozenset(_MONTHS.index(name) + 1 if name else int(chinese or iso) for name, chinese, iso in found)


def find_candidates(index: RecallIndex, query: RecallQuery, *, budget: int = POSTINGS_BUDGET, similar: Similar | None = None) -> Candidates:
    """Return the candidates of a query; none if no word of it is in the index and nothing is similar."""
    scores = [0.0] * (len(index) + 1)
    read: list[Sequence[int]] = []
    left = budget
    for term, weight in zip(query.terms, query.idf, strict=True):
        postings, impacts = index.postings[term], index.impacts[term]
        if len(postings) > left:
            if read:
                break
            # Even the rarest word is everywhere: the newest units that have it.
            postings, impacts = postings[-left:], impacts[-left:]
        left -= len(postings)
        for number, impact in zip(postings, impacts, strict=True):
            scores[number] += weight * impact
        read.append(postings)
    found = _with_neighbours(index, _best(index, scores, read, query.idf))
    if query.paths:
        found.update(set(nlargest(_MOST_BY_PATH, query.paths)) - index.hidden)
    if similar is not None:
        found.update(set(similar.nearest(BEST_BY_SIMILARITY)) - index.hidden)
    return Candidates(sorted(found), scores)


def _best(index: RecallIndex, scores: list[float], read: list[Sequence[int]], weights: Sequence[float]) -> list[int]:
    """Return the units with the best scores, best first, equal ones in the order of the index."""
    lowest = _sampled_threshold(scores, read)
    found: set[int] = set()
    for place, numbers in enumerate(read):
        # Units that only this list and later ones have cannot score more than this.
        if sum(weights[place : len(read)]) * HIGHEST_IMPACT < lowest:
            break
        found.update([number for number in numbers if scores[number] >= lowest])
    found -= index.hidden
    if len(found) < BEST and lowest > 0:
        found = {number for numbers in read for number in numbers} - index.hidden
    if len(found) > 4 * BEST:
        lowest = nlargest(BEST, map(scores.__getitem__, found))[-1]
        found = {number for number in found if scores[number] >= lowest}
    return [number for _, number in sorted((-scores[number], number) for number in found)[:BEST]]


def _sampled_threshold(scores: list[float], read: list[Sequence[int]]) -> float:
    """Return a score that about three times as many units reach as are wanted, from every 16th posting of each list; 0 if there are few."""
    sample = [scores[number] for number in {number for numbers in read for number in numbers[::_SAMPLED]}]
    wanted = 3 * BEST // _SAMPLED * len(read)
    return sorted(sample, reverse=True)[wanted] if len(sample) > 4 * wanted else 0.0


def _with_neighbours(index: RecallIndex, best: list[int]) -> set[int]:
    """Return units with the neighbours of the best ones, within their sessions."""
    found = set(best)
    previous, following = index.previous, index.following
    for rank, number in enumerate(best[:BEST_WITH_NEIGHBOURS]):
        before, after = previous[number], following[number]
        found.update((before, after))
        if rank < BEST_WITH_SECOND_NEIGHBOURS:
            found.update((previous[before] if before >= 0 else -1, following[after] if after >= 0 else -1))
    found.discard(-1)
    return found - index.hidden
