"""Evaluates recall on data with known evidence: scores, full-text floors, gates, and past coding sessions."""

import math
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from pal.replay.recording import load_all
from pal_lab.recall.data import (
    ADVERSARIAL,
    BEAM,
    LATEST,
    RULES,
    AskedConversation,
    CodingQuestion,
    EvaluationData,
    Question,
    Rule,
    SessionRecord,
    category_name,
    coding_questions,
    message_of,
    read_data,
    read_record,
)
from pal_lab.recall.latency import P95_LIMIT_MS, WORST_LIMIT_MS, Latency
from pal_lab.recall.levels import TOKENS, LevelsReport
from pal_lab.recall.training import PENALTY, Sample, fit, sample
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, SessionOpened
from palimpsest.core.items import Value
from palimpsest.memory.past_sessions import SaidStep, event_id, find_fix, session_steps, session_units
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import TRAINED_CONVERSATIONS, Similar, rank
from palimpsest.memory.recall_terms import STOP_WORDS, RecallUnit, cut, fold
from palimpsest.memory.vectors import Embedder, TextVectors

_POSSESSIVE: Final = re.compile(r"'s\b")
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")
_MOST: Final = 400


def floor_rankings(conversation: AskedConversation, *, stop_words: bool = False) -> Iterator[list[str]]:
    """Yield the ranking of each question of a conversation by FTS5: ids, best first, equal scores in the order of the units.

    `stop_words`: search for stop words too.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
        rows = ((number, f"{unit.who}: {unit.text}") for number, unit in enumerate(conversation.units))
        database.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", rows)
        for question in conversation.questions:
            found = database.execute(
                "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?",
                (_match(question.text, stop_words=stop_words), _MOST),
            )
            yield [conversation.units[number].id for (number,) in found]


def _match(text: str, *, stop_words: bool) -> str:
    words = [word.lower() for word in _WORDS.findall(_POSSESSIVE.sub("", text))]
    kept = words if stop_words else [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(kept)) or '""'


DEPTH: Final = 10


class QuestionScore(Value, frozen=True):
    """Scores of one question; `ranks` are the places of its evidence from 1, 0 where it was not found."""

    ndcg_10: float
    recall_10: float
    recall_1: float
    all_10: float
    any_10: float
    session_recall_5: float
    recall_5: float
    recall_20: float
    ranks: tuple[int, ...] = ()


class MeanScores(Value, frozen=True):
    """Means over questions, and the standard error of `recall_10`."""

    questions: int
    ndcg_10: float
    recall_10: float
    recall_1: float
    all_10: float
    any_10: float
    session_recall_5: float
    recall_5: float
    recall_20: float
    recall_10_error: float


def score(ranking: Iterable[str], evidence: Sequence[str], sessions: Sequence[str] = ()) -> QuestionScore:
    """Score a ranking of ids, best first; repeated ids, such as chunks of one message, count where they occur first.

    `sessions` are the sessions of the ranking in the order of their best unit, each once; the session of an id is its part before a colon.
    """
    ranked = list(dict.fromkeys(ranking))
    places = {each: place for place, each in enumerate(ranked, 1)}
    ranks = tuple(places.get(each, 0) for each in evidence)
    hits = sorted(rank for rank in ranks if 0 < rank <= DEPTH)
    gain = sum(1 / math.log2(rank + 1) for rank in hits)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(DEPTH, len(evidence)) + 1))
    wanted = {_session(each) for each in evidence}
    best_sessions = list(dict.fromkeys(sessions or map(_session, ranked)))[:5]
    return QuestionScore(
        ndcg_10=gain / ideal,
        recall_10=len(hits) / len(evidence),
        recall_1=sum(rank == 1 for rank in ranks) / len(evidence),
        all_10=float(len(hits) == len(evidence)),
        any_10=float(bool(hits)),
        session_recall_5=len(wanted.intersection(best_sessions)) / len(wanted),
        recall_5=sum(0 < rank <= 5 for rank in ranks) / len(evidence),
        recall_20=sum(0 < rank <= 20 for rank in ranks) / len(evidence),
        ranks=ranks,
    )


def _session(unit: str) -> str:
    return unit.rpartition(":")[0]


def mean_scores(scores: Sequence[QuestionScore]) -> MeanScores:
    """Return the means over questions; zeros without questions."""
    count = len(scores)
    if not count:
        return MeanScores(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    recall = sum(each.recall_10 for each in scores) / count
    spread = sum((each.recall_10 - recall) ** 2 for each in scores) / count
    return MeanScores(
        questions=count,
        ndcg_10=sum(each.ndcg_10 for each in scores) / count,
        recall_10=recall,
        recall_1=sum(each.recall_1 for each in scores) / count,
        all_10=sum(each.all_10 for each in scores) / count,
        any_10=sum(each.any_10 for each in scores) / count,
        session_recall_5=sum(each.session_recall_5 for each in scores) / count,
        recall_5=sum(each.recall_5 for each in scores) / count,
        recall_20=sum(each.recall_20 for each in scores) / count,
        recall_10_error=math.sqrt(spread / count),
    )


# Up to this many conversations each is a fold of its own; beyond, pairs in the order of the file.
_MOST_SINGLE_FOLDS: Final = 6
_MOST_RANKED: Final = 400

Announce = Callable[[str], None]


class ScoreRow(Value, frozen=True):
    """Scores of one way of ranking: all main questions, by category, and adversarial ones apart. `note` says what to be careful about."""

    name: str
    main: MeanScores
    categories: Mapping[str, MeanScores]
    adversarial: MeanScores
    note: str = ""


class QuestionRanks(Value, frozen=True):
    """Where the evidence of one question was ranked, from 1; 0 if it was not found."""

    conversation: str
    number: int
    category: int
    ranks: tuple[int, ...]


class MemoryReport(Value, frozen=True):
    """Everything that an evaluation measured; `seed` is 0 because nothing is drawn at random.

    held_out: one weight table for each fold, by the names of the conversations that it was not trained on. form: the format of the data.
    """

    data: str
    digest: str
    conversations: int
    units: int
    main_questions: int
    adversarial_questions: int
    rows: tuple[ScoreRow, ...]
    held_out: Mapping[str, Mapping[str, float]]
    questions: tuple[QuestionRanks, ...]
    penalty: float = PENALTY
    seed: int = 0
    form: str = "LoCoMo"

    def row(self, *, embeddings: bool) -> ScoreRow:
        """Return the row that counts: held out if these conversations were trained on, else that of the shipped weights."""
        name = "ours with embeddings" if embeddings else "ours"
        shipped = next(row for row in self.rows if row.name == f"{name}, shipped weights")
        return next((row for row in self.rows if shipped.note and row.name == f"{name}, held out"), shipped)

    @property
    def embeddings(self) -> bool:
        """Whether embeddings were measured too."""
        return any(row.name.startswith("ours with embeddings") for row in self.rows)


class ScoredQuestion(Value, frozen=True):
    """A ranking of one question, scored with the published and with the audited evidence."""

    conversation: str
    question: Question
    raw: QuestionScore
    audited: QuestionScore


class IndexedConversation(Value, frozen=True, eq=False):
    """A conversation with its index, and vectors of its units if embeddings are measured."""

    conversation: AskedConversation
    index: RecallIndex
    vectors: TextVectors | None

    def similar(self, question: Question) -> Similar | None:
        """Return the similarity of a question to all units; None without vectors."""
        return None if self.vectors is None else self.vectors.similar(self.index.without_speakers(fold(question.text)))


def eval_data(
    path: Path,
    *,
    audit: Path | None = None,
    beside: Sequence[Path] = (),
    embedder: Embedder | None = None,
    announce: Announce = lambda _: None,
    times: list[float] | None = None,
) -> MemoryReport:
    """Measure recall on a file of conversations, with an embedder also with embeddings. Raises `BadInput` if it cannot be read.

    Weights that are held out need at least two conversations; a thousand questions take about ten seconds a fold. They are fitted on the
    other conversations of the file and on all of the files `beside` it. The milliseconds of each ranking with the shipped weights and
    without embeddings are added to `times`.
    """
    data, others = read_data(path, audit), [read_data(each) for each in beside]
    announce(f"{data.name}: {len(data.conversations)} conversations")
    rows = [_row(name, _floor(data, stop_words=every_word)) for name, every_word in FLOORS]
    held_out: dict[str, Mapping[str, float]] = {}
    detail: list[ScoredQuestion] = []
    for name, used in (("ours", None), ("ours with embeddings", embedder)):
        if name != "ours" and used is None:
            continue
        indexed = _indexed(data, used)
        in_sample = "these conversations were trained on" if _trained_on(data) else ""
        scored = _scored_with(indexed, None, times if used is None else None)
        rows.append(_row(f"{name}, shipped weights", scored, note=in_sample))
        if len(indexed) > 1:
            scored, weights = _held_out(indexed, [each for other in others for each in _indexed(other, used)], announce)
            fitted_on = f"fitted on the others and on {', '.join(other.name for other in others)}" if others else ""
            rows.append(_row(f"{name}, held out", scored, note=fitted_on))
            held_out |= {names if used is None else f"{names} with embeddings": table for names, table in weights.items()}
            if audit is not None:
                rows.append(_row(f"{name}, held out, audited evidence", scored, audited=True))
        detail = detail or scored
    adversarial = sum(each.question.category == ADVERSARIAL for each in detail)
    return MemoryReport(
        data=data.name,
        digest=data.digest,
        conversations=len(data.conversations),
        units=sum(len(each.units) for each in data.conversations),
        main_questions=len(detail) - adversarial,
        adversarial_questions=adversarial,
        rows=tuple(rows),
        held_out=held_out,
        form=data.form,
        questions=tuple(QuestionRanks(each.conversation, each.question.number, each.question.category, each.raw.ranks) for each in detail),
    )


FLOORS: Final = (("FTS5, all words", True), ("FTS5, without stop words", False))


def fit_data(paths: Sequence[Path], *, embedder: Embedder | None = None, announce: Announce = lambda _: None) -> dict[str, float]:
    """Return weights fitted on all main questions of files: what `memory/recall_ranking.py` holds."""
    found = [read_data(path) for path in paths]
    for data in found:
        announce(f"{data.name}: fitting on all {len(data.conversations)} conversations")
    return fit([each for data in found for samples in _samples(_indexed(data, embedder)) for each in samples])


def folds(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the conversations of each fold, by number: single ones up to six, else pairs in the order of the file."""
    width = 1 if count <= _MOST_SINGLE_FOLDS else 2
    return tuple(tuple(range(start, min(start + width, count))) for start in range(0, count, width))


