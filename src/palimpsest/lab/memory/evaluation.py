"""Evaluates recall on data with known evidence: floors, weights that never saw the scored conversation, and the shipped weights."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from palimpsest.core.items import Value
from palimpsest.lab.memory.conversations import ADVERSARIAL, CATEGORIES, Conversation, EvaluationData, Question, read_conversations
from palimpsest.lab.memory.floor import floor_rankings
from palimpsest.lab.memory.scoring import MeanScores, QuestionScore, mean_scores, score
from palimpsest.lab.memory.training import PENALTY, Sample, fit, sample
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.recall.weights import TRAINED_ON, WEIGHTS

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

    held_out: one weight table for each fold, by the names of the conversations that it was not trained on.
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


class ScoredQuestion(Value, frozen=True):
    """A ranking of one question, scored with the published and with the audited evidence."""

    conversation: str
    question: Question
    raw: QuestionScore
    audited: QuestionScore


def eval_data(path: Path, *, audit: Path | None = None, announce: Announce = lambda _: None) -> MemoryReport:
    """Measure recall on a file in the format of LoCoMo. Raises `BadInput` if it cannot be read.

    Held out weights need at least two conversations; a fold takes about ten seconds a thousand questions and processor.
    """
    data = read_conversations(path, audit)
    announce(f"{data.name}: {len(data.conversations)} conversations")
    floors = [_row(name, _floor(data, stop_words=every_word)) for name, every_word in FLOORS]
    shipped = list(_shipped(data))
    in_sample = "these conversations were trained on" if data.digest == TRAINED_ON else ""
    rows = [*floors, _row("ours, shipped weights", shipped, note=in_sample)]
    weights: dict[str, Mapping[str, float]] = {}
    detail = shipped
    if len(data.conversations) > 1:
        detail = []
        for names, fold_weights, scored in _held_out(data, announce):
            weights[names] = fold_weights
            detail += scored
        rows.append(_row("ours, held out", detail))
        if audit is not None:
            rows.append(_row("ours, held out, audited evidence", detail, audited=True))
    adversarial = sum(each.question.category == ADVERSARIAL for each in shipped)
    return MemoryReport(
        data=data.name,
        digest=data.digest,
        conversations=len(data.conversations),
        units=sum(len(each.units) for each in data.conversations),
        main_questions=len(shipped) - adversarial,
        adversarial_questions=adversarial,
        rows=tuple(rows),
        held_out=weights,
        questions=tuple(QuestionRanks(each.conversation, each.question.number, each.question.category, each.raw.ranks) for each in detail),
    )


FLOORS: Final = (("FTS5, all words", True), ("FTS5, without stop words", False))


def fit_data(path: Path, *, announce: Announce = lambda _: None) -> dict[str, float]:
    """Return weights fitted on all main questions of a file: what `memory/recall/weights.py` holds."""
    data = read_conversations(path)
    announce(f"{data.name}: fitting on all {len(data.conversations)} conversations")
    return fit([each for samples in _samples(data) for each in samples if each.question.category != ADVERSARIAL])


def folds(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the conversations of each fold, by number: single ones up to six, else pairs in the order of the file."""
    width = 1 if count <= _MOST_SINGLE_FOLDS else 2
    return tuple(tuple(range(start, min(start + width, count))) for start in range(0, count, width))


def _held_out(data: EvaluationData, announce: Announce) -> Iterator[tuple[str, Mapping[str, float], list[ScoredQuestion]]]:
    samples = _samples(data)
    for left_out in folds(len(samples)):
        names = ", ".join(data.conversations[number].name for number in left_out)
        announce(f"training without {names}")
        others = [each for number, found in enumerate(samples) if number not in left_out for each in found]
        weights = fit([each for each in others if each.question.category != ADVERSARIAL])
        scored: list[ScoredQuestion] = []
        for number in left_out:
            conversation = data.conversations[number]
            index = RecallIndex(conversation.units)
            scored += _scored(conversation, (_ranking(index, question, weights) for question in conversation.questions))
        yield names, weights, scored


def _samples(data: EvaluationData) -> list[list[Sample]]:
    return [
        [sample(index, question) for question in conversation.questions]
        for conversation in data.conversations
        for index in (RecallIndex(conversation.units),)
    ]


def _shipped(data: EvaluationData) -> Iterator[ScoredQuestion]:
    for conversation in data.conversations:
        index = RecallIndex(conversation.units)
        yield from _scored(conversation, (_ranking(index, question, WEIGHTS) for question in conversation.questions))


def _floor(data: EvaluationData, *, stop_words: bool) -> Iterator[ScoredQuestion]:
    for conversation in data.conversations:
        yield from _scored(conversation, floor_rankings(conversation, stop_words=stop_words))


def _ranking(index: RecallIndex, question: Question, weights: Mapping[str, float]) -> list[str]:
    return [hit.unit.id for hit in rank(index, question.text, most=_MOST_RANKED, weights=weights)]


def _scored(conversation: Conversation, rankings: Iterable[Sequence[str]]) -> Iterator[ScoredQuestion]:
    for question, ranking in zip(conversation.questions, rankings, strict=True):
        yield ScoredQuestion(conversation.name, question, score(ranking, question.evidence), score(ranking, question.corrected))


def _row(name: str, scored: Iterable[ScoredQuestion], *, audited: bool = False, note: str = "") -> ScoreRow:
    by_category: dict[int, list[QuestionScore]] = {}
    for each in scored:
        by_category.setdefault(each.question.category, []).append(each.audited if audited else each.raw)
    adversarial = by_category.pop(ADVERSARIAL, [])
    main = [each for _, scores in sorted(by_category.items()) for each in scores]
    categories = {CATEGORIES.get(category, str(category)): mean_scores(scores) for category, scores in sorted(by_category.items())}
    return ScoreRow(name, mean_scores(main), categories, mean_scores(adversarial), note)
