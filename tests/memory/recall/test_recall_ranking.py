import random

import pytest

from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import (
    FEATURES,
    SIMILAR_WEIGHTS,
    WEIGHTS,
    RankingOptions,
    Similar,
    Standing,
    feature_columns,
    find_candidates,
    linear_scores,
    rank,
    read_query,
    standardized,
)
from palimpsest.memory.recall_terms import RecallUnit

CHAT = RecallIndex(
    (
        RecallUnit("1:1", "Hi! How is the puppy?", who="Ann", session="1", date="2024-05-02"),
        RecallUnit("1:2", "Great, she sleeps a lot.", who="Bob", session="1", date="2024-05-02"),
        RecallUnit("1:3", "What is her name?", who="Ann", session="1", date="2024-05-02"),
        RecallUnit("1:4", "Biscuit, after the cookies.", who="Bob", session="1", date="2024-05-02"),
        RecallUnit("2:1", "I ran 10 miles on Sunday.", who="Ann", session="2", date="2024-06-20"),
        RecallUnit("2:2", "Wow, I only ran two.", who="Bob", session="2", date="2024-06-20"),
    )
)


def features(index: RecallIndex, text: str) -> dict[str, dict[str, float]]:
    """The features of each candidate by unit id and name."""
    query = read_query(index, text)
    candidates = find_candidates(index, query)
    columns = feature_columns(index, query, candidates)
    assert tuple(columns) == FEATURES
    ids = [index.units[number].id for number in candidates.numbers]
    return {each: {name: round(column[place], 3) for name, column in columns.items()} for place, each in enumerate(ids)}


def test_every_feature_has_a_weight_and_every_weight_a_feature() -> None:
    assert tuple(WEIGHTS) == FEATURES


def test_the_features_of_a_question_after_which_the_answer_stands() -> None:
    found = features(CHAT, "What name has Bob's puppy?")

    assert list(found) == ["1:1", "1:2", "1:3", "1:4"]
    answer = found["1:4"]
    assert (answer["match"], answer["cover"], answer["speaker"], answer["after_question"], answer["asks"]) == (0, 0, 1, 1, 0)
    assert answer["cover_with_previous"] == 0.5
    assert answer["previous_if_asked"] == answer["previous"] > 0
    assert answer["second_previous"] == 0
    assert (answer["number"], answer["month"]) == (0, 0)


def test_words_that_are_neighbours_in_the_query_and_in_a_unit_count_as_a_pair() -> None:
    index = RecallIndex((RecallUnit("1", "red green blue"), RecallUnit("2", "green and some red")))

    assert [found["pairs"] for found in features(index, "red green").values()] == [0.5, 0]


def test_the_month_of_a_unit_is_compared_with_the_query() -> None:
    assert {each: found["month"] for each, found in features(CHAT, "Who ran in June?").items()} == {"2:1": 1, "2:2": 1}
    assert {found["month"] for found in features(CHAT, "Who ran in May?").values()} == {0}


def test_the_answer_is_found_without_a_common_word() -> None:
    assert rank(CHAT, "Which name has Bob chosen?")[0].unit.id == "1:4"


def test_scores_fall_and_no_more_than_wanted_are_returned() -> None:
    hits = rank(CHAT, "Who ran how many miles?", most=1)

    assert [hit.unit.id for hit in hits] == ["2:1"]
    scores = [hit.score for hit in rank(CHAT, "Who ran how many miles?")]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.states("ME-40")
def test_equal_index_and_query_give_equal_ranks_and_ties_follow_unit_order() -> None:
    chance = random.Random(4)
    words = ["red", "green", "blue", "river", "stone", "cloud"]
    units = [RecallUnit(str(number), " ".join(chance.choices(words, k=4))) for number in range(300)]
    first, second = RecallIndex(units), RecallIndex(units)

    for query in ("red", "green river", "stone cloud blue"):
        hits = rank(first, query, most=300)
        assert hits == rank(second, query, most=300)
        places = [(-hit.score, first.numbers[hit.unit.id]) for hit in hits]
        assert places == sorted(places)
        assert len({score for score, _ in places}) < len(places)