def _indexed(data: EvaluationData, embedder: Embedder | None) -> list[IndexedConversation]:
    found: list[IndexedConversation] = []
    for conversation in data.conversations:
        index = RecallIndex(conversation.units)
        vectors = None if embedder is None else embedder.vectors([index.with_previous(number) for number in range(len(index))])
        found.append(IndexedConversation(conversation, index, vectors))
    return found


def _held_out(
    indexed: Sequence[IndexedConversation], beside: Sequence[IndexedConversation], announce: Announce
) -> tuple[list[ScoredQuestion], dict[str, Mapping[str, float]]]:
    """Return every question scored with weights that were fitted without its conversation, and these weights."""
    samples, others = _samples(indexed), [each for found in _samples(beside) for each in found]
    scored: list[ScoredQuestion] = []
    tables: dict[str, Mapping[str, float]] = {}
    for left_out in folds(len(indexed)):
        names = ", ".join(indexed[number].conversation.name for number in left_out)
        announce(f"training without {names}")
        tables[names] = fit([*others, *(each for number, found in enumerate(samples) if number not in left_out for each in found)])
        scored += _scored_with([indexed[number] for number in left_out], tables[names])
    return scored, tables


def _samples(indexed: Iterable[IndexedConversation]) -> list[list[Sample]]:
    """Return the main questions of each conversation; adversarial ones are never trained on."""
    return [
        [
            sample(each.index, question, each.similar(question))
            for question in each.conversation.questions
            if question.category != ADVERSARIAL
        ]
        for each in indexed
    ]


