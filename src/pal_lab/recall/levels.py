"""Scores recalled text on cases of three levels: one fact, several sessions, and what no question asks for."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_selection import MOST_HITS, digest
from palimpsest.memory.recall_terms import RecallUnit, cut

# Tokens of recalled text, and the share of facts from which a case counts as passed.
TOKENS: Final = 1_000
PASSED: Final = 0.8
_FACTS: Final = Path(__file__).with_name("level_facts.json")
_CASE: Final = re.compile(r"layer(\d)_(\d+)")
_SPACE: Final = re.compile(r"\s+")
_NUMBER: Final = re.compile(r"[^\W\d_]*-?\d[\w.,:%/-]*")
_MARKS: Final = ".,:-/"
# Numbers with fewer digits occur everywhere.
_FEWEST_DIGITS: Final = 2

Facts = tuple[tuple[str, ...], ...]
"""For each fact the spellings of which one must occur, folded."""


class StaleValue(Value, frozen=True):
    """A value that was replaced: the old spellings must not be read before one of the new ones."""

    old: tuple[str, ...]
    new: tuple[str, ...]


class CaseFacts(Value, frozen=True):
    """What is annotated for a case, folded.

    required: facts that are needed; stale: values that no longer hold; links: facts of different conversations that are needed together.
    """

    required: Facts
    stale: tuple[StaleValue, ...] = ()
    links: Facts = ()


class CaseScore(Value, frozen=True):
    """Facts of one case in the recalled text, their share, and the share in all messages (`ceiling`).

    stale: old values that the recalled text gives as current. links: share of the links whose facts were all recalled.
    annotated: false if the facts are the numbers that the case's own criteria state.
    """

    case: str
    level: int
    facts: int
    recalled: int
    score: float
    ceiling: float
    tokens: int
    stale: tuple[str, ...] = ()
    links: float = 1.0
    annotated: bool = True

    @property
    def passed(self) -> bool:
        """Whether enough facts were recalled and no stale value was given as current."""
        return self.score >= PASSED and not self.stale


class LevelRow(Value, frozen=True):
    """Means over the cases of a level, the number of facts and of those recalled, and how many cases passed.

    second_half: the mean over the cases that are not of the first half, see `first_half`; ratio: `score` as a share of `ceiling`.
    tokens: most of a case.
    """

    cases: int
    facts: int
    recalled: int
    score: float
    ceiling: float
    ratio: float
    second_half: float
    links: float
    stale: int
    passed: int
    tokens: int


class LevelsReport(Value, frozen=True):
    """Scores by level and by case; `unannotated` are cases that were scored by the numbers in their criteria."""

    data: str
    cases: int
    levels: Mapping[str, LevelRow]
    scores: tuple[CaseScore, ...]
    unannotated: tuple[str, ...] = ()


def eval_levels(folder: Path, *, facts: Path | None = None, announce: Callable[[str], None] = lambda _: None) -> LevelsReport:
    """Score every case below a folder by its annotated facts, from a file if given. Raises `BadInput` if a case cannot be read, or none is.

    A case without annotation is scored by the numbers that its own criteria state, and named.
    """
    annotated = read_facts(facts or _FACTS)
    paths = sorted(folder.rglob("*.yaml"))
    announce(f"{folder.name}: {len(paths)} cases")
    scores: list[CaseScore] = []
    for path in paths:
        case = _read(path)
        try:
            name = str(case["test_id"])
            known = annotated.get(name)
            found = known or CaseFacts(criteria_facts(case))
            if found.required:
                scores.append(score_case(name, case, found, annotated=known is not None))
        except (KeyError, TypeError) as error:
            raise BadInput(f"this is no case of the three levels: {type(error).__name__} {error}", where=str(path)) from error
    if not scores:
        raise BadInput("there is no case with facts below this folder", where=str(folder))
    levels = sorted({each.level for each in scores})
    rows = {str(level): _row([each for each in scores if each.level == level]) for level in levels}
    return LevelsReport(folder.name, len(scores), rows, tuple(scores), tuple(each.case for each in scores if not each.annotated))


def read_facts(path: Path) -> dict[str, CaseFacts]:
    """Return the annotated facts of a file by case. Raises `BadInput` if it cannot be read as such."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, CaseFacts])
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"these are no facts of cases: {error}", where=str(path)) from error