def test_excluded_ids_and_other_kinds_are_not_returned() -> None:
    index = RecallIndex((RecallUnit("1", "uses uv", kind="project"), RecallUnit("2", "uses uv too"), RecallUnit("3", "uv", kind="project")))

    assert [hit.unit.id for hit in rank(index, "uv", options=RankingOptions(kinds=frozenset({"project"}), excluded=frozenset({"3"})))] == [
        "1"
    ]


def test_hidden_units_are_never_returned() -> None:
    index = RecallIndex((RecallUnit("1", "the port is 8080"), RecallUnit("2", "the port is 9090")))
    index.hide(("1",))

    assert [hit.unit.id for hit in rank(index, "port")] == ["2"]


def test_what_a_user_said_stands_before_the_same_words_of_a_reply() -> None:
    index = RecallIndex((RecallUnit("1", "use tabs", role="assistant"), RecallUnit("2", "use tabs", role="user")))

    assert [hit.unit.id for hit in rank(index, "tabs")] == ["2", "1"]


def test_a_named_file_brings_what_is_about_it_to_the_front() -> None:
    index = RecallIndex((RecallUnit("1", "the login check is wrong"), RecallUnit("2", "moved the check", paths=("src/login.py",))))

    assert rank(index, "why did the check in src/login.py move?")[0].unit.id == "2"


def test_importance_uses_and_age_decide_between_equals_and_nothing_else() -> None:
    index = RecallIndex(
        (
            RecallUnit("old", "the port is 8080", date="2020-01-01"),
            RecallUnit("new", "the port is 8080", date="2026-01-01"),
            RecallUnit("used", "the port is 8080", date="2020-01-01"),
            RecallUnit("exact", "postgres port", date="2020-01-01"),
        )
    )
    neutral = [hit.unit.id for hit in rank(index, "postgres port")]
    options = RankingOptions(now="2026-01-02", standing={"used": Standing(importance=1.0, uses=9)})

    assert neutral == ["exact", "old", "new", "used"]
    assert [hit.unit.id for hit in rank(index, "postgres port", options=options)] == ["exact", "used", "new", "old"]


def test_a_date_that_is_none_is_neutral() -> None:
    index = RecallIndex((RecallUnit("1", "port", date="last week"), RecallUnit("2", "port", date="")))

    assert [hit.unit.id for hit in rank(index, "port", options=RankingOptions(now="2026-01-02"))] == ["1", "2"]


def test_a_query_without_words_finds_nothing() -> None:
    assert rank(CHAT, "?!") == ()
    assert rank(RecallIndex(), "puppy") == ()


def test_features_without_a_weight_do_not_count() -> None:
    assert linear_scores({"match": [1.0, 3.0], "cover": [5.0, 5.0]}, {"match": 0.5, "unknown": 9.0}) == [0.5, 1.5]


def test_similar_units_are_candidates_without_a_common_word_and_similarity_is_a_feature() -> None:
    index = RecallIndex((RecallUnit("1", "the kitten sleeps"), RecallUnit("2", "pet insurance"), RecallUnit("3", "tax forms")))

    assert rank(index, "feline") == ()
    assert [hit.unit.id for hit in rank(index, "feline", similar=Similar([0.9, 0.4, 0.1]))] == ["1", "2", "3"]
    assert tuple(SIMILAR_WEIGHTS) == (*FEATURES, "similar", "similar_with_next")


def test_hidden_units_are_not_returned_for_their_meaning_either() -> None:
    index = RecallIndex((RecallUnit("1", "the kitten sleeps"), RecallUnit("2", "pet insurance")))
    index.hide(("1",))

    assert [hit.unit.id for hit in rank(index, "feline", similar=Similar([0.9, 0.4]))] == ["2"]


def test_a_column_is_standardized_and_equal_values_are_zero() -> None:
    assert standardized([1.0, 3.0]) == [-1.0, 1.0]
    assert standardized([2.0, 2.0]) == [0.0, 0.0]
