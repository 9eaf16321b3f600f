import pytest
from every_case import every_case

from palimpsest.memory.recall_terms import stem

# Words of each rule, with the stems that the published Porter2 algorithm gives.
STEMS = {
    "caresses": "caress",
    "ties": "tie",
    "cries": "cri",
    "gaps": "gap",
    "gas": "gas",
    "kiwis": "kiwi",
    "agreed": "agre",
    "feed": "feed",
    "hopping": "hop",
    "hoping": "hope",
    "adding": "add",
    "luxuriated": "luxuri",
    "dying": "die",
    "happy": "happi",
    "say": "say",
    "by": "by",
    "conditional": "condit",
    "organization": "organiz",
    "generously": "generous",
    "hopefulness": "hope",
    "biologist": "biolog",
    "electrical": "electr",
    "goodness": "good",
    "relative": "relat",
    "adjustment": "adjust",
    "adoption": "adopt",
    "controlling": "control",
    "rate": "rate",
    "cease": "ceas",
    "skies": "sky",
    "news": "news",
    "earrings": "earring",
    "exceed": "exceed",
    "yesterday": "yesterday",
    "youth": "youth",
}


@every_case(("word", "expected"), STEMS.items())
def test_a_word_has_the_stem_of_the_published_algorithm(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize("word", ["at", "x86", "naïves", "数据", "a1b2s"])
def test_short_words_and_words_that_are_not_plain_english_are_their_own_stem(word: str) -> None:
    assert stem(word) == word


def test_forms_of_one_word_are_one_term() -> None:
    assert {stem(word) for word in ("research", "researches", "researched", "researching")} == {"research"}
