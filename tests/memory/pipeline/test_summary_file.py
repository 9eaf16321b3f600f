"""SUMMARY.md: generated within its bounds, and checked before it replaces another."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.tokens import estimate
from palimpsest.memory.note import Note
from palimpsest.memory.summaries import (
    MOST_BYTES,
    MOST_TOKENS,
    RolloutPointer,
    SummaryInput,
    check_summary,
    structural_summary,
    summary_material,
)

TABS = Note(
    name="user_indent",
    kind="user",
    about="prefers tabs",
    backstory="said",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="Tabs.\n",
)
SHORT = replace(TABS, name="feedback_short", kind="feedback", about="short <replies>")
TESTS = replace(TABS, name="project_tests", kind="project", about="tests run with pytest", trust="observed", uses=2)
PORT = replace(TABS, name="project_port", kind="project", about="port 8000", when="2026-05-09T10:00:00Z", trust="observed")
GIVEN = SummaryInput(
    (TABS, SHORT, TESTS, PORT), (RolloutPointer("2026-05-10-x", "Fix [a] parser", "2026-05-10"),), (), frozenset({PORT.name})
)
TEXT = """v1

## User profile
- prefers tabs [user_indent](notes/user_indent.md)

## Preferences
- short ‹replies› [feedback_short](notes/feedback_short.md)

## General tips
- tests run with pytest [project_tests](notes/project_tests.md)

## What is in memory
- 2026-05-10: Fix ⟦a⟧ parser [2026-05-10-x](rollouts/2026-05-10-x.md)
- 2026-05-09: port 8000 [project_port](notes/project_port.md) (file changed since)
"""


def test_the_summary_has_four_sections_newest_first_with_names_as_pointers() -> None:
    assert structural_summary(GIVEN) == TEXT
    assert check_summary(TEXT, GIVEN.targets()) == ""


def test_a_correction_stands_before_the_older_note_however_often_that_was_used() -> None:
    host = replace(
        TESTS, name="project_host", about="the staging host is orion", body="the staging host is orion\n", trust="stated", uses=9
    )
    corrected = replace(
        host, name="project_new", about="the staging host is vega", body="the staging host is vega\n", uses=0, when=PORT.when
    )
    reply = replace(host, name="feedback_reply", kind="feedback", about="replies in German, please", body="replies in German, please\n")
    other = replace(
        reply, name="feedback_new", about="replies in English, please", body="replies in English, please\n", uses=0, when=PORT.when
    )
    given = SummaryInput((host, corrected, reply, other))
    text = structural_summary(given)
    assert (
        text
        == """v1

## User profile

## Preferences
- replies in English, please [feedback_new](notes/feedback_new.md)
- replies in German, please [feedback_reply](notes/feedback_reply.md) · older than [feedback_new], which holds where they contradict

## General tips
- the staging host is vega [project_new](notes/project_new.md)
- the staging host is orion [project_host](notes/project_host.md) · older than [project_new], which holds where they contradict

## What is in memory
"""
    )
    assert check_summary(text, given.targets()) == ""
    material = summary_material(given)
    assert 0 <= material.index("[project_new](") < material.index("[project_host](")


@every_case(
    ("old", "new", "wrong"),
    [
        ("v1\n", "v2\n", "the first line is not v1"),
        ("v1\n", "v1 \n", "the first line is not v1"),
        ("## Preferences\n", "", "its sections are not User profile, Preferences, General tips, What is in memory"),
        ("## General tips", "### General tips", "its sections are not User profile, Preferences, General tips, What is in memory"),
        ("notes/user_indent.md", "notes/user_gone.md", "a point refers to what does not exist (line "),
        ("rollouts/2026-05-10-x.md", "../../x.md", "a point refers to what does not exist (line "),
        (" [user_indent](notes/user_indent.md)", "", "a point refers to nothing (line "),
        ("- prefers", "Obey this.\n- prefers", "there is something else than points (line "),
        ("- prefers", "- … obey this\n- prefers", "a point refers to nothing (line "),
        (
            "[user_indent](notes/user_indent.md)",
            "[p](notes/project_port.md)",
            "what is said about the user needs a statement of the user (line ",
        ),
        ("‹replies›", "</notes>", "it contains a tag"),
        ("port 8000", "port 8000 " * 1_200, f"it has more than {MOST_TOKENS:,} tokens or {MOST_BYTES:,} bytes"),
    ],
)
@pytest.mark.states("ME-34")
def test_an_invalid_summary_is_refused_with_the_reason(old: str, new: str, wrong: str) -> None:
    assert old in TEXT
    assert check_summary(TEXT.replace(old, new, 1), GIVEN.targets()).startswith(wrong)


@pytest.mark.states("CX-56")
def test_a_summary_of_ten_thousand_bytes_is_refused_and_one_byte_less_is_not() -> None:
    # Spaces have few tokens, so that the bound of bytes is the one that counts.
    line = "- port" + " " * (MOST_BYTES - len(TEXT.encode()) - 38) + "[project_port](notes/project_port.md)\n"
    text = TEXT + line
    while len(text.encode()) < MOST_BYTES:
        text = text.replace("- port ", "- port  ", 1)
    while len(text.encode()) > MOST_BYTES:
        text = text.replace("- port  ", "- port ", 1)
    assert estimate(text) <= MOST_TOKENS
    assert check_summary(text, GIVEN.targets()) == ""
    assert check_summary(text.replace("- port ", "- port  ", 1), GIVEN.targets()).startswith("it has more than")


_about = st.text(min_size=1, max_size=150).map(lambda text: " ".join(text.split()) or "x")


@given(
    st.lists(
        st.tuples(st.sampled_from(("user", "feedback", "project", "reference")), _about, st.booleans(), st.integers(0, 3)), max_size=150
    ),
    st.lists(_about, max_size=150),
)
@pytest.mark.states("ME-16")
def test_a_generated_summary_is_valid_and_within_its_bounds(drawn: list[tuple[str, str, bool, int]], titles: list[str]) -> None:
    notes = tuple(
        replace(TABS, name=f"{kind}_{place}", kind=kind, about=about, pinned=pinned, uses=uses)
        for place, (kind, about, pinned, uses) in enumerate(drawn)
    )
    given_ = SummaryInput(notes, tuple(RolloutPointer(f"stem-{place}", title, "2026-05-01") for place, title in enumerate(titles)))
    text = structural_summary(given_)
    assert check_summary(text, given_.targets()) == ""
    assert structural_summary(replace(given_, notes=notes[::-1], rollouts=given_.rollouts[::-1])) == text


def test_what_a_model_gets_has_the_pointer_of_every_line() -> None:
    assert summary_material(GIVEN).split("\n")[0] == (
        "[project, observed] - 2026-05-01: tests run with pytest [project_tests](notes/project_tests.md)"
    )
    assert len(summary_material(GIVEN).split("\n")) == 5
