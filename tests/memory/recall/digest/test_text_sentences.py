"""Sentences of a text, and the numbers and names in them."""

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.memory.recall_selection import Sentence, read_sentence, sentences


def test_sentences_end_at_stops_marks_and_line_breaks_and_not_behind_abbreviations() -> None:
    assert sentences("I saw Dr. Chen at 2.30 today. Really?\nYes! He said 'rest.' Fine") == [
        "I saw Dr. Chen at 2.30 today.",
        "Really?",
        "Yes!",
        "He said 'rest.'",
        "Fine",
    ]
    assert sentences("护照二月到期。要续签吗？是的") == ["护照二月到期。", "要续签吗？", "是的"]
    assert sentences(" \n ") == []


@given(st.text(max_size=200))
def test_no_character_is_lost_but_white_space(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_numbers_keep_what_holds_amounts_times_and_codes_together() -> None:
    assert read_sentence("Pay $1,525.50 by 2:30 for VEL-89923476, 71% or E7739482M.").numbers == {
        "1,525.50",
        "2:30",
        "vel-89923476",
        "71%",
        "e7739482m",
    }


def test_the_day_of_a_month_is_one_number() -> None:
    assert read_sentence("From October 1st to Oct. 15, at 9:30").numbers == {"oct 1", "oct 15", "9:30"}
    assert read_sentence("In 2024 May 20% rise?").numbers == {"2024", "20%"}


def test_names_are_capitalised_words_behind_the_first() -> None:
    assert read_sentence("The Amex Gold card of Ann") == Sentence(
        "The Amex Gold card of Ann", frozenset(), frozenset({"amex", "gold", "ann"})
    )
    assert read_sentence("护照二月到期") == Sentence("护照二月到期", frozenset(), frozenset())
