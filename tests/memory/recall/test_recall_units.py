from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.recall_terms import cut


def test_a_short_text_is_one_unit() -> None:
    assert list(cut("One sentence. And another.")) == ["One sentence. And another."]


def test_a_text_is_cut_behind_the_last_sentence_that_fits() -> None:
    assert list(cut("One two three. Four five. Six seven eight nine.", most=6)) == ["One two three. Four five.", "Six seven eight nine."]


def test_a_sentence_that_is_too_long_is_cut_behind_a_word() -> None:
    assert list(cut("one two three four five six seven", most=3)) == ["one two three", "four five six", "seven"]


def test_chinese_characters_count_half_a_word() -> None:
    assert list(cut("一二三四。五六七八。九十", most=5)) == ["一二三四。五六七八。", "九十"]


def test_no_text_gives_no_unit() -> None:
    assert list(cut(" \n ")) == []


@given(st.text(alphabet="ab. \n。字", max_size=200), st.integers(1, 9))
def test_nothing_but_white_space_is_lost(text: str, most: int) -> None:
    parts = list(cut(text, most))

    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part.split()) <= max(most, 1) or "字" in part or "。" in part for part in parts)
