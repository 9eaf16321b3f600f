"""Questions about coding sessions: which failure was fixed before, and what was decided last about a file, by rules alone."""

import pytest
from past_sessions import BEGIN, PastSession

from pal_lab.recall.data import CodingQuestion, SessionRecord, coding_questions, kinds_of, read_record, without_specifics

LATEST = 1 << 62


def _fixed() -> PastSession:
    session = PastSession()
    session.user("build it")  # 1
    session.run("make", 2, "src/a.c:7: error: unknown type name 'foo'")  # 2, 3
    session.reply("A header is missing.")  # 4
    session.edit("/repo/src/a.c")  # 5, 6
    session.run("make")  # 7, 8
    session.reply("It builds.")  # 9
    return session


def _records(*sessions: PastSession) -> list[SessionRecord]:
    return [read_record(f"s{number}", session.events) for number, session in enumerate(sessions)]


def _asked(*sessions: PastSession) -> list[CodingQuestion]:
    return list(coding_questions("p", _records(*sessions)))


FIX = frozenset({"s0:1", "s0:3", "s0:4", "s0:9"})


def test_the_first_failure_of_a_later_session_is_answered_by_the_events_that_fixed_the_same_error() -> None:
    later = PastSession(begin=BEGIN + 86_400_000)
    later.user("build it again")
    later.run("ninja", 1, "lib/b.c:99: error: unknown type name 'bar'")
    asked = [question for question in _asked(_fixed(), later) if "failure" in question.rule]
    assert asked == [
        CodingQuestion(
            "p",
            "first failure",
            "lib/b.c:99: error: unknown type name 'bar'",
            "error: unknown type name",
            BEGIN + 86_401_000,
            FIX,
            elsewhere=True,
        )
    ]


def test_a_failure_in_a_later_turn_of_the_same_session_is_another_question_and_one_in_the_same_turn_is_none() -> None:
    session = _fixed()
    session.run("make", 2, "src/c.c:8: error: unknown type name 'x'")
    session.user("again")
    session.run("make", 2, "src/d.c:9: error: unknown type name 'y'")
    asked = [question for question in _asked(session) if "failure" in question.rule]
    assert [(question.rule, question.text, question.elsewhere) for question in asked] == [
        ("later failure", "src/d.c:9: error: unknown type name 'y'", False)
    ]


def test_another_kind_of_error_is_not_answered() -> None:
    later = PastSession(begin=BEGIN + 86_400_000)
    later.user("build it again")
    later.run("make", 2, "lib/b.c:99: error: expected a semicolon before that")
    assert [question for question in _asked(_fixed(), later) if "failure" in question.rule] == []


def test_an_error_that_was_fixed_is_asked_for_by_its_own_lines() -> None:
    assert [question for question in _asked(_fixed()) if question.rule == "known error"] == [
        CodingQuestion("p", "known error", "src/a.c:7: error: unknown type name 'foo'", "error: unknown type name", LATEST, FIX)
    ]


def test_a_path_is_answered_by_the_message_and_the_last_reply_of_the_last_turn_that_edited_it() -> None:
    session = _fixed()
    session.user("rename it")  # 10
    session.edit("/repo/src/a.c")
    session.edit("/repo/src/b.c")
    session.reply("Renamed.")  # 15
    session.user("thanks")
    session.reply("Good.")
    answer = frozenset({"s0:10", "s0:15"})
    assert [question for question in _asked(session) if question.rule.startswith("path")] == [
        CodingQuestion("p", "path", "src/a.c", "a.c", LATEST, answer),
        CodingQuestion("p", "path of one turn", "src/b.c", "b.c", LATEST, answer),
    ]


@pytest.mark.parametrize("between", ["nothing", "failure"])
def test_a_command_that_succeeds_without_anything_done_was_not_repaired(between: str) -> None:
    session = PastSession()
    session.user("build it")
    session.run("make", 2, "src/a.c:7: error: unknown type name 'foo'")
    if between == "failure":
        session.run("make", 2, "src/a.c:7: error: unknown type name 'foo'")
    session.run("make")
    assert read_record("s", session.events).repairs == ()


def test_kinds_of_errors_are_words_without_paths_numbers_and_quotations() -> None:
    lines = ("/a/b.py:3: TypeError: 'x' is not callable", "exit 1", "\tTypeError: `y` is not callable")
    assert kinds_of(lines) == {"typeerror is not callable"}


def test_a_hard_query_keeps_only_what_is_equal_elsewhere() -> None:
    assert without_specifics(['src/a.py:3: error: "x" has 2 values too many']) == "error: has values too many"
