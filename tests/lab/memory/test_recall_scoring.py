import math

import pytest

from pal_lab.recall.evaluation import MeanScores, QuestionScore, mean_scores, score


@pytest.mark.states("ME-43")
def test_a_worked_example_of_the_scores() -> None:
    # Evidence at the ranks 1 and 4, and one that was not found; ideal are three hits at 1, 2 and 3.
    found = score(["D1:1", "D2:1", "D2:2", "D3:7"], ["D3:7", "D1:1", "D9:9"])

    gain, ideal = 1 / math.log2(2) + 1 / math.log2(5), 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found.ndcg_10 == pytest.approx(gain / ideal)
    assert gain / ideal == pytest.approx(0.6713, abs=1e-4)
    assert (found.recall_10, found.recall_1, found.all_10, found.any_10) == (2 / 3, 1 / 3, 0.0, 1.0)
    assert found.session_recall_5 == 2 / 3
    assert (found.recall_5, found.recall_20) == (2 / 3, 2 / 3)
    assert found.ranks == (4, 1, 0)


@pytest.mark.states("ME-43")
def test_a_list_shorter_than_ten_has_misses_and_no_error() -> None:
    assert score([], ["D1:1"]) == QuestionScore(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, (0,))
    assert score(["D1:1"], ["D1:1"]) == QuestionScore(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, (1,))


@pytest.mark.states("ME-43")
def test_chunks_of_one_message_count_where_the_first_stands_and_repeats_are_dropped() -> None:
    chunks = ["m1", "m2", "m2", "m2", "m1", "m3"]

    assert score(chunks, ["m3"]).ranks == (3,)
    assert score(chunks, ["m3"]) == score(["m1", "m2", "m3"], ["m3"])


def test_only_the_first_ten_count() -> None:
    ranking = [f"D1:{number}" for number in range(1, 12)]

    assert score(ranking, ["D1:11"]).ranks == (11,)
    assert (score(ranking, ["D1:11"]).recall_10, score(ranking, ["D1:10"]).recall_10) == (0.0, 1.0)
    assert score(ranking, ["D1:10"]).ndcg_10 == pytest.approx(1 / math.log2(11))


def test_more_evidence_than_ten_can_be_found_completely_in_ndcg_and_not_in_recall() -> None:
    evidence = [f"D1:{number}" for number in range(1, 13)]

    found = score(evidence, evidence)
    assert (found.ndcg_10, found.recall_10, found.all_10) == (1.0, 10 / 12, 0.0)


def test_sessions_are_ranked_by_their_best_unit() -> None:
    ranking = ["D1:1", "D1:2", "D2:1", "D3:1", "D4:1", "D5:1", "D6:1"]

    assert score(ranking, ["D5:9", "D6:1"]).session_recall_5 == 0.5


def test_means_are_over_questions_with_the_standard_error_of_recall() -> None:
    scores = [score(["a:1"], ["a:1"]), score(["a:1"], ["b:1"])]

    assert mean_scores(scores) == MeanScores(2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, math.sqrt(0.25 / 2))
    assert mean_scores([]) == MeanScores(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
