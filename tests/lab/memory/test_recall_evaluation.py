import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pal_lab.recall.data import Question, read_conversations
from pal_lab.recall.evaluation import MemoryReport, eval_data, fit_data, floor_rankings, folds
from pal_lab.recall.latency import Latency, measure_latency
from pal_lab.recall.training import fit, sample
from palimpsest.core.errors import BadInput
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_terms import RecallUnit

CHINESE = Path(__file__).parent / "data" / "chinese.json"
# The data must not be shipped; it lies beside a checkout, or is missing.
SHARED = Path(__file__).parents[4] / "shared" / "memory-data"
OPEN = SHARED / "locomo-open.json"
needs_data = pytest.mark.skipif(not OPEN.is_file(), reason="the conversations of LoCoMo are not beside this checkout")


@pytest.fixture(scope="module")
def report() -> MemoryReport:
    return eval_data(OPEN, audit=SHARED / "locomo-audit-errors.json")


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three small conversations in which the answer follows the question."""
    samples = [
        {
            "sample_id": f"c{number}",
            "conversation": {
                "session_1": [
                    {"speaker": "Ann", "dia_id": "D1:1", "text": f"Where do you keep the {thing}?"},
                    {"speaker": "Bob", "dia_id": "D1:2", "text": "In the shed."},
                    {"speaker": "Ann", "dia_id": "D1:3", "text": "I like tea."},
                    {"speaker": "Bob", "dia_id": "D1:4", "text": f"The {thing} was a gift, I love that {thing}, really, a {thing}."},
                ]
            },
            "qa": [{"question": f"Where is the {thing} of Bob?", "evidence": ["D1:2"], "category": 4}],
        }
        for number, thing in enumerate(("ladder", "canoe", "lantern"))
    ]
    path = tmp_path / "three.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    return path


def test_the_floor_ranks_by_bm25_with_and_without_stop_words(three: Path) -> None:
    (conversation, *_) = read_conversations(three).conversations

    assert list(floor_rankings(conversation)) == [["D1:4", "D1:2", "D1:1"]]
    assert [set(found) for found in floor_rankings(conversation, stop_words=True)] == [{"D1:1", "D1:2", "D1:4"}]


def test_training_learns_what_tells_evidence_from_the_rest() -> None:
    index = RecallIndex(RecallUnit(str(number), f"canoe{' 7' * (number % 2)}") for number in range(10))
    weights = fit([sample(index, Question(0, "canoe", 4, ("1", "3", "5", "7", "9"), ()))])

    assert weights["number"] > 0.5
    assert weights["month"] == weights["speaker"] == 0
    assert fit([sample(index, Question(0, "zebra", 4, ("1",), ()))]) == dict.fromkeys(weights, 0.0)


def test_a_larger_penalty_gives_smaller_weights() -> None:
    index = RecallIndex(RecallUnit(str(number), f"canoe{' 7' * (number % 2)}") for number in range(10))
    samples = [sample(index, Question(0, "canoe", 4, ("1", "3"), ()))]

    assert 0 < fit(samples, penalty=3.0)["number"] < fit(samples, penalty=0.3)["number"]


def test_each_conversation_is_scored_with_weights_that_never_saw_it(three: Path) -> None:
    found = eval_data(three)

    assert [row.name for row in found.rows] == ["FTS5, all words", "FTS5, without stop words", "ours, shipped weights", "ours, held out"]
    assert list(found.held_out) == ["c0", "c1", "c2"]
    assert (found.conversations, found.units, found.main_questions, found.adversarial_questions) == (3, 12, 3, 0)
    assert found.rows[3].main.ndcg_10 == 1.0
    assert [question.ranks for question in found.questions] == [(1,), (1,), (1,)]
    assert eval_data(three) == found


def test_weights_that_are_held_out_are_fitted_on_the_data_beside_it_too(three: Path) -> None:
    alone, beside = eval_data(three), eval_data(three, beside=(three,))

    assert [row.note for row in (alone.rows[3], beside.rows[3])] == ["", "fitted on the others and on three.json"]
    assert alone.held_out["c0"] != beside.held_out["c0"]


def test_compressed_data_is_read_and_a_damaged_file_is_refused(three: Path) -> None:
    packed = three.with_name("three.json.gz")
    packed.write_bytes(gzip.compress(three.read_bytes()))
    assert read_conversations(packed).conversations == read_conversations(three).conversations

    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(BadInput, match="the file cannot be read"):
        read_conversations(packed)


def test_weights_for_shipping_are_fitted_on_all_conversations(three: Path) -> None:
    assert fit_data([three])["speaker"] > 0


def test_folds_are_single_conversations_or_pairs_in_the_order_of_the_file() -> None:
    assert folds(3) == ((0,), (1,), (2,))
    assert folds(10) == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert folds(7) == ((0, 1), (2, 3), (4, 5), (6,))


def test_latency_is_measured_by_clock_and_processor(three: Path) -> None:
    found = measure_latency(three, units=200, queries=20)

    assert (found.units, found.queries) == (200, 20)
    assert 0 < found.p50_ms <= found.p95_ms <= found.worst_ms
    assert 0 < found.p95_cpu_ms <= found.worst_cpu_ms


@pytest.mark.parametrize(("p95", "worst", "ok"), [(9.9, 50.0, True), (10.0, 20.0, False), (5.0, 50.1, False)])
@pytest.mark.states("ME-46")
def test_the_limits_are_ten_milliseconds_for_95_of_100_queries_and_fifty_for_each(p95: float, worst: float, ok: bool) -> None:
    assert Latency(50_000, 400, 1.0, 1.0, p95, worst, 1.0, 1.0).ok is ok


def test_chinese_reaches_the_recall_that_english_must_reach() -> None:
    found = eval_data(CHINESE)
    (shipped,) = [row for row in found.rows if row.name == "ours, shipped weights"]

    assert (found.main_questions, len(sessions(CHINESE))) == (112, 14)
    assert shipped.main.recall_10 >= 0.77


def sessions(path: Path) -> set[str]:
    return {unit.session for conversation in read_conversations(path).conversations for unit in conversation.units}


@needs_data
@pytest.mark.states("ME-41")
def test_the_open_part_has_the_questions_that_are_scored() -> None:
    questions = [question for conversation in read_conversations(OPEN).conversations for question in conversation.questions]
    assert (sum(question.category != 5 for question in questions), sum(question.category == 5 for question in questions)) == (883, 272)


@pytest.mark.long
@needs_data
@pytest.mark.states("ME-42")
def test_the_scorer_reproduces_the_floor_of_the_open_part(report: MemoryReport) -> None:
    floor = report.rows[1]

    assert (report.main_questions, report.adversarial_questions) == (883, 272)
    assert floor.name == "FTS5, without stop words"
    assert floor.main.ndcg_10 == pytest.approx(0.471, abs=0.003)
    assert floor.main.recall_10 == pytest.approx(0.608, abs=0.003)


@pytest.mark.long
@needs_data
@pytest.mark.states("ME-44")
def test_recall_without_a_model_keeps_the_gates_on_conversations_it_was_not_trained_on(report: MemoryReport) -> None:
    (ours,) = [row for row in report.rows if row.name == "ours, held out"]

    assert ours.main.ndcg_10 >= 0.62
    assert ours.main.recall_10 >= 0.77


@pytest.mark.long
@needs_data
def test_the_shipped_weights_are_marked_where_they_were_trained(report: MemoryReport) -> None:
    notes: Iterator[str] = (row.note for row in report.rows if row.name == "ours, shipped weights")
    assert next(notes) == "these conversations were trained on"
