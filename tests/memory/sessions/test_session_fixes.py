"""Fixes: how an error was fixed the last time, with the turn, its edits and the command that proved it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from past_sessions import BEGIN, PastSession

from palimpsest.memory.past_sessions import Fix, error_signature, find_fix, fixes, session_steps, session_units, signatures
from palimpsest.memory.recall_index import RecallIndex
from palimpsest.memory.recall_terms import RecallUnit

FAILURE = "src/net/socket.ts(14,3): error TS2554: Expected 2 arguments, but got 1."


def _fixed() -> PastSession:
    session = PastSession()
    session.user("make the build green")
    session.run("cd web && make check-web 2>&1 | tail -20", 2, FAILURE)
    session.edit("/repo/src/net/socket.ts")
    session.run("make check-web", 0)
    session.reply("The call has its second argument now.")
    return session


def _fixes(session: PastSession) -> list[Fix]:
    return list(fixes(session_steps(session.events)))


def test_a_command_that_failed_and_succeeds_after_an_edit_is_a_fix_with_its_events() -> None:
    (fix,) = _fixes(_fixed())
    assert fix == Fix(
        command="make check-web",
        errors=(FAILURE,),
        signature=("socket.ts(#,#): error TS2554: Expected # arguments, but got #.",),
        paths=("src/net/socket.ts",),
        commands=(),
        failed=3,
        edits=(5,),
        proved=7,
        at=BEGIN + 7_000,
        closing=8,
        closing_text="The call has its second argument now.",
    )
    assert fix.events == (3, 5, 7, 8)


def test_the_unit_of_a_fix_has_the_id_of_the_failure_and_names_the_other_events() -> None:
    units = [unit for unit in session_units("s", _fixed().events) if unit.kind == "fix"]
    lines = (
        "failed: make check-web",
        f"error: {FAILURE}",
        "then edited: src/net/socket.ts (events 5)",
        "then succeeded: make check-web (event 7)",
        "reply (event 8): The call has its second argument now.",
    )
    paths, sources = ("src/net/socket.ts",), ("s:5", "s:7", "s:8")
    text = "\n".join(lines)
    assert units == [RecallUnit("s:3", text, session="s", position=2, date="2026-05-04", kind="fix", paths=paths, sources=sources)]


def test_what_ran_between_fixed_it_if_nothing_was_edited() -> None:
    session = PastSession()
    session.run("bun run typecheck", 127, "error: tsc: command not found")
    session.run("bun install")
    session.run("bun run typecheck")
    assert [(fix.paths, fix.commands) for fix in _fixes(session)] == [((), ("bun install",))]


def test_a_command_that_succeeds_when_it_is_repeated_was_fixed_by_nothing() -> None:
    session = PastSession()
    session.run("make", 1, "error: flaky")
    session.run("make")
    assert _fixes(session) == []


@pytest.mark.parametrize("second", ["make test", "make lint -k"])
def test_the_success_of_another_command_proves_nothing(second: str) -> None:
    session = PastSession()
    session.run("make lint", 1, "error: bad")
    session.edit("/repo/a.py")
    session.run(second)
    assert _fixes(session) == []


def test_a_command_that_fails_again_is_fixed_once_from_its_first_failure_on() -> None:
    session = PastSession()
    first = session.run("make", 1, "error: one")
    session.edit("/repo/a.py")
    session.run("make", 1, "error: two")
    session.edit("/repo/b.py")
    proof = session.run("make")
    assert [(fix.failed, fix.proved, fix.errors, fix.paths) for fix in _fixes(session)] == [
        (first, proof, ("error: one",), ("b.py", "a.py"))
    ]


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("ValueError: bad value 17 at 0x7f3a", "ValueError: bad value # at #"),
        ("/home/me/repo/src/app.py:12: error: no", "app.py:#: error: no"),
        ("C:\\work\\src\\app.py(3,4): error CS1002", "app.py(#,#): error CS1002"),
        ("error: pathspec 'feat/x' did not match", "error: pathspec # did not match"),
        ("fatal: bad object 9fceb02d0ae598e95dc970b74767f19372d61af8", "fatal: bad object #"),
        ("Error: can't start: it isn't there", "Error: can't start: it isn't there"),
    ],
)
def test_a_signature_has_no_folders_quotations_numbers_and_addresses(line: str, signature: str) -> None:
    assert error_signature(line) == signature


@given(st.text(max_size=200))
def test_the_signature_of_a_signature_is_itself(line: str) -> None:
    once = error_signature(line)
    assert error_signature(once) == once


def test_lines_without_a_letter_have_no_signature() -> None:
    assert signatures(("12:30", "error: 7", "error: 8", "====")) == ("error: #",)


def _history() -> RecallIndex:
    other = PastSession()
    other.user("format the code")
    other.run("make format", 1, "error: 3 files would be reformatted")
    other.edit("/repo/src/net/socket.ts")
    other.run("make format")
    other.reply("Formatted.")
    return RecallIndex([*session_units("one", other.events), *session_units("two", _fixed().events)])


def test_how_an_error_was_fixed_the_last_time_is_found_by_its_line_with_other_paths_and_numbers() -> None:
    found = find_fix(_history(), "npm run build", "building\nlib/other/socket.ts(99,1): error TS2554: Expected 4 arguments, but got 3.\n")
    assert found[0].unit.id == "two:3"
    assert "(events 5)" in found[0].unit.text
    assert "(event 7)" in found[0].unit.text


@pytest.mark.parametrize(("command", "found"), [("make format", "one:3"), ("make check-web", "two:3")])
def test_how_a_command_was_fixed_the_last_time_is_found_by_the_command(command: str, found: str) -> None:
    assert find_fix(_history(), command, "")[0].unit.id == found


def test_an_equal_signature_stands_before_shared_words_and_the_newer_of_equals_first() -> None:
    index = RecallIndex(
        RecallUnit(f"s:{seq}", f"failed: make\nerror: {line}\nthen succeeded: make (event 9)", session="s", kind="fix")
        for seq, line in ((1, "error: cannot open 7"), (2, "error: cannot open 8"), (3, "make: cannot cannot open open make 9"))
    )
    assert [hit.unit.id for hit in find_fix(index, "make", "error: cannot open 9")][:2] == ["s:2", "s:1"]


def test_without_a_fix_nothing_is_found() -> None:
    session = PastSession()
    session.user("make the build green")
    assert find_fix(RecallIndex(session_units("s", session.events)), "make", "the build is not green") == ()