def _scored_with(
    indexed: Iterable[IndexedConversation], weights: Mapping[str, float] | None, times: list[float] | None = None
) -> list[ScoredQuestion]:
    """Return every question scored; adds the milliseconds that each ranking took to `times`."""
    return [
        scored
        for each in indexed
        for scored in _scored(each.conversation, (_ranking(each, question, weights, times) for question in each.conversation.questions))
    ]


def _trained_on(data: EvaluationData) -> bool:
    """Whether the shipped weights saw a conversation of this data."""
    return any(conversation_digest(each) in TRAINED_CONVERSATIONS for each in data.conversations)


def conversation_digest(conversation: AskedConversation) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of the texts of a conversation."""
    return sha256("\n".join(unit.text for unit in conversation.units).encode()).hexdigest()[:12]


def _floor(data: EvaluationData, *, stop_words: bool) -> Iterator[ScoredQuestion]:
    for conversation in data.conversations:
        rankings = floor_rankings(conversation, stop_words=stop_words)
        yield from _scored(conversation, ([message_of(each) for each in ranking] for ranking in rankings))


def _ranking(indexed: IndexedConversation, question: Question, weights: Mapping[str, float] | None, times: list[float] | None) -> list[str]:
    similar = indexed.similar(question)
    begun = time.perf_counter()
    hits = rank(indexed.index, question.text, most=_MOST_RANKED, weights=weights, similar=similar)
    if times is not None:
        times.append((time.perf_counter() - begun) * 1000)
    return [message_of(hit.unit.id) for hit in hits]


def _scored(conversation: AskedConversation, rankings: Iterable[Sequence[str]]) -> Iterator[ScoredQuestion]:
    for question, ranking in zip(conversation.questions, rankings, strict=True):
        yield ScoredQuestion(conversation.name, question, score(ranking, question.evidence), score(ranking, question.corrected))


def _row(name: str, scored: Iterable[ScoredQuestion], *, audited: bool = False, note: str = "") -> ScoreRow:
    by_category: dict[int, list[QuestionScore]] = {}
    for each in scored:
        by_category.setdefault(each.question.category, []).append(each.audited if audited else each.raw)
    adversarial = by_category.pop(ADVERSARIAL, [])
    main = [each for _, scores in sorted(by_category.items()) for each in scores]
    categories = {category_name(category): mean_scores(scores) for category, scores in sorted(by_category.items())}
    return ScoreRow(name, mean_scores(main), categories, mean_scores(adversarial), note)


GateState: TypeAlias = Literal["pass", "miss", "not measured"]
Comparison: TypeAlias = Literal["at least", "at most", "below", "about"]

# Scores of the floor that the scorer has to reproduce, by the number of main questions: all of LoCoMo, and its open part.
_FLOORS: Final = {1_536: (0.468, 0.606), 883: (0.471, 0.608)}
_FLOOR_TOLERANCE: Final = 0.003
_NO_MODEL: Final = (0.62, 0.77)
_EMBEDDINGS: Final = (0.65, 0.79)
_BEAM_RECALL: Final = 0.60
# Share of the ceiling, by level.
_LEVELS: Final = {"1": 0.95, "2": 0.80, "3": 0.60}


class Gate(Value, frozen=True):
    """A limit for something measured; `value` is None if it was not, and `why` says what is missing."""

    statement: str
    name: str
    comparison: Comparison
    limit: float
    value: float | None = None
    why: str = ""

    @property
    def state(self) -> GateState:
        """Whether the limit holds."""
        if self.value is None:
            return "not measured"
        match self.comparison:
            case "at least":
                holds = self.value >= self.limit
            case "at most":
                holds = self.value <= self.limit
            case "below":
                holds = self.value < self.limit
            case "about":
                holds = abs(self.value - self.limit) <= _FLOOR_TOLERANCE
        return "pass" if holds else "miss"


Measured: TypeAlias = MemoryReport | Latency | LevelsReport


def gates(measured: Iterable[Measured]) -> tuple[Gate, ...]:
    """Return all gates in the order of their statements, with the values of these measurements; of two of one kind the last counts."""
    found = list(measured)
    reports = [each for each in found if isinstance(each, MemoryReport)]
    locomo = next((each for each in reversed(reports) if each.form != BEAM), None)
    beam = next((each for each in reversed(reports) if each.form == BEAM), None)
    latency = next((each for each in reversed(found) if isinstance(each, Latency)), None)
    levels = next((each for each in reversed(found) if isinstance(each, LevelsReport)), None)
    return (*_floor_gates(locomo), *_locomo_gates(locomo), _beam_gate(beam), *_latency_gates(latency), *_level_gates(levels))


def _floor_gates(report: MemoryReport | None) -> Iterator[Gate]:
    known = _FLOORS.get(report.main_questions) if report is not None else None
    ndcg, recall = known or _FLOORS[883]
    if report is None or known is None:
        why = "data absent" if report is None else "neither LoCoMo nor its open part"
        yield Gate("ME-42", "floor nDCG@10", "about", ndcg, why=why)
        yield Gate("ME-42", "floor R@10", "about", recall, why=why)
        return
    floor = next(row for row in report.rows if row.name == FLOORS[1][0])
    yield Gate("ME-42", "floor nDCG@10", "about", ndcg, floor.main.ndcg_10)
    yield Gate("ME-42", "floor R@10", "about", recall, floor.main.recall_10)


def _locomo_gates(report: MemoryReport | None) -> Iterator[Gate]:
    for name, embeddings, (ndcg, recall) in (("no model", False, _NO_MODEL), ("with embeddings", True, _EMBEDDINGS)):
        if report is None or (embeddings and not report.embeddings):
            why = "data absent" if report is None else "needs --embed"
            yield Gate("ME-44", f"{name} nDCG@10", "at least", ndcg, why=why)
            yield Gate("ME-44", f"{name} R@10", "at least", recall, why=why)
        else:
            main = report.row(embeddings=embeddings).main
            yield Gate("ME-44", f"{name} nDCG@10", "at least", ndcg, main.ndcg_10)
            yield Gate("ME-44", f"{name} R@10", "at least", recall, main.recall_10)


def _beam_gate(report: MemoryReport | None) -> Gate:
    if report is None:
        return Gate("ME-45", "BEAM R@10", "at least", _BEAM_RECALL, why="data absent")
    row = report.row(embeddings=False)
    return Gate("ME-45", "BEAM R@10", "at least", _BEAM_RECALL, row.main.recall_10, row.note)


def _latency_gates(latency: Latency | None) -> Iterator[Gate]:
    for name, comparison, limit, value in _latency_limits(latency):
        yield Gate("ME-46", name, comparison, limit, value, "" if value is not None else "needs --latency")


def _latency_limits(latency: Latency | None) -> tuple[tuple[str, Comparison, float, float | None], ...]:
    p95, worst = (latency.p95_ms, latency.worst_ms) if latency is not None else (None, None)
    return (("p95 ms", "below", P95_LIMIT_MS, p95), ("worst ms", "at most", WORST_LIMIT_MS, worst))


def _level_gates(report: LevelsReport | None) -> Iterator[Gate]:
    rows = report.levels if report is not None else {}
    for level, limit in _LEVELS.items():
        row = rows.get(level)
        name = f"level {level}, share of the ceiling"
        yield Gate("ME-48", name, "at least", limit, row.ratio if row is not None else None, "" if row is not None else "data absent")
    measured = list(rows.values())
    why = "" if measured else "data absent"
    yield Gate("ME-48", "tokens recalled", "at most", TOKENS, max(row.tokens for row in measured) if measured else None, why)
    yield Gate("ME-48", "stale values given as current", "at most", 0, sum(row.stale for row in measured) if measured else None, why)


Variant: TypeAlias = Literal["exact", "hard"]
"""A query as it was recorded, or without what makes it trivially equal to its answer."""

VARIANTS: Final[tuple[Variant, ...]] = ("exact", "hard")
_MOST_CODING_ROWS: Final = 400
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
        yield _coding_row(rule, variant, title, by_ranking[best], best)
    yield _coding_row(rule, variant, OURS, by_ranking[OURS])
    if rule in _ERROR_RULES:
        yield _coding_row(rule, variant, FIXES_FIRST, by_ranking[FIXES_FIRST])


def _coding_row(rule: Rule, variant: Variant, ranking: str, places: Sequence[int], setting: str = "") -> CodingRow:
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
    return [hit.unit.id for hit in rank(index, text, most=_MOST_CODING_ROWS)]


def _rival(name: str, units: tuple[RecallUnit, ...], texts: Sequence[str], *, stop_words: bool) -> Iterator[list[str]]:
    asked = tuple(Question(number, text, 0, (), ()) for number, text in enumerate(texts))
    return floor_rankings(AskedConversation(name, units, asked), stop_words=stop_words)
