from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.recall_terms import STOP_WORDS, query_terms, stems, words


def test_words_are_folded_and_split_at_everything_that_is_no_letter_or_digit() -> None:
    assert words("Melanie's café: src/foo_bar.py!") == ["melanie", "cafe", "src", "foo", "bar", "py"]


def test_chinese_gives_pairs_of_neighbouring_characters() -> None:
    assert words("数据库用PostgreSQL。好") == ["数据", "据库", "库用", "postgresql", "好"]


def test_japanese_voiced_marks_and_korean_survive_folding() -> None:
    assert words("ガギ 안녕") == ["カキ", "안녕"]


def test_stop_words_are_no_terms_and_repetitions_stay() -> None:
    assert stems(words("What did the painters paint? They were painting a painting.")) == ["painter", "paint", "paint", "paint"]


def test_a_query_of_stop_words_alone_searches_for_them() -> None:
    assert query_terms("who was that?") == ["who", "was", "that"]


def test_a_query_has_each_term_once_in_order() -> None:
    assert query_terms("Did the adoption agencies research adoptions?") == ["adopt", "agenc", "research"]


def test_the_stop_words_are_those_of_the_specification() -> None:
    assert len(STOP_WORDS) == 105
    assert {"a", "having", "whom", "further", "own", "ve"} <= STOP_WORDS
    assert STOP_WORDS.isdisjoint({"one", "also", "herself", "last", "ago"})


def test_encoded_data_does_not_enter_the_vocabulary() -> None:
    assert words(f"key {'a' * 65} {'b' * 64}") == ["key", "b" * 64]


@given(st.text())
def test_no_text_breaks_the_splitting_and_every_word_is_its_own_word_again(text: str) -> None:
    for word in words(text):
        assert word
        assert words(word) == [word]
