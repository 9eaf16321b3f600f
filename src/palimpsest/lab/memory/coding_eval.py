"""Evaluates recall over past coding sessions: questions made by rules, our ranking, and SQLite's full-text index at its best setting."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, SessionOpened
from palimpsest.core.items import Value
from palimpsest.lab.memory.coding_set import LATEST, RULES, CodingQuestion, Rule, SessionRecord, coding_questions, read_record
from palimpsest.lab.memory.conversations import AskedConversation, Question
from palimpsest.lab.memory.floor import floor_rankings
from palimpsest.lab.memory.scoring import score
from palimpsest.lab.simulation.loading import load_all
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.units import RecallUnit, cut
from palimpsest.memory.sessions.episodes import find_fix
from palimpsest.memory.sessions.steps import SaidStep, session_steps
from palimpsest.memory.sessions.units import event_id, session_units

Variant: TypeAlias = Literal["exact", "hard"]
"""A query as it was recorded, or without what makes it trivially equal to its answer."""

VARIANTS: Final[tuple[Variant, ...]] = ("exact", "hard")
_MOST: Final = 400
_ANSWER: Final = "answer"
OURS, FIXES_FIRST = "ours", "ours, fixes first"
# Settings of the rival over the same units, and over nothing but what was said: without files, commands, errors and fixes.
RIVALS: Final = ("all words, text", "all words, text and paths", "without stop words, text", "without stop words, text and paths")
SAID_ONLY: Final = ("all words, said", "without stop words, said")
_ERROR_RULES: Final[frozenset[Rule]] = frozenset({"first failure", "later failure", "known error"})


class CodingRow(Value, frozen=True):
    """Means over the questions of a rule; one right event is enough.

    setting: that of the rival which scored best here. project: the last folder of the only project that counts; empty for all.
    """

    rule: Rule
    variant: Variant
    ranking: str
    questions: int
    recall_1: float
    recall_5: float
    recall_10: float
    ndcg_10: float
    setting: str = ""
    project: str = ""


class CodingReport(Value, frozen=True):
    """Everything that was measured.

    failures: commands that failed with error lines; repairs: those that succeeded again after something was done.
    elsewhere: questions about failures whose error was repaired in an earlier session. by_project: our ranking for each project.
    """

    data: str
    projects: int
    sessions: int
    units: int
    failures: int
    repairs: int
    elsewhere: int
    rows: tuple[CodingRow, ...]
    by_project: tuple[CodingRow, ...]


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

    def said(self, before: int) -> tuple[RecallUnit, ...]:
        """Return what was said before a time, in units without anything else."""
        return tuple(
            RecallUnit(f"{session}:{step.seq}.{number}", part)
            for session, events in self.events.items()
            for step in session_steps(event for event in events if event.at < before)
            if isinstance(step, SaidStep)
            for number, part in enumerate(cut(step.text), 1)
        )


def eval_coding(folder: Path, *, announce: Callable[[str], None] = lambda _: None) -> CodingReport:
    """Measure recall over the sessions of coding agents below a folder. Raises `BadInput` if there is no question in them."""
    projects = list(_projects(folder))
    asked = [(project, coding_questions(project.name, project.records)) for project in projects]
    count = sum(len(questions) for _, questions in asked)
    if not count:
        raise BadInput("no session below this folder has an error that was fixed, or a file that was edited", where=str(folder))
    announce(f"{folder.name}: {len(projects)} projects, {count} questions")
    found = [place for project, questions in asked for place in _places(project, questions)]
    records = [record for project in projects for record in project.records]
    return CodingReport(
        data=folder.name,
        projects=len(projects),
        sessions=len(records),
        units=sum(len(project.units(LATEST)) for project in projects),
        failures=sum(len(record.failures) for record in records),
        repairs=sum(len(record.repairs) for record in records),
        elsewhere=sum(question.elsewhere for _, questions in asked for question in questions),
        rows=tuple(row for rule in RULES for variant in VARIANTS for row in _rows(rule, variant, found)),
        by_project=tuple(
            replace(row, project=PurePosixPath(project.name.replace("\\", "/")).name)
            for project in projects
            for rule in RULES
            for variant in VARIANTS
            for row in _rows(rule, variant, [each for each in found if each.question.project == project.name])
            if row.ranking == OURS
        ),
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


def _rows(rule: Rule, variant: Variant, found: Sequence["AnswerPlace"]) -> Iterator[CodingRow]:
    by_ranking: dict[str, list[int]] = {}
    for each in found:
        if each.question.rule == rule and each.variant == variant:
            by_ranking.setdefault(each.ranking, []).append(each.place)
    if not by_ranking:
        return
    for title, names in (("FTS5, what was said", SAID_ONLY), ("FTS5, our units", RIVALS)):
        # The setting that is best here is chosen for the rival, never for us.
        best = max(names, key=lambda name: sum(map(_gain, by_ranking[name])))
        yield _row(rule, variant, title, by_ranking[best], best)
    yield _row(rule, variant, OURS, by_ranking[OURS])
    if rule in _ERROR_RULES:
        yield _row(rule, variant, FIXES_FIRST, by_ranking[FIXES_FIRST])


def _row(rule: Rule, variant: Variant, ranking: str, places: Sequence[int], setting: str = "") -> CodingRow:
    count = len(places)
    first, fifth, tenth = (sum(0 < place <= depth for place in places) / count for depth in (1, 5, 10))
    return CodingRow(rule, variant, ranking, count, first, fifth, tenth, sum(map(_gain, places)) / count, setting)


def _gain(place: int) -> float:
    """Return nDCG@10 of a question whose one answer has this place, 0 if it was not found."""
    return score([*map(str, range(1, place)), _ANSWER], [_ANSWER]).ndcg_10 if place else 0.0


class AnswerPlace(Value, frozen=True):
    """Where a ranking has the first event that answers a question, from 1; 0 if it was not found."""

    question: CodingQuestion
    variant: Variant
    ranking: str
    place: int


def _places(project: PastProject, questions: Sequence[CodingQuestion]) -> Iterator[AnswerPlace]:
    """Yield the places of the answers to all questions of a project; there is one index for each time at which something is asked."""
    for before in dict.fromkeys(question.at for question in questions):
        asked = [question for question in questions if question.at == before]
        units = project.units(before)
        index = RecallIndex(units)
        with_paths = tuple(replace(unit, text="\n".join((unit.text, *unit.paths))) for unit in units)
        said = project.said(before)
        for variant in VARIANTS:
            texts = [question.text if variant == "exact" else question.hard for question in asked]
            rankings: dict[str, Iterable[Iterable[str]]] = {
                OURS: (_ours(index, text) for text in texts),
                FIXES_FIRST: ((*(hit.unit.id for hit in find_fix(index, "", text)), *_ours(index, text)) for text in texts),
            }
            for name in (*RIVALS, *SAID_ONLY):
                searched = said if name in SAID_ONLY else with_paths if name.endswith("paths") else units
                rankings[name] = _rival(project.name, searched, texts, stop_words=name.startswith("all"))
            for name, ranked in rankings.items():
                for question, ids in zip(asked, ranked, strict=True):
                    yield AnswerPlace(question, variant, name, _place(question, ids))


def _place(question: CodingQuestion, ids: Iterable[str]) -> int:
    # Several units of one event count where the first of them stands.
    events = dict.fromkeys(map(event_id, ids))
    return next((place for place, event in enumerate(events, 1) if event in question.answers), 0)


def _ours(index: RecallIndex, text: str) -> list[str]:
    return [hit.unit.id for hit in rank(index, text, most=_MOST)]


def _rival(name: str, units: tuple[RecallUnit, ...], texts: Sequence[str], *, stop_words: bool) -> Iterator[list[str]]:
    asked = tuple(Question(number, text, 0, (), ()) for number, text in enumerate(texts))
    return floor_rankings(AskedConversation(name, units, asked), stop_words=stop_words)
