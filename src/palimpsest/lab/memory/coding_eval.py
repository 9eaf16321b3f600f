"""Evaluates recall over past coding sessions: questions made by rules, our ranking, and SQLite's full-text index at its best setting."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, SessionOpened
from palimpsest.core.items import Value
from palimpsest.lab.memory.coding_set import RULES, CodingQuestion, Rule, SessionRecord, coding_questions, read_record
from palimpsest.lab.memory.conversations import Conversation, Question
from palimpsest.lab.memory.floor import floor_rankings
from palimpsest.lab.memory.scoring import score
from palimpsest.lab.simulation.loading import load_all
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.sessions.episodes import find_fix
from palimpsest.memory.sessions.units import event_id, session_units

Variant: TypeAlias = Literal["exact", "hard"]
"""A query as it was recorded, or without what makes it trivially equal to its answer."""

VARIANTS: Final[tuple[Variant, ...]] = ("exact", "hard")
_MOST: Final = 400
_ANSWER: Final = "answer"
_OURS, _FIXES = "ours", "ours, fixes first"
_ERROR_RULES: Final[frozenset[Rule]] = frozenset({"first failure", "later failure", "known error"})


class CodingRow(Value, frozen=True):
    """Means over the questions of a rule; one right event is enough. `setting` is the one of the rival that scored best here."""

    rule: Rule
    variant: Variant
    ranking: str
    questions: int
    recall_1: float
    recall_5: float
    recall_10: float
    ndcg_10: float
    setting: str = ""


class CodingReport(Value, frozen=True):
    """Everything that was measured. `failures` are commands that failed with error lines, `repairs` those that succeeded again after
    something was done, `elsewhere` the failures whose error was repaired in an earlier session.
    """

    data: str
    projects: int
    sessions: int
    units: int
    failures: int
    repairs: int
    elsewhere: int
    rows: tuple[CodingRow, ...]


class PastProject(Value, frozen=True):
    """The sessions of one project: their events by session, and what the rules read of them."""

    name: str
    events: Mapping[str, Sequence[Event]]
    records: tuple[SessionRecord, ...]

    def units(self, before: int) -> tuple[RecallUnit, ...]:
        """Return the units of everything that happened before a time in milliseconds."""
        return tuple(
            unit
            for session, events in self.events.items()
            for unit in session_units(session, (event for event in events if event.at < before))
        )


def eval_coding(folder: Path, *, announce: Callable[[str], None] = lambda _: None) -> CodingReport:
    """Measure recall over the sessions of coding agents below a folder. Raises `BadInput` if there is no question in them."""
    projects = list(_projects(folder))
    questions = [(project, question) for project in projects for question in coding_questions(project.name, project.records)]
    if not questions:
        raise BadInput("no session below this folder has an error that was fixed, or a file that was edited", where=str(folder))
    announce(f"{folder.name}: {len(projects)} projects, {len(questions)} questions")
    ranks = _Ranks(projects)
    rows = [
        row
        for rule in RULES
        for variant in VARIANTS
        if (asked := [each for each in questions if each[1].rule == rule])
        for row in _rows(rule, variant, asked, ranks)
    ]
    records = [record for project in projects for record in project.records]
    return CodingReport(
        data=folder.name,
        projects=len(projects),
        sessions=len(records),
        units=sum(len(ranks.units(project, 1 << 62)) for project in projects),
        failures=sum(len(record.failures) for record in records),
        repairs=sum(len(record.repairs) for record in records),
        elsewhere=sum(question.elsewhere for _, question in questions),
        rows=tuple(rows),
    )


def _projects(folder: Path) -> Iterator[PastProject]:
    """Yield the projects below a folder: sessions that began in the same folder belong to one."""
    found: dict[str, dict[str, Sequence[Event]]] = {}
    for loaded in load_all([folder]):
        opened = loaded.events[0].body
        name = (opened.cwd if isinstance(opened, SessionOpened) else "") or loaded.id
        found.setdefault(name, {})[loaded.id] = loaded.events
    for name, sessions in found.items():
        # An index is filled in the order of time.
        ordered = dict(sorted(sessions.items(), key=lambda each: each[1][0].at))
        yield PastProject(name, ordered, tuple(read_record(session, events) for session, events in ordered.items()))


def _rows(rule: Rule, variant: Variant, asked: Sequence[tuple[PastProject, CodingQuestion]], ranks: "_Ranks") -> Iterator[CodingRow]:
    settings = {name: [ranks.of(project, question, variant, name) for project, question in asked] for name in RIVALS}
    best = max(RIVALS, key=lambda name: sum(map(_gain, settings[name])))
    yield _row(rule, variant, "FTS5 at its best", settings[best], best)
    for name in (_OURS, *((_FIXES,) if rule in _ERROR_RULES else ())):
        yield _row(rule, variant, name, [ranks.of(project, question, variant, name) for project, question in asked])


def _row(rule: Rule, variant: Variant, ranking: str, ranks: Sequence[int], setting: str = "") -> CodingRow:
    count = len(ranks)
    recalls = [sum(0 < rank <= depth for rank in ranks) / count for depth in (1, 5, 10)]
    return CodingRow(rule, variant, ranking, count, *recalls, sum(map(_gain, ranks)) / count, setting)


def _gain(place: int) -> float:
    """Return nDCG@10 of a question whose one answer has this rank, 0 if it was not found."""
    return score([*map(str, range(1, place)), _ANSWER], [_ANSWER]).ndcg_10 if place else 0.0


RIVALS: Final = ("all words, text", "all words, text and paths", "without stop words, text", "without stop words, text and paths")


class _Ranks:
    """Ranks of answers; indexes are built once for each project and time."""

    def __init__(self, projects: Iterable[PastProject]) -> None:
        self._units: dict[tuple[str, int], tuple[RecallUnit, ...]] = {}
        self._indexes: dict[tuple[str, int], RecallIndex] = {}
        self._names = tuple(project.name for project in projects)

    def units(self, project: PastProject, before: int) -> tuple[RecallUnit, ...]:
        """Return the units of a project before a time."""
        key = (project.name, before)
        if key not in self._units:
            self._units[key] = project.units(before)
        return self._units[key]

    def of(self, project: PastProject, question: CodingQuestion, variant: Variant, ranking: str) -> int:
        """Return the rank of the first unit that answers a question, from 1; 0 if none was found."""
        text = question.text if variant == "exact" else question.hard
        ids = self._rival(project, question, text, ranking) if ranking in RIVALS else self._ours(project, question, text, ranking)
        # Several units of one event count where the first of them stands.
        events = dict.fromkeys(event_id(each) for each in ids)
        return next((place for place, event in enumerate(events, 1) if event in question.answers), 0)

    def _ours(self, project: PastProject, question: CodingQuestion, text: str, ranking: str) -> list[str]:
        key = (project.name, question.at)
        if key not in self._indexes:
            self._indexes[key] = RecallIndex(self.units(project, question.at))
        index = self._indexes[key]
        first = find_fix(index, "", text) if ranking == _FIXES else ()
        return [hit.unit.id for hit in (*first, *rank(index, text, most=_MOST))]

    def _rival(self, project: PastProject, question: CodingQuestion, text: str, setting: str) -> list[str]:
        units = self.units(project, question.at)
        if setting.endswith("paths"):
            units = tuple(replace(unit, text="\n".join((unit.text, *unit.paths))) for unit in units)
        asked = Conversation(project.name, units, (Question(0, text, 0, (), ()),))
        return next(floor_rankings(asked, stop_words=setting.startswith("all")))
