"""Notes that are due for a query without sharing a word with it."""

import pytest
from msgspec.structs import replace

from palimpsest.memory.dated import DueNote, due_notes, persons_named
from palimpsest.memory.note import Note
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import RankingOptions, rank
from palimpsest.memory.recall_terms import RecallUnit, day_of

PASSPORT = Note(
    name="user_passport",
    kind="user",
    about="passport expires 2025-02-18",
    backstory="said at the renewal office",
    when="2024-06-15T14:00:00Z",
    evidence=("s:7",),
    trust="stated",
    body="The passport expires on February 18th, 2025.",
)
MUSEUM = replace(PASSPORT, name="user_museum", about="likes museums", body="Museums in Tokyo are a favourite.")
DEADLINE = day_of("2025-02-18") or 0


def names(notes: list[Note], query: str, now: str) -> tuple[str, ...]:
    return tuple(due.name for due in due_notes(notes, query, now))


def recalled(notes: list[Note], query: str, now: str) -> list[str]:
    index = RecallIndex(RecallUnit(note.name, f"{note.about}\n{note.body}", kind=note.kind) for note in notes)
    return [hit.unit.id for hit in rank(index, query, options=RankingOptions(now=now, due=names(notes, query, now)))]


@pytest.mark.states("ME-47")
def test_a_note_with_a_deadline_within_60_days_is_recalled_without_a_common_word() -> None:
    query = "Is there anything to take care of before we fly?"
    assert due_notes([PASSPORT, MUSEUM], query, "2024-12-20") == (DueNote("user_passport", DEADLINE),)
    assert recalled([PASSPORT, MUSEUM], query, "2024-12-20") == ["user_passport"]


@pytest.mark.states("ME-47")
def test_a_past_or_distant_deadline_is_not_recalled() -> None:
    query = "Is there anything to take care of before we fly?"
    assert [recalled([PASSPORT], query, now) for now in ("2024-12-19", "2025-02-19")] == [[], []]
    assert [recalled([PASSPORT], query, now) for now in ("2024-12-20", "2025-02-18")] == [["user_passport"], ["user_passport"]]


@pytest.mark.states("ME-47")
def test_a_date_in_the_query_moves_the_window() -> None:
    assert names([PASSPORT], "We fly on 2025-01-15, what is missing?", "2024-06-20") == ("user_passport",)
    assert names([PASSPORT], "I finalize my trip in January, what is missing?", "2024-11-22") == ("user_passport",)
    assert names([PASSPORT], "我们一月十五号出发,2025年1月15日", "2024-06-20") == ("user_passport",)
    assert names([PASSPORT], "We fly on 2024-09-01, what is missing?", "2024-06-20") == ()
    # A passport that expires shortly before the flight bears on it.
    assert names([PASSPORT], "We fly on 2025-03-15, what is missing?", "2024-06-20") == ("user_passport",)
    assert names([PASSPORT], "We fly on 2025-04-20, what is missing?", "2024-06-20") == ()


@pytest.mark.states("ME-47")
def test_only_notes_of_the_person_in_question_are_due() -> None:
    mother = replace(PASSPORT, name="user_visa", person="Elena", relationship="mother")
    assert names([PASSPORT, mother], "What is missing?", "2025-01-10") == ("user_passport",)
    assert names([PASSPORT, mother], "What is missing for Elena?", "2025-01-10") == ("user_visa",)
    assert names([PASSPORT, mother], "Does my mother's trip need anything?", "2025-01-10") == ("user_visa",)
    assert persons_named("Helena's trip", [mother]) == {"user"}


@pytest.mark.states("ME-47")
def test_the_end_of_validity_is_a_deadline_too_and_notes_that_do_not_hold_are_not_due() -> None:
    lease = replace(PASSPORT, name="user_lease", about="rents a flat", body="The flat is rented.", valid_to="2025-02-01")
    assert due_notes([lease], "what next?", "2025-01-10") == (DueNote("user_lease", day_of("2025-02-01") or 0),)
    assert due_notes([replace(lease, status="superseded"), replace(lease, trust="quarantined")], "what next?", "2025-01-10") == ()
    assert due_notes([lease], "what next?", "") == ()


def test_the_soonest_deadline_comes_first_and_due_notes_stand_behind_the_best_two() -> None:
    later = replace(PASSPORT, name="user_later", about="tax return", body="The tax return is due 2025-02-20.")
    places = [replace(MUSEUM, name=f"user_{number}", body=f"Tokyo museums number {number}, a favourite.") for number in range(4)]
    found = recalled([later, PASSPORT, *places], "Tokyo museums", "2025-01-10")

    assert due_notes([later, PASSPORT], "Tokyo museums", "2025-01-10")[0].name == "user_passport"
    assert found[2:4] == ["user_passport", "user_later"]
    assert sorted(found[:2] + found[4:]) == ["user_0", "user_1", "user_2", "user_3"]


def test_hidden_and_excluded_units_are_not_returned_because_they_are_due() -> None:
    index = RecallIndex((RecallUnit("a", "one", kind="user"), RecallUnit("b", "two", kind="user"), RecallUnit("c", "three")))
    index.hide(("a",))
    options = RankingOptions(due=("a", "b", "c", "unknown"), excluded=frozenset({"b"}), kinds=frozenset({"user"}))

    assert rank(index, "four", options=options) == ()
    assert [hit.unit.id for hit in rank(index, "four", options=RankingOptions(due=("a", "b")))] == ["b"]
