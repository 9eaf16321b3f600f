"""Recalled turns that were corrected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.memory.note import Note
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_selection import Correction, corrections, digest, event_of, select, with_corrections
from palimpsest.memory.recall_terms import RecallUnit

OLD = Note(
    name="user_home",
    kind="user",
    about="lives in Lisbon",
    backstory="said so",
    when="2026-01-01T08:00:00Z",
    evidence=("a:1",),
    trust="stated",
    body="Lisbon",
    status="superseded",
    superseded_by="user_home@2",
    valid_to="2026-02-01",
)
NEW = replace(
    OLD, rev=2, about="lives in Porto", when="2026-02-01T08:00:00Z", evidence=("b:1",), status="active", superseded_by="", valid_to=""
)
LINK = {"a:1": Correction(("b:1",), "2026-02-01")}


def index() -> RecallIndex:
    return RecallIndex(
        (
            RecallUnit("a:1", "My address is 5 Harbour Street, Lisbon.", role="user", session="a", date="2026-01-01"),
            RecallUnit("a:2", "Noted, address saved.", role="assistant", session="a", position=1, date="2026-01-01"),
            RecallUnit("b:1", "We moved: it is now 9 Mill Lane.", role="user", session="b", date="2026-02-01"),
        )
    )


def test_what_corrected_an_event_is_read_from_the_links_of_notes() -> None:
    assert corrections([OLD, NEW]) == LINK
    assert corrections([replace(OLD, status="retracted", superseded_by="", valid_to="")]) == {"a:1": Correction()}
    assert corrections([NEW]) == {}


def test_a_chain_of_corrections_leads_to_the_last_and_an_event_that_still_supports_a_note_is_not_corrected() -> None:
    middle = replace(NEW, status="superseded", superseded_by="user_home@3", valid_to="2026-03-01")
    last = replace(NEW, rev=3, evidence=("c:1", "b:1"))
    assert corrections([OLD, middle, last]) == {"a:1": Correction(("c:1", "b:1"), "2026-02-01")}


def test_a_cycle_of_broken_links_ends() -> None:
    assert corrections([replace(OLD, superseded_by="user_home@1")]) == {"a:1": Correction((), "2026-02-01")}


@pytest.mark.states("ME-06")
def test_new_evidence_is_fetched_and_stands_before_the_old_even_if_only_the_old_matches_the_words() -> None:
    found = index()
    hits = rank(found, "what is the street address in Lisbon?")
    assert "b:1" not in [hit.unit.id for hit in hits]
    lines = select(found, with_corrections(found, hits, LINK), "address").lines

    assert [line[:5] for line in lines] == ["[b:1]", "[a:2]", "[a:1]"]
    assert lines[2] == "[a:1] 2026-01-01 (no longer so since 2026-02-01, see [b:1]) user: My address is 5 Harbour Street, Lisbon."


@pytest.mark.states("ME-06")
def test_in_a_digest_the_old_evidence_comes_last_and_only_with_the_new() -> None:
    found = index()
    hits = rank(found, "what is the street address in Lisbon?")

    assert digest(found, hits, "address", corrected=LINK).lines == (
        "[b:1] 2026-02-01 user: We moved: it is now 9 Mill Lane.",
        "[a:2] 2026-01-01 assistant: Noted, address saved.",
        "[a:1] 2026-01-01 user (no longer so since 2026-02-01, see [b:1]): My address is 5 Harbour Street, Lisbon.",
    )
    assert digest(found, hits, "address", corrected={"a:1": Correction()}).ids == ("a:2",)


@pytest.mark.states("ME-06")
def test_what_was_hidden_is_not_fetched() -> None:
    found = index()
    found.hide(("b:1",))
    hits = rank(found, "what is the street address in Lisbon?")

    assert "b:1" not in [hit.unit.id for hit in with_corrections(found, hits, LINK)]
    assert digest(found, hits, "address", corrected=LINK).ids == ("a:2",)


@given(st.permutations(range(6)), st.integers(0, 5), st.integers(0, 5), st.sampled_from(["port", "the port of service 3", "value"]))
@pytest.mark.states("ME-06")
def test_old_evidence_never_precedes_new_evidence(order: list[int], old: int, new: int, query: str) -> None:
    units = (RecallUnit(f"s{number}:1", f"the port of service {number} has value {number}", session=f"s{number}") for number in order)
    found = RecallIndex(units)
    link = {f"s{old}:1": Correction((f"s{new}:1",))} if old != new else {}
    hits = rank(found, query)
    for ids in ([hit.unit.id for hit in with_corrections(found, hits, link)], list(digest(found, hits, query, corrected=link).ids)):
        for corrected, correction in link.items():
            assert corrected not in ids or ids.index(correction.successors[0]) < ids.index(corrected)


def test_the_event_of_a_later_part_is_that_of_the_first() -> None:
    assert (event_of("s:12.3"), event_of("s.x:12"), event_of("user_home")) == ("s:12", "s.x:12", "user_home")
