"""MEMORY.md, the index of the notes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.tokens import estimate
from palimpsest.memory.index_text import IndexText, index_of, line_of
from palimpsest.memory.note import Note

NOTE = Note(
    name="user_a",
    kind="user",
    about="prefers tabs",
    backstory="said so",
    when="2026-05-01T00:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="x",
)


@pytest.mark.states("ME-03")
def test_the_index_depends_on_the_active_notes_alone() -> None:
    reference = replace(NOTE, name="reference_b", kind="reference", about="board: http://x")
    pinned = replace(NOTE, name="project_c", kind="project", about="ships in May", pinned=True)
    hidden = (replace(NOTE, name="user_d", status="superseded"), replace(NOTE, name="user_e", trust="quarantined"))
    text = (
        "- [project_c](notes/project_c.md) 2026-05-01 00:00:00: ships in May\n"
        "- [user_a](notes/user_a.md) 2026-05-01 00:00:00: prefers tabs\n"
        "- [reference_b](notes/reference_b.md) 2026-05-01 00:00:00: board: http://x\n"
    )
    assert index_of([reference, *hidden, NOTE, pinned]) == index_of([pinned, NOTE, reference]) == IndexText(text)
    assert index_of([]) == IndexText("")


def test_a_line_says_when_and_whose_word_it_is_and_notes_of_a_repository_stand_last() -> None:
    seen = replace(NOTE, name="project_b", kind="project", about="needs docker", trust="observed", when="2026-05-03T00:00:00Z")
    cloned = replace(NOTE, name="project_c", kind="project", about="ships in May", trust="repository", when="2026-05-04T01:00:00+02:00")
    assert index_of([NOTE, seen, cloned]).text.splitlines() == [
        "- [user_a](notes/user_a.md) 2026-05-01: prefers tabs",
        "- [project_b](notes/project_b.md) 2026-05-03 00:00:00 · observed, not said by the user: needs docker",
        "- [project_c](notes/project_c.md) 2026-05-03 23:00:00 · from this repository, not said by the user: ships in May",
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 400), st.integers(1, 150), st.sampled_from(["a", "中", "word "]))
@pytest.mark.states("ME-03", "CC-54")
def test_the_index_keeps_its_bounds_and_names_the_first_line_that_was_cut(count: int, length: int, letter: str) -> None:
    notes = [replace(NOTE, name=f"user_{number:04}", about=(letter * length)[:length].strip() or "a") for number in range(count)]
    index = index_of(notes)
    whole = [line_of(note, is_finer=count > 1) for note in notes]
    lines = index.text.splitlines()
    assert len(lines) <= 200
    assert len(index.text.encode()) <= 25_000
    assert estimate(index.text) <= 2_500
    if index.first_left_out:
        kept = len(lines) - 2
        assert index.first_left_out == whole[kept]
        assert lines[-1] == f"> {count - kept:,} of {count:,} notes are not listed here; the first is: {whole[kept]}"
        assert lines[:kept] == whole[:kept]
    else:
        assert lines == whole
