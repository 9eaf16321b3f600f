"""The sentences that state most of what was recalled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.core.tokens import estimate
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import RecallHit, rank
from palimpsest.memory.recall_selection import MOST_UNITS, DatedSentence, RecalledLines, digest, newer_values
from palimpsest.memory.recall_terms import RecallUnit


def talk(session: str, date: str, *texts: str) -> list[RecallUnit]:
    roles = ("assistant", "user")
    return [
        RecallUnit(f"{session}:{place}", text, role=roles[place % 2], session=session, position=place, date=date)
        for place, text in enumerate(texts)
    ]


CALLS = RecallIndex(
    [
        *talk("bank", "2026-01-05", "Good morning! How can I help?", "My card has a fee.", "The fee is $95. Sorry."),
        *talk("rent", "2026-02-01", "Until when is the card valid?", "May 2027.", "Thank you. Your fee is now $120. Have a nice day!"),
    ]
)


def test_lines_are_sentences_under_their_sessions_the_newest_first_with_the_question_of_a_short_answer() -> None:
    hits = rank(CALLS, "card fee")

    assert digest(CALLS, hits, "card fee", tokens=80).lines == (
        "[rent:1] 2026-02-01 user: (Until when is the card valid?) May 2027.",
        "[:2] assistant: Your fee is now $120.",
        "[bank:1] 2026-01-05 user: My card has a fee.",
        "[:2] assistant: The fee is $95. Sorry.",
        '+2 more, recall("card fee")',
    )


def test_ids_are_whole_and_scores_are_those_of_the_hits() -> None:
    hit = RecallHit(CALLS.units[2], 3.0)
    found = digest(CALLS, (hit,), "nothing", tokens=40)

    assert found == RecalledLines(
        ("[bank:2] 2026-01-05 assistant: The fee is $95. Sorry.",), ("bank:2",), (3.0,), tokens=estimate(found.text)
    )


def test_nothing_found_is_no_text() -> None:
    assert digest(RecallIndex(), (), "fee") == RecalledLines((), (), (), 0)


@pytest.mark.states("ME-48")
def test_a_small_budget_holds_facts_of_all_sessions_and_not_one_long_turn() -> None:
    chatter = "I see, that is what I thought about the deposit, and I would like to talk about the deposit in general. " * 6
    sessions = [
        unit
        for number in range(4)
        for unit in talk(f"s{number}", f"2026-01-0{number + 1}", f"Hello. {chatter}", f"The deposit at Bank {number} is $1,{number}00.")
    ]
    index = RecallIndex(sessions)
    text = digest(index, rank(index, "deposit"), "deposit", tokens=200).text

    assert [f"$1,{number}00" in text for number in range(4)] == [True, True, True, True]


@pytest.mark.states("ME-48")
def test_a_value_that_a_later_day_states_again_names_the_later_line_which_is_shown_too() -> None:
    index = RecallIndex(
        [
            *talk("old", "2026-01-01", "The monthly rent of the flat is $900."),
            *talk("new", "2026-03-01", "The monthly rent of the flat is $950."),
        ]
    )
    assert digest(index, (RecallHit(index.units[0], 1.0), RecallHit(index.units[1], 0.5)), "rent").lines == (
        "[new:0] 2026-03-01 assistant: The monthly rent of the flat is $950.",
        "[old:0] 2026-01-01 assistant: The monthly rent of the flat is $900. (later [new:0])",
    )


def test_a_value_is_newer_only_on_a_later_day_in_the_same_words_with_other_numbers() -> None:
    first = DatedSentence("the monthly rent of a flat is 900", frozenset({"900"}), "2026-01-01")
    assert newer_values([first, DatedSentence("The monthly rent of a flat is 950", frozenset({"950"}), "2026-02-01")]) == {0: 1}
    assert newer_values([first, DatedSentence("The monthly rent of a flat is 950", frozenset({"950"}), "2026-01-01")]) == {}
    assert newer_values([first, DatedSentence("the monthly rent of a flat is 900", frozenset({"900"}), "2026-02-01")]) == {}
    assert newer_values([first, DatedSentence("the yearly bonus of Ann is 950", frozenset({"950"}), "2026-02-01")]) == {}


def test_hidden_and_excluded_units_are_not_read_not_even_as_questions() -> None:
    index = RecallIndex(talk("s", "2026-01-01", "When is the visit?", "May 3.", "At 9:30 by the gate.", "Bring form 12."))
    index.hide(("s:0",))
    hits = (RecallHit(index.units[1], 1.0),)

    assert digest(index, hits, "visit", excluded=frozenset({"s:2"})).lines == (
        "[s:1] 2026-01-01 user: May 3.",
        "[:3] user: Bring form 12.",
    )


def test_units_far_from_every_hit_of_a_long_session_are_not_read() -> None:
    index = RecallIndex(talk("s", "2026-01-01", *(f"Value {number} is here." for number in range(3 * MOST_UNITS))))
    found = digest(index, (RecallHit(index.units[0], 1.0),), "value", tokens=1_000_000)

    assert len(found.ids) == MOST_UNITS
    assert found.ids[-1] == f"s:{MOST_UNITS - 1}"


@settings(max_examples=60)
@given(st.lists(st.text(max_size=200), min_size=1, max_size=12), st.integers(0, 300), st.sampled_from([1.0, 1.33]))
@pytest.mark.states("ME-38")
def test_a_digest_never_exceeds_its_budget(texts: list[str], tokens: int, factor: float) -> None:
    index = RecallIndex(
        RecallUnit(f"s{number % 3}:{number}", text, session=f"s{number % 3}", date="2026-01-01") for number, text in enumerate(texts)
    )
    found = digest(index, [RecallHit(unit, 1.0) for unit in index.units], "anything", tokens=tokens, factor=factor)

    assert found.tokens == (estimate(found.text, factor) if found.lines else 0)
    assert found.tokens <= tokens


@pytest.mark.states("ME-40")
def test_equal_indexes_and_queries_give_equal_digests() -> None:
    again = RecallIndex(CALLS.units)
    assert digest(again, rank(again, "card fee"), "card fee") == digest(CALLS, rank(CALLS, "card fee"), "card fee")