def criteria_facts(case: Mapping[str, Any]) -> Facts:
    """Return the numbers of two digits and more that the criteria of a case state and its question does not."""
    asked = case["user_question"].lower()
    criteria = (str(case.get(key) or "") for key in ("evaluation_criteria", "expected_behavior"))
    stated = (number.strip(_MARKS).lower() for text in criteria for number in _NUMBER.findall(text))
    found = (number for number in stated if sum(map(str.isdigit, number)) >= _FEWEST_DIGITS and number not in asked)
    return tuple((number,) for number in dict.fromkeys(found))


def score_case(name: str, case: Mapping[str, Any], facts: CaseFacts, tokens: int = TOKENS, *, annotated: bool = True) -> CaseScore:
    """Recall text for the question of a case, and score it and all messages by the facts they contain."""
    index = RecallIndex(_units(case))
    question = case["user_question"]
    recalled = digest(index, rank(index, question, most=MOST_HITS), question, tokens=tokens)
    level = _CASE.search(name)
    everything = " ".join(unit.text for unit in index.units)
    share = found_share(facts.required, recalled.text)
    return CaseScore(
        name,
        int(level[1]) if level else 0,
        len(facts.required),
        round(share * len(facts.required)),
        share,
        found_share(facts.required, everything),
        recalled.tokens,
        stale=stale_given(facts.stale, recalled.text),
        links=_links(facts.links, recalled.text),
        annotated=annotated,
    )


def _units(case: Mapping[str, Any]) -> Iterator[RecallUnit]:
    for history in case["conversation_histories"]:
        session, date = str(history["conversation_id"]), str(history["timestamp"])[:10]
        parts = ((message["role"], part) for message in history["messages"] for part in cut(message["content"]))
        for place, (role, part) in enumerate(parts):
            yield RecallUnit(f"{session}:{place}", part, role=role, session=session, position=place, date=date)


def found_share(facts: Facts, text: str) -> float:
    """Return the share of facts that a text contains in one of their spellings; case and white space do not matter."""
    folded = _folded(text)
    return sum(any(spelling in folded for spelling in spellings) for spellings in facts) / len(facts)


def stale_given(stale: Sequence[StaleValue], text: str) -> tuple[str, ...]:
    """Return the old values that a text gives as current: without the new one, or before it."""
    folded = _folded(text)
    found: list[str] = []
    for each in stale:
        old = min((place for spelling in each.old if (place := folded.find(spelling)) >= 0), default=-1)
        new = min((place for spelling in each.new if (place := folded.find(spelling)) >= 0), default=-1)
        if old >= 0 and (new < 0 or old < new):
            found.append(each.old[0])
    return tuple(found)


def _links(links: Facts, text: str) -> float:
    folded = _folded(text)
    return sum(all(fact in folded for fact in link) for link in links) / len(links) if links else 1.0


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text.lower())


def first_half(case: str) -> bool:
    """Whether a case is numbered 1, 5, 9, 13 or 17 of its level.

    The weights of the digest were first set on these. Its later rules were added with the other cases in sight, so neither half is unseen.
    """
    found = _CASE.search(case)
    return found is not None and int(found[2]) % 4 == 1


def _row(scores: Sequence[CaseScore]) -> LevelRow:
    mean, ceiling = _mean([each.score for each in scores]), _mean([each.ceiling for each in scores])
    return LevelRow(
        cases=len(scores),
        facts=sum(each.facts for each in scores),
        recalled=sum(each.recalled for each in scores),
        score=mean,
        ceiling=ceiling,
        ratio=mean / ceiling if ceiling else 0.0,
        second_half=_mean([each.score for each in scores if not first_half(each.case)]),
        links=_mean([each.links for each in scores]),
        stale=sum(len(each.stale) for each in scores),
        passed=sum(each.passed for each in scores),
        tokens=max(each.tokens for each in scores),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _read(path: Path) -> Mapping[str, Any]:
    """Return a YAML file. Raises `BadInput` if it is broken, or without a package that reads YAML."""
    if find_spec("ruamel") is None:
        raise BadInput("cases are YAML files, and reading them needs a package: pip install 'palimpsest-agent[eval]'", where=str(path))
    yaml = import_module("ruamel.yaml")
    try:
        found = yaml.YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.error.YAMLError) as error:
        raise BadInput(f"this case cannot be read: {type(error).__name__}", where=str(path)) from error
    if not isinstance(found, dict):
        raise BadInput("this is no case of the three levels", where=str(path))
    return found
