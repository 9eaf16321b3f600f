"""Evaluates recall on data with known evidence: floors, weights that never saw the scored conversation, and the shipped weights."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.items import Value
from palimpsest.lab.memory.beam import category_name, message_of, read_data
from palimpsest.lab.memory.conversations import ADVERSARIAL, AskedConversation, EvaluationData, Question
from palimpsest.lab.memory.floor import floor_rankings
from palimpsest.lab.memory.scoring import MeanScores, QuestionScore, mean_scores, score
from palimpsest.lab.memory.training import PENALTY, Sample, fit, sample
from palimpsest.memory.recall.candidates import Similar
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.terms import fold
from palimpsest.memory.recall.weights import TRAINED_CONVERSATIONS, TRAINED_ON
from palimpsest.providers.embedding import Embedder, TextVectors

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
    embedder: Embedder | None = None,
    announce: Announce = lambda _: None,
    times: list[float] | None = None,
) -> MemoryReport:
    """Measure recall on a file of conversations, with an embedder also with embeddings. Raises `BadInput` if it cannot be read.

    Weights that are held out need at least two conversations; a thousand questions take about ten seconds a fold. The milliseconds of
    each ranking with the shipped weights and without embeddings are added to `times`.
    """
    data = read_data(path, audit)
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
            scored, weights = _held_out(indexed, announce)
            rows.append(_row(f"{name}, held out", scored))
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


def fit_data(path: Path, *, embedder: Embedder | None = None, announce: Announce = lambda _: None) -> dict[str, float]:
    """Return weights fitted on all main questions of a file: what `memory/recall/weights.py` holds."""
    data = read_data(path)
    announce(f"{data.name}: fitting on all {len(data.conversations)} conversations")
    return fit([each for samples in _samples(_indexed(data, embedder)) for each in samples])


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


def _held_out(indexed: Sequence[IndexedConversation], announce: Announce) -> tuple[list[ScoredQuestion], dict[str, Mapping[str, float]]]:
    """Return every question scored with weights that were fitted without its conversation, and these weights."""
    samples = _samples(indexed)
    scored: list[ScoredQuestion] = []
    tables: dict[str, Mapping[str, float]] = {}
    for left_out in folds(len(indexed)):
        names = ", ".join(indexed[number].conversation.name for number in left_out)
        announce(f"training without {names}")
        tables[names] = fit([each for number, found in enumerate(samples) if number not in left_out for each in found])
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
    return data.digest == TRAINED_ON or any(conversation_digest(each) in TRAINED_CONVERSATIONS for each in data.conversations)


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
