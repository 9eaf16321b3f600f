"""Units of past sessions: what was said, found by the files, commands, errors and branch of its turn."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from past_sessions import PastSession

from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.memory.past_sessions import MOST_PARTS, event_id, session_units
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_terms import RecallUnit


def test_the_first_and_the_last_text_of_a_turn_are_about_all_files_that_were_edited_in_it() -> None:
    session = PastSession(branch="feat/login")
    session.user("let people log in")
    session.edit("/repo/src/login.py")
    session.reply("Now the tests.")
    session.read("/repo/README.md")
    session.edit("/repo/tests/test_login.py")
    session.run("pytest -q", 1, "E   KeyError: 'user'\n1 failed")
    session.reply("One test fails still.")
    units = list(session_units("s", session.events))
    assert units == [
        RecallUnit(
            "s:1",
            "let people log in\n[edited: src/login.py, tests/test_login.py] [branch: feat/login]",
            role="user",
            session="s",
            position=0,
            date="2026-05-04",
            paths=("tests/test_login.py", "src/login.py"),
        ),
        RecallUnit(
            "s:4",
            "Now the tests.\n[edited: tests/test_login.py] [ran: pytest -q] [error: E   KeyError: 'user']",
            role="assistant",
            session="s",
            position=1,
            date="2026-05-04",
            kind="step",
            paths=("tests/test_login.py", "README.md"),
            sources=("s:10",),
        ),
        RecallUnit(
            "s:11",
            "One test fails still.\n[edited: tests/test_login.py, src/login.py]",
            role="assistant",
            session="s",
            position=2,
            date="2026-05-04",
            paths=("src/login.py", "tests/test_login.py"),
        ),
    ]


def test_of_many_commands_a_text_states_those_that_failed_and_then_the_newest() -> None:
    session = PastSession()
    session.user("go on")
    session.run("make lint", 1, "Exit code 1")
    for number in range(3):
        session.run(f"make step{number}")
    assert [unit.text for unit in session_units("s", session.events)] == ["go on\n[ran: make lint] [ran: make step2]"]


def _project() -> RecallIndex:
    session = PastSession(branch="fix/retry-storm")
    session.user("the page is slow")
    session.reply("I will look at the cache.")
    session.edit("/repo/src/cache/eviction.py")
    session.reply("It is faster now.")
    session.user("please make the build green")
    session.reply("I change the loop in reconnectSession.")
    session.run("make check-web", 2, "src/net/socket.ts(14,3): error TS2554: Expected 2 arguments, but got 1.")
    session.edit("/repo/src/net/socket.ts")
    session.reply("Done.")
    session.user("thanks, and write the changelog")
    session.reply("It is written.")
    return RecallIndex(session_units("s", session.events))


@pytest.mark.parametrize(
    ("query", "events"),
    [
        ("what about src/cache/eviction.py?", ("s:1", "s:5")),
        ("who uses reconnectSession", ("s:7",)),
        ("when did we run make check-web", ("s:7",)),
        ("error TS2554 Expected 3 arguments, but got 2.", ("s:7",)),
        ("what was done on fix/retry-storm", ("s:1", "s:6", "s:13")),
    ],
)
def test_a_query_that_names_a_path_a_symbol_a_command_an_error_or_a_branch_finds_its_turn(query: str, events: tuple[str, ...]) -> None:
    assert rank(_project(), query)[0].unit.id in events


def test_later_parts_of_a_text_have_ids_of_their_own_that_lead_to_the_event() -> None:
    session = PastSession()
    session.user(" ".join(f"word{number}" for number in range(250)))
    units = list(session_units("a:b.c", session.events))
    assert [unit.id for unit in units] == ["a:b.c:1", "a:b.c:1.2", "a:b.c:1.3"]
    assert [event_id(unit.id) for unit in units] == ["a:b.c:1"] * 3


def test_a_pasted_file_gives_a_bounded_number_of_units() -> None:
    session = PastSession()
    session.user("line of a log\n" * 20_000)
    assert len(list(session_units("s", session.events))) == MOST_PARTS


@pytest.mark.states("ME-15")
def test_units_have_no_secret_of_texts_commands_and_errors() -> None:
    secret = "ghp_" + string.ascii_letters[:36]
    session = PastSession()
    session.user(f"use {secret} please")
    session.reply("I try it.")
    session.run(f"deploy --token {secret}", 1, f"Error: {secret} was rejected")
    session.edit("/repo/a.py")
    session.run(f"deploy --token {secret}", 0, "fine")
    texts = [unit.text for unit in session_units("s", session.events)]
    assert len(texts) == 3
    assert not any(secret in text for text in texts)


@given(st.lists(st.tuples(st.sampled_from(["user", "reply", "edit", "run", "fail"]), st.text(min_size=1, max_size=30)), max_size=30))
def test_every_unit_has_its_own_id_that_names_an_event_and_comes_in_the_order_of_positions(steps: list[tuple[str, str]]) -> None:
    session = PastSession()
    for kind, text in steps:
        match kind:
            case "user":
                session.user(text)
            case "reply":
                session.reply(text)
            case "edit":
                session.edit(f"/repo/{text}")
            case "run":
                session.run("make")
            case _:
                session.run("make", 1, f"Error: {text}")
    units = list(session_units("s", session.events))
    assert len({unit.id for unit in units}) == len(units)
    assert [unit.position for unit in units] == list(range(len(units)))
    known = {f"s:{event.seq}" for event in session.events}
    assert {event_id(unit.id) for unit in units} <= known
    said = {f"s:{event.seq}" for event in session.events if isinstance(event.body, UserSaid) and _text(event.body).strip()}
    assert said <= {event_id(unit.id) for unit in units}


def _text(body: UserSaid) -> str:
    return "".join(part.text for part in body.parts if isinstance(part, Text))
