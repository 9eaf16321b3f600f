"""Notes, titles and turns in the order of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.tokens import estimate
from palimpsest.memory.note import Note
from palimpsest.memory.recall_selection import TimelineEntry, note_entries, timeline, unit_entries
from palimpsest.memory.recall_terms import RecallUnit

FIRST = Note(
    name="user_weight",
    kind="user",
    about="weighs 85 kg",
    backstory="said so",
    when="2026-01-01T08:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="85 kg",
    attribute="body.weight",
    policy="history",
    status="superseded",
    superseded_by="user_weight@2",
    valid_to="2026-02-01",
)
SECOND = replace(FIRST, rev=2, about="weighs 100 kg", when="2026-02-01T08:00:00Z", superseded_by="user_weight@3", valid_to="2026-03-01")
THIRD = replace(FIRST, rev=3, about="weighs 95 kg", when="2026-03-01T08:00:00Z", status="active", superseded_by="", valid_to="")


@pytest.mark.states("ME-07")
def test_a_chain_of_corrections_is_told_in_order_with_when_each_value_ended() -> None:
    assert timeline(note_entries([THIRD, FIRST, SECOND]), "body.weight").lines == (
        "2026-01-01 [user_weight@1] (until 2026-02-01) weighs 85 kg",
        "2026-02-01 [user_weight@2] (until 2026-03-01) weighs 100 kg",
        "2026-03-01 [user_weight] weighs 95 kg",
    )


def test_entries_are_chosen_by_person_by_attribute_or_by_all_words() -> None:
    entries = [
        TimelineEntry("1", "2026-01-02", "moved to Lisbon", person="Ann", attribute="home.address"),
        TimelineEntry("2", "2026-01-01", "Fixing the login test", person=""),
        TimelineEntry("3", "2026-01-03", "login page redesign"),
    ]
    found = {about: timeline(entries, about).ids for about in ("ann", "home", "home.address", "hom", "tests of the login", "login", "")}

    assert found == {
        "ann": ("1",),
        "home": ("1",),
        "home.address": ("1",),
        "hom": (),
        "tests of the login": ("2",),
        "login": ("2", "3"),
        "": ("2", "1", "3"),
    }


def test_both_bounds_are_included_and_must_be_dates() -> None:
    entries = [TimelineEntry(str(number), f"2026-01-0{number}T10:00:00Z", "deploy") for number in range(1, 6)]

    assert timeline(entries, "deploy", start="2026-01-02", end="2026-01-04").ids == ("2", "3", "4")
    with pytest.raises(BadInput, match="`from` is a date such as 2026-05-04"):
        timeline(entries, "deploy", start="last week")


def test_retracted_and_quarantined_notes_and_turns_without_a_date_have_no_place() -> None:
    assert note_entries([replace(FIRST, status="retracted"), replace(THIRD, trust="quarantined")]) == []
    assert unit_entries([RecallUnit("s:1", "hello"), RecallUnit("s:2", "hi", who="Ann", date="2026-01-01")]) == [
        TimelineEntry("s:2", "2026-01-01", "hi", person="Ann")
    ]


def test_the_newest_entries_are_kept_and_the_earlier_ones_counted() -> None:
    entries = [TimelineEntry(str(number), f"2026-01-{number:02d}", f"deploy number {number}") for number in range(1, 21)]
    found = timeline(entries, "deploy", tokens=70)

    assert found.lines[0] == f"+{found.left_out} earlier, recall(timeline='deploy', to=…)"
    assert found.ids == tuple(str(number) for number in range(found.left_out + 1, 21))
    assert 0 < found.left_out < 20


@given(st.lists(st.text(max_size=500), max_size=20), st.integers(0, 300), st.text(max_size=200))
@pytest.mark.states("ME-38")
def test_a_timeline_never_exceeds_its_budget(texts: list[str], tokens: int, about: str) -> None:
    entries = [TimelineEntry(str(number), "2026-01-01", text, person=about) for number, text in enumerate(texts)]
    found = timeline(entries, about, tokens=tokens)

    assert found.tokens == (estimate(found.text) if found.lines else 0) <= tokens
    assert len(found.ids) + found.left_out == len(texts)
