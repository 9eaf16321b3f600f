"""Scores recalled text on cases of three levels: one fact, several sessions, and what no question asks for."""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.selection import select
from palimpsest.memory.recall.units import RecallUnit, cut

# Tokens of recalled text, and the share of facts from which a case counts as passed.
TOKENS: Final = 1_000
PASSED: Final = 0.8
_FACTS: Final = Path(__file__).with_name("level_facts.json")
_LEVEL: Final = re.compile(r"layer(\d)")
_SPACE: Final = re.compile(r"\s+")

# For each fact the spellings of which one must occur, folded.
Facts = tuple[tuple[str, ...], ...]


class CaseScore(Value, frozen=True):
    """Share of the facts of one case in the recalled text, and in all messages (`ceiling`)."""

    case: str
    level: int
    score: float
    ceiling: float


class LevelRow(Value, frozen=True):
    """Means over the cases of a level, and how many of them passed."""

    level: int
    cases: int
    score: float
    ceiling: float
    passed: int


class LevelsReport(Value, frozen=True):
    """Scores by level and by case; `unknown` are cases without annotated facts, which were left out."""

    rows: tuple[LevelRow, ...]
    cases: tuple[CaseScore, ...]
    unknown: tuple[str, ...] = ()


def eval_levels(folder: Path, *, announce: Callable[[str], None] = lambda _: None) -> LevelsReport:
    """Score every case below a folder that has annotated facts. Raises `BadInput` if there is none or one cannot be read."""
    facts = msgspec.json.decode(_FACTS.read_bytes(), type=dict[str, Facts])
    paths = sorted(folder.rglob("*.yaml"))
    announce(f"{folder.name}: {len(paths)} cases")
    scores: list[CaseScore] = []
    unknown: list[str] = []
    for path in paths:
        case = _read(path)
        try:
            name = str(case["test_id"])
            if name in facts:
                scores.append(score_case(name, case, facts[name]))
            else:
                unknown.append(name)
        except (KeyError, TypeError) as error:
            raise BadInput(f"this is no case of the three levels: {type(error).__name__} {error}", where=str(path)) from error
    if not scores:
        raise BadInput("there is no case with annotated facts below this folder", where=str(folder))
    levels = sorted({each.level for each in scores})
    rows = tuple(_row(level, [each for each in scores if each.level == level]) for level in levels)
    return LevelsReport(rows, tuple(scores), tuple(unknown))


def score_case(name: str, case: Mapping[str, Any], facts: Facts, tokens: int = TOKENS) -> CaseScore:
    """Recall text for the question of a case, and score it and all messages by the facts they contain."""
    index = RecallIndex()
    for history in case["conversation_histories"]:
        session, date = str(history["conversation_id"]), str(history["timestamp"])[:10]
        parts = ((message["role"], part) for message in history["messages"] for part in cut(message["content"]))
        for place, (role, part) in enumerate(parts):
            index.add(RecallUnit(f"{session}:{place}", part, role=role, session=session, position=place, date=date))
    question = case["user_question"]
    recalled = select(index, rank(index, question), question, tokens=tokens).text
    level = _LEVEL.search(name)
    everything = " ".join(unit.text for unit in index.units)
    return CaseScore(name, int(level[1]) if level else 0, found_share(facts, recalled), found_share(facts, everything))


def found_share(facts: Facts, text: str) -> float:
    """Return the share of facts that a text contains in one of their spellings; case and white space do not matter."""
    folded = _SPACE.sub(" ", text.lower())
    return sum(any(spelling in folded for spelling in spellings) for spellings in facts) / len(facts)


def _row(level: int, scores: Sequence[CaseScore]) -> LevelRow:
    count = len(scores)
    passed = sum(each.score >= PASSED for each in scores)
    return LevelRow(level, count, sum(each.score for each in scores) / count, sum(each.ceiling for each in scores) / count, passed)


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
