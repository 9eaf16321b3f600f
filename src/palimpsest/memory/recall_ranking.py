"""Ranks the units of an index for a query: candidates by rare words, features with learned weights, and chosen priors."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from heapq import nlargest
from itertools import islice, pairwise
from operator import mul
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.entities import names_of
from palimpsest.core.items import EMPTY_MAPPING, Value
from palimpsest.memory.recall_index import HIGHEST_IMPACT, RecallIndex, file_name, slashed, term_character
from palimpsest.memory.recall_terms import STEP, RecallUnit, fold, query_terms

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


class Similar:
    """Similarity of the meaning of one query to units: the cosine of each, by number, from vectors that another layer keeps; optional."""

    def __init__(self, cosines: Sequence[float]) -> None:
        self._cosines = cosines

    def nearest(self, count: int) -> list[int]:
        """Return the numbers of the most similar units, at most `count`, best first; equal ones in their order."""
        return nlargest(count, range(len(self._cosines)), key=self._cosines.__getitem__)

    def similarities(self, numbers: Sequence[int]) -> list[float]:
        """Return the similarity of each of these units, from -1 to 1."""
        return [self._cosines[number] for number in numbers]


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


FEATURES: Final = (
    "match",  # BM25 of the unit, relative to the best candidate
    "cover",  # share of the query's term weights that the unit has
    "rarest",  # weight of its rarest matched term
    "cover_with_previous",  # share that it and the unit before it have together
    "window",  # BM25 of it and its two neighbours as one text, relative to the best candidate
    "pairs",  # pairs of neighbouring terms of the query that are neighbours in the unit
    "previous",  # BM25 of the unit before, after, second before and second after, relative to the best candidate
    "following",
    "second_previous",
    "second_following",
    "previous_if_asked",  # BM25 of the unit before, if that ends with a question mark
    "session_match",  # BM25 of its session, whose words are units, relative to the best session
    "session_cover",  # share of term weights that the candidates of its session have together
    "session_best",  # BM25 of the best candidate of its session
    "distance",  # logarithm of the distance to that candidate
    "speaker",  # the query names its speaker, and no other
    "asks",  # it ends with a question mark
    "after_question",  # the unit before does
    "length",  # logarithm of its number of terms, up to 63
    "number",  # it has a digit
    "place",  # logarithm of its place in the session, up to 31
    "month",  # the query names the month of its date
    "user",  # the user said it, or it states a file that was worked on: no mere reply
    "user_match",  # BM25 of that, relative to the best candidate
)


# The last columns if a query has similarities: cosine to the unit with the one before it, and with the one after it, which is that of
# the next unit; in standard deviations of the candidates.
SIMILAR, SIMILAR_WITH_NEXT = "similar", "similar_with_next"
# BM25 of three units together, and of a session: k1, b, and the pivots in terms and in units.
_WINDOW: Final = (1.2, 0.75, 36.0)
_SESSION: Final = (1.2, 0.75, 20.0)


class TermCounts(Value, frozen=True):
    """How often each unit has each term of a query, and which terms it has, as bits, the rarest term first."""

    query: RecallQuery
    counts: list[dict[int, int]]
    masks: dict[int, int]
    total: float

    def shares(self, masks: list[int]) -> list[float]:
        """Return the share of all term weights that each set of terms has; each distinct set is computed once."""
        known = {mask: self._share(mask) for mask in set(masks)}
        return [known[mask] for mask in masks]

    def _share(self, mask: int) -> float:
        return sum(weight for bit, weight in enumerate(self.query.idf) if mask >> bit & 1) / self.total


def feature_columns(
    index: RecallIndex, query: RecallQuery, candidates: Candidates, similar: Similar | None = None
) -> dict[str, list[float]]:
    """Return one column for each of `FEATURES`, and two more if there are similarities, with a value for each candidate."""
    columns = dict(zip(FEATURES, _columns(index, query, candidates), strict=True))
    if similar is not None:
        columns[SIMILAR] = standardized(similar.similarities(candidates.numbers))
        after = [index.following[number] for number in candidates.numbers]
        with_next = [number if at < 0 else at for number, at in zip(candidates.numbers, after, strict=True)]
        columns[SIMILAR_WITH_NEXT] = standardized(similar.similarities(with_next))
    return columns


def standardized(column: Sequence[float]) -> list[float]:
    """Return a column less its mean, in standard deviations; zeros if all values are equal."""
    mean = sum(column) / len(column)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
    return [(value - mean) / deviation if deviation > 1e-9 else 0.0 for value in column]


def _columns(index: RecallIndex, query: RecallQuery, candidates: Candidates) -> list[list[float]]:
    numbers, scores = candidates.numbers, candidates.scores
    previous, following, asks = index.previous, index.following, index.asks
    before = [previous[number] for number in numbers]
    after = [following[number] for number in numbers]
    top = max(map(scores.__getitem__, numbers)) or 1.0
    found = _term_counts(index, query, {*numbers, *before, *after})
    masks = [found.masks[number] for number in numbers]
    joined = [mask | found.masks[at] for mask, at in zip(masks, before, strict=True)]
    highest = max(query.idf, default=1.0) or 1.0
    by_lowest_bit = [0.0, *(weight / highest for weight in query.idf)]
    asked = [asks[at] if at >= 0 else 0.0 for at in before]
    scores_before = [scores[at] / top for at in before]
    speakers, speaker = index.speaker_of, next(iter(query.speakers)) if len(query.speakers) == 1 else -2
    lengths, with_number, places, months = index.lengths, index.with_number, index.log_places, index.months
    matches = [scores[number] / top for number in numbers]
    users = [float(not _is_mere_reply(index.units[number])) for number in numbers] if index.has_roles else [0.0] * len(numbers)
    return [
        matches,
        found.shares(masks),
        [by_lowest_bit[(mask & -mask).bit_length()] for mask in masks],
        found.shares(joined),
        _window(index, found, numbers, before, after),
        _pairs(index, query, numbers, found.total),
        scores_before,
        [scores[at] / top for at in after],
        [scores[previous[at]] / top if at >= 0 else 0.0 for at in before],
        [scores[following[at]] / top if at >= 0 else 0.0 for at in after],
        [score * question for score, question in zip(scores_before, asked, strict=True)],
        *_session_columns(index, candidates, masks, found, top),
        [1.0 if speakers[number] == speaker else 0.0 for number in numbers],
        [asks[number] for number in numbers],
        asked,
        [lengths[number] for number in numbers],
        [with_number[number] for number in numbers],
        [places[number] for number in numbers],
        [1.0 if months[number] in query.months else 0.0 for number in numbers],
        users,
        [match * user for match, user in zip(matches, users, strict=True)],
    ]


def _is_mere_reply(unit: RecallUnit) -> bool:
    """Return whether a model said it, and it states no file that was worked on."""
    return unit.role == "assistant" and not unit.paths


def _term_counts(index: RecallIndex, query: RecallQuery, numbers: set[int]) -> TermCounts:
    sequences = index.sequences
    masks = dict.fromkeys(numbers, 0)
    masks[-1] = 0
    texts = [(number, sequences[number]) for number in numbers if number >= 0]
    counts: list[dict[int, int]] = []
    for place, term in enumerate(query.terms):
        character, bit = term_character(term), 1 << place
        having = {number: sequence.count(character) for number, sequence in texts if character in sequence}
        for number in having:
            masks[number] |= bit
        counts.append(having)
    return TermCounts(query, counts, masks, sum(query.idf) or 1.0)


def _window(index: RecallIndex, found: TermCounts, numbers: list[int], before: list[int], after: list[int]) -> list[float]:
    k1, b, pivot = _WINDOW
    sequences = index.sequences
    sizes = {number: len(sequences[number]) for number in found.masks if number >= 0}
    sizes[-1] = 0
    fixed, slope = k1 * (1 - b), k1 * b / pivot
    places = list(zip(numbers, before, after, strict=True))
    norms = [fixed + slope * (sizes[at] + sizes[left] + sizes[right]) for at, left, right in places]
    sums = [0.0] * len(numbers)
    for weight, having in zip(found.query.idf, found.counts, strict=True):
        count_of, factor = having.get, weight * (k1 + 1)
        counts = [count_of(at, 0) + count_of(left, 0) + count_of(right, 0) for at, left, right in places]
        sums = [total + factor * count / (count + norm) for total, count, norm in zip(sums, counts, norms, strict=True)]
    highest = max(sums) or 1.0
    return [total / highest for total in sums]


def _pairs(index: RecallIndex, query: RecallQuery, numbers: list[int], total: float) -> list[float]:
    weight_of = dict(zip(query.terms, query.idf, strict=True))
    sequences = [index.sequences[number] for number in numbers]
    found = [0.0] * len(numbers)
    for first, second in query.pairs:
        pair = term_character(first) + term_character(second)
        weight = (weight_of[first] + weight_of[second]) / (2 * total)
        for at, sequence in enumerate(sequences):
            if pair in sequence:
                found[at] += weight
    return found


def _session_columns(
    index: RecallIndex, candidates: Candidates, masks: list[int], found: TermCounts, top: float
) -> tuple[list[float], list[float], list[float], list[float]]:
    numbers, scores, places = candidates.numbers, candidates.scores, index.places
    sessions = [index.sessions[number] for number in numbers]
    best: dict[int, int] = {}
    joined: dict[int, int] = {}
    for number, session, mask in zip(numbers, sessions, masks, strict=True):
        leader = best.get(session)
        if leader is None:
            best[session], joined[session] = number, mask
            continue
        joined[session] |= mask
        if scores[number] > scores[leader]:
            best[session] = number
    matches = _session_matches(index, found.query, best)
    leaders = [best[session] for session in sessions]
    return (
        [matches[session] for session in sessions],
        found.shares([joined[session] for session in sessions]),
        [scores[leader] / top for leader in leaders],
        [_LOGARITHMS[min(abs(places[number] - places[leader]), _FARTHEST)] for number, leader in zip(numbers, leaders, strict=True)],
    )


def _session_matches(index: RecallIndex, query: RecallQuery, sessions: Iterable[int]) -> dict[int, float]:
    """Return the BM25 of sessions, in which a term counts once a unit, relative to the best of them."""
    k1, b, pivot = _SESSION
    chosen = list(sessions)
    norms = [k1 * (1 - b + b * len(index.members[session]) / pivot) for session in chosen]
    sums = [0.0] * len(chosen)
    for term in query.terms:
        weight = index.session_idf(term) * (k1 + 1)
        counts = index.units_with(term, chosen)
        sums = [total + weight * count / (count + norm) for total, count, norm in zip(sums, counts, norms, strict=True)]
    highest = max(sums) or 1.0
    return {session: total / highest for session, total in zip(chosen, sums, strict=True)}


# Distances in units of a session beyond which nothing is close.
_FARTHEST: Final = 255
_LOGARITHMS: Final = tuple(math.log1p(distance) for distance in range(_FARTHEST + 1))


# What a user said is asked for more often than a reply that states a file; that it is no mere reply is a learned feature.
ROLE_PRIORS: Final[Mapping[str, float]] = {"assistant": -1.0, "tool": -1.5}
# What a model says while it works is asked for less often than how a turn began and ended.
STEP_PRIOR: Final = -1.0
# A query that names a file asks for what is about that file, rather than about one with its name in another folder.
PATH_PRIOR, NAME_ONLY_PRIOR = 1.5, 0.5
# A query that is nothing but a file asks for the newest: the last unit about it is worth `RECENT_PRIOR`, the one before it this share of
# that, and so on. Where a query has other words, these decide. These two and `STEP_PRIOR` were chosen from nine settings with the scores
# of all projects of the coding set in view: its questions about paths are not held out for them.
RECENT_PRIOR, RECENT_SHARE = 3.0, 0.8
# It has the symbols, branches and codes that the query names, or whole lines of it, such as a command or an error, letter by letter.
SYMBOL_PRIOR: Final = 1.0
LINE_PRIOR: Final = 1.0


def with_priors(index: RecallIndex, query: RecallQuery, candidates: Candidates, scores: Sequence[float]) -> list[float]:
    """Return the scores of candidates with their priors, which are in units of the learned score.

    Units without roles and files, as those of conversations, are not moved.
    """
    if not index.has_roles and not index.files:
        return list(scores)
    recent = _recent(index, query, candidates.numbers)
    return [
        score
        + _prior(index.units[number], query, is_named=number in query.paths)
        + RECENT_PRIOR * query.only_files * recent.get(number, 0.0)
        for score, number in zip(scores, candidates.numbers, strict=True)
    ]


def _prior(unit: RecallUnit, query: RecallQuery, *, is_named: bool) -> float:
    found = (0.0 if _is_mere_reply(unit) else ROLE_PRIORS.get(unit.role, 0.0)) + (STEP_PRIOR if unit.kind == STEP else 0.0)
    if is_named:
        found += PATH_PRIOR if _is_about(unit, query.files) else NAME_ONLY_PRIOR
    return found + SYMBOL_PRIOR * _share(unit.text, query.symbols) + LINE_PRIOR * _share(unit.text, query.lines)


def _recent(index: RecallIndex, query: RecallQuery, numbers: Sequence[int]) -> dict[int, float]:
    """Return from 0 to 1 how new each candidate about a named file is among all of them, by date and then by the order of the index."""
    if not query.only_files:
        return {}
    units = index.units
    about = [number for number in numbers if number in query.paths and _is_about(units[number], query.files)]
    newest_first = sorted(about, key=lambda number: (units[number].date, number), reverse=True)
    return {number: RECENT_SHARE**place for place, number in enumerate(newest_first)}


def _is_about(unit: RecallUnit, files: Sequence[str]) -> bool:
    """Return whether a unit is about a file that is named with its folders, or whose path ends with what is named."""
    return any(f"/{path}".endswith(f"/{file}") or f"/{file}".endswith(f"/{path}") for path in unit.paths for file in files)


def _share(text: str, wanted: Sequence[str]) -> float:
    return sum(each in text for each in wanted) / len(wanted) if wanted else 0.0


# Of each conversation that the weights were fitted on (six of LoCoMo and the 20 of BEAM-100K) 12 digits of the SHA-256 of its texts: scores
# on these are not held out. A weight is the change of a score for one unit of its feature; `FEATURES` says what each feature is.
_TRAINED: Final = (
    "86886f206598 1b2d9e73eb42 a4afe905eb00 9a09615782ba 967f19de5c97 12c3440c8574 e5d1ec05642a "
    "b885b8b50bbd 88a97ae1d137 652e65c4e17d afae9b3ea4df 7a6550a7645b af26ce80b484 5c9c5b0e110d "
    "b62fb5063f93 46a90cab5693 adcfce24ba25 56d7fd8df362 3ccfe28b6296 a58491ff8571 2c9c409c0852 "
    "21166cdf4de5 fb021d07b8b0 140f4f433fa2 024a3f1e8181 36711cf01fa0"
)
TRAINED_CONVERSATIONS: Final = frozenset(_TRAINED.split())
WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.2987,
    "cover": 0.9179,
    "rarest": 0.3605,
    "cover_with_previous": 1.4685,
    "window": 2.3086,
    "pairs": 1.8442,
    "previous": -1.3772,
    "following": -0.2069,
    "second_previous": 0.7866,
    "second_following": 0.4222,
    "previous_if_asked": 2.3395,
    "session_match": 1.5319,
    "session_cover": 0.4981,
    "session_best": 1.1997,
    "distance": -0.0741,
    "speaker": 2.7067,
    "asks": -0.2555,
    "after_question": -0.0359,
    "length": -0.0236,
    "number": 0.7416,
    "place": -0.2069,
    "month": 4.1299,
    "user": 3.0494,
    "user_match": 1.5403,
}
# The same with embeddings: `pal memory eval locomo-open.json beam-100k.json.gz --fit --embed`, wordllama 0.4.0.
SIMILAR_WEIGHTS: Final[Mapping[str, float]] = {
    "match": -0.6978,
    "cover": 0.7144,
    "rarest": 0.2868,
    "cover_with_previous": 1.5332,
    "window": 1.2579,
    "pairs": 1.7038,
    "previous": -1.5869,
    "following": -0.2269,
    "second_previous": 0.6654,
    "second_following": 0.2891,
    "previous_if_asked": 2.2834,
    "session_match": 1.4043,
    "session_cover": 0.4622,
    "session_best": 0.9757,
    "distance": -0.0835,
    "speaker": 2.719,
    "asks": -0.3512,
    "after_question": -0.1229,
    "length": 0.0007,
    "number": 0.5862,
    "place": -0.1859,
    "month": 4.0201,
    "user": 2.7631,
    "user_match": 1.6306,
    "similar": 0.4085,
    "similar_with_next": 0.204,
}


# Importance, use and age decide between equals: each moves a unit by at most this many standard deviations of the scores.
STANDING_DEVIATIONS: Final = 0.1
# Where all scores are equal, these still decide.
LEAST_STANDING: Final = 1e-3
HALF_LIFE_DAYS: Final = 60.0
USES_SCALE: Final = 3.0
# Scores are compared in steps of a billionth, so that the last bit of a logarithm decides nothing on any platform.
_STEPS: Final = 1e9
MOST: Final = 50
# Units that are due stand behind this many better ones at most, and so many of them do.
DUE_PLACE, MOST_DUE_PLACED = 2, 2


class Standing(Value, frozen=True):
    """What is known about a unit beside its text: importance from 0 to 1, and how often it was cited."""

    importance: float = 0.0
    uses: int = 0


class RecallHit(Value, frozen=True):
    """A unit that was found, and its score; only the order of the scores of one query has a meaning.

    remark: what a reader must know about it, such as what replaced it; shown in its line, empty for most.
    """

    unit: RecallUnit
    score: float
    remark: str = ""


class RankingOptions(Value, frozen=True):
    """What a ranking considers beside the words.

    now: today as an ISO date; without it age does not matter.
    standing: importance and uses by unit id; what is missing is neutral.
    excluded: ids of units that are not returned, such as those shown before.
    kinds: only units of these kinds, if not empty.
    due: ids of units that are returned without a matching word, the soonest first: see `due.py`.
    """

    now: str = ""
    standing: Mapping[str, Standing] = EMPTY_MAPPING
    excluded: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    due: tuple[str, ...] = ()


NEUTRAL: Final = RankingOptions()


def rank(
    index: RecallIndex,
    text: str,
    *,
    most: int = MOST,
    weights: Mapping[str, float] | None = None,
    options: RankingOptions = NEUTRAL,
    similar: Similar | None = None,
) -> tuple[RecallHit, ...]:
    """Return the best units for a query, best first, at most `most`; equal scores in the order of the index. No model is asked.

    `weights` are the shipped ones if not given. `similar` is the similarity of the query to all units, if vectors of them are kept.
    """
    query = read_query(index, text)
    candidates = find_candidates(index, query, similar=similar)
    if not candidates.numbers:
        return with_due(index, (), options, most)
    columns = feature_columns(index, query, candidates, similar)
    scores = linear_scores(columns, weights or (WEIGHTS if similar is None else SIMILAR_WEIGHTS))
    scores = with_priors(index, query, candidates, scores)
    scores = _with_standing(index, candidates, scores, options)
    order = sorted(zip([-int(score * _STEPS) for score in scores], candidates.numbers, strict=True))
    excluded, kinds, units = options.excluded, options.kinds, index.units
    allowed = (
        (steps, units[number]) for steps, number in order if units[number].id not in excluded and (not kinds or units[number].kind in kinds)
    )
    return with_due(index, tuple(RecallHit(unit, -steps / _STEPS) for steps, unit in islice(allowed, most)), options, most)


def with_due(index: RecallIndex, hits: tuple[RecallHit, ...], options: RankingOptions, most: int) -> tuple[RecallHit, ...]:
    """Return the hits with what is due behind the best two, with the score of the hit before it; what stands higher already stays."""
    leading = {hit.unit.id for hit in hits[:DUE_PLACE]}
    due = [
        index.units[index.numbers[each]]
        for each in options.due
        if each in index.numbers and index.numbers[each] not in index.hidden and each not in options.excluded and each not in leading
    ]
    placed = [unit for unit in due if not options.kinds or unit.kind in options.kinds][:MOST_DUE_PLACED]
    if not placed:
        return hits
    score = hits[min(DUE_PLACE, len(hits)) - 1].score if hits else 0.0
    moved = {unit.id for unit in placed}
    rest = (hit for hit in hits[DUE_PLACE:] if hit.unit.id not in moved)
    return (*hits[:DUE_PLACE], *(RecallHit(unit, score) for unit in placed), *rest)[:most]


def linear_scores(columns: Mapping[str, list[float]], weights: Mapping[str, float]) -> list[float]:
    """Return the weighted sum of the features of each candidate; features without a weight do not count."""
    factors = [weights.get(name, 0.0) for name in columns]
    return [sum(map(mul, factors, row)) for row in zip(*columns.values(), strict=True)]


def _with_standing(index: RecallIndex, candidates: Candidates, scores: list[float], options: RankingOptions) -> list[float]:
    if not options.now and not options.standing:
        return scores
    mean = sum(scores) / len(scores)
    step = max(LEAST_STANDING, STANDING_DEVIATIONS * math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores)))
    today = _day(options.now)
    moved: list[float] = []
    for score, number in zip(scores, candidates.numbers, strict=True):
        unit = index.units[number]
        standing = options.standing.get(unit.id)
        extra = 0.0
        if standing is not None:
            extra += min(max(standing.importance, 0.0), 1.0) + 1 - math.exp(-max(standing.uses, 0) / USES_SCALE)
        day = _day(unit.date)
        if today is not None and day is not None:
            extra += 2 ** (-max(0, today - day) / HALF_LIFE_DAYS)
        moved.append(score + step * extra)
    return moved


def _day(text: str) -> int | None:
    """Return the day of an ISO date as a number; None if it is no date."""
    try:
        return date.fromisoformat(text[:10]).toordinal()
    except ValueError:
        return None
