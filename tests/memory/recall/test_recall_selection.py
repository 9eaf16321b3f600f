import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.core.tokens import estimate
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import RecallHit, rank
from palimpsest.memory.recall_selection import RecalledLines, line_of, more_line, select
from palimpsest.memory.recall_terms import RecallUnit


def hits(index: RecallIndex, *ids: str) -> list[RecallHit]:
    return [RecallHit(index.units[index.numbers[each]], 5.0 - place) for place, each in enumerate(ids)]


def test_a_line_has_id_date_person_and_text_in_one_line() -> None:
    assert line_of(RecallUnit("s:4", "first\n\n second", who="Ann", role="user", date="2024-05-02")) == "[s:4] 2024-05-02 Ann: first second"
    assert line_of(RecallUnit("s:5", "done", role="assistant")) == "[s:5] assistant: done"
    assert line_of(RecallUnit("user_port", "the port is 8080")) == "[user_port] the port is 8080"


def test_the_best_lines_are_returned_with_their_ids_scores_and_tokens() -> None:
    index = RecallIndex((RecallUnit("1", "the port is 8080"), RecallUnit("2", "use tabs")))

    assert select(index, hits(index, "2", "1"), "port") == RecalledLines(
        lines=("[2] use tabs", "[1] the port is 8080"),
        ids=("2", "1"),
        scores=(5.0, 4.0),
        tokens=estimate("[2] use tabs\n[1] the port is 8080"),
    )


def test_nothing_found_is_no_text() -> None:
    assert select(RecallIndex(), (), "port") == RecalledLines((), (), (), 0)


def test_near_duplicates_are_shown_once() -> None:
    index = RecallIndex(
        (
            RecallUnit("1", "deploys run every Tuesday morning from main"),
            RecallUnit("2", "Deploys run every Tuesday morning, from main!"),
            RecallUnit("3", "deploys run every Friday evening from release"),
        )
    )
    found = select(index, hits(index, "1", "2", "3"), "deploys")

    assert (found.ids, found.duplicates, found.left_out) == (("1", "3"), 1, 0)


def test_a_unit_that_answers_a_question_brings_it() -> None:
    index = RecallIndex((RecallUnit("1", "What is her name?", session="s"), RecallUnit("2", "Biscuit.", session="s")))

    assert select(index, hits(index, "2", "1"), "name").lines == ("[1] What is her name?", "[2] Biscuit.")


def test_a_hidden_question_is_not_brought() -> None:
    index = RecallIndex((RecallUnit("1", "What is her name?", session="s"), RecallUnit("2", "Biscuit.", session="s")))
    index.hide(("1",))

    assert select(index, hits(index, "2"), "name").lines == ("[2] Biscuit.",)


@pytest.mark.states("ME-38")
def test_what_was_left_out_is_counted() -> None:
    index = RecallIndex(RecallUnit(str(number), f"server {number} is called name{number}") for number in range(10))
    found = select(index, hits(index, *map(str, range(10))), "which server", most=3)

    assert found.lines[:1] == ("[0] server 0 is called name0",)
    assert (found.ids, found.left_out, found.lines[3:]) == (("0", "1", "2"), 7, ('+7 more, recall("which server")',))


def test_the_query_in_the_last_line_is_short_and_quoted() -> None:
    assert more_line(2, 'say "hi"\n now') == '+2 more, recall("say \\"hi\\" now")'
    assert more_line(1, "x" * 90) == f'+1 more, recall("{"x" * 59}…")'


def test_the_first_unit_is_cut_if_it_does_not_fit() -> None:
    index = RecallIndex((RecallUnit("1", "word " * 500),))
    found = select(index, hits(index, "1"), "word", tokens=60)

    assert found.ids == ("1",)
    assert found.lines[0].startswith("[1] word word")
    assert found.lines[0].endswith("…")
    assert found.tokens <= 60


@settings(max_examples=60)
@given(st.lists(st.text(max_size=400), min_size=1, max_size=12), st.integers(0, 400), st.sampled_from([1.0, 1.33]))
@pytest.mark.states("ME-38")
def test_recalled_text_never_exceeds_its_budget(texts: list[str], tokens: int, factor: float) -> None:
    index = RecallIndex(RecallUnit(str(number), text, session="s") for number, text in enumerate(texts))
    offered = [RecallHit(unit, 1.0) for unit in index.units]
    found = select(index, offered, "anything", tokens=tokens, factor=factor)

    assert found.tokens == (estimate(found.text, factor) if found.lines else 0)
    assert found.tokens <= tokens
    assert len(found.ids) + found.left_out + found.duplicates == len(texts)


def test_recall_from_query_to_text() -> None:
    index = RecallIndex(
        (
            RecallUnit("s:1", "Which database do we use?", role="assistant", session="s", date="2026-01-02"),
            RecallUnit("s:2", "PostgreSQL, never MySQL.", role="user", session="s", date="2026-01-02"),
            RecallUnit("s:3", "Lunch?", role="assistant", session="s", date="2026-01-02"),
        )
    )
    found = select(index, rank(index, "what database was chosen", most=2), "what database was chosen")

    assert found.lines == ("[s:1] 2026-01-02 assistant: Which database do we use?", "[s:2] 2026-01-02 user: PostgreSQL, never MySQL.")
