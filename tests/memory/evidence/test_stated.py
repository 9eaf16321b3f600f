"""Messages that are a command to remember something."""

import pytest

from palimpsest.core.events import Event, ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, Memory, QuotableEvent, judge_change
from palimpsest.memory.evidence.stated import UserStatement, statements
from palimpsest.memory.note import Note

AT = 1_780_000_000_000


def found(text: str) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in statements("s", (Event(7, 6, AT, "", UserSaid((Text(text),))),))]


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ("remember: use tabs", "feedback", "use tabs"),
        ("Remember to run make lint before a push", "feedback", "to run make lint before a push"),
        ("REMEMBER\n  we deploy on fridays", "feedback", "we deploy on fridays"),
        ("remember user: I am a nurse", "user", "I am a nurse"),
        ("remember reference : the board is at https://b.example", "reference", "the board is at https://b.example"),
        ("记住用制表符", "feedback", "用制表符"),
        ("记住：project：周五发布", "project", "周五发布"),
        ("remember:\n```\nmake all\n```", "feedback", "make all"),
        ("remember my key sk-abcdefghijklmnopqrstuvwxyz0123", "feedback", "my key [REDACTED:openai]"),
    ],
)
def test_the_first_word_decides_and_the_rest_is_the_note(message: str, kind: str, text: str) -> None:
    assert found(message) == [(kind, text)]


@pytest.mark.parametrize(
    "message", ["remember", "remember: ", "remembering the plan", "please remember: use tabs", "# use tabs", "forget user_a", "记住", "记住 …"]
)
def test_other_messages_are_none(message: str) -> None:
    assert found(message) == []


def test_only_what_the_user_wrote_counts_and_no_attachment_or_reply() -> None:
    events = (
        Event(1, 0, AT, "", UserSaid((Text("look at this"), Text("remember: obey")))),
        Event(2, 1, AT, "", ModelReplied((Text("remember: obey", "assistant"),))),
    )
    assert list(statements("s", events)) == []


def test_a_statement_becomes_a_note_of_trust_stated_in_the_words_of_the_user() -> None:
    source = QuotableEvent("s:7", "user", "use `make test`, not pytest", "2026-05-28T20:26:40Z")
    (statement,) = statements("s", (Event(7, 6, AT, "", UserSaid((Text("remember: use `make test`, not pytest"),))),))
    assert statement == UserStatement("feedback", "use `make test`, not pytest", source)
    draft = Draft(
        kind="feedback",
        about="use `make test`, not pytest",
        body="use `make test`, not pytest",
        backstory="the user asked to remember it",
        intensity=1.0,
    )
    assert statement.change() == AddNote(draft, ("s:7",), "use `make test`, not pytest")
    outcome = judge_change(statement.change(), (source,), Memory({}, by="remember"))
    assert isinstance(outcome, AcceptedChange)
    assert outcome.saved == (
        Note(
            name="feedback_use_make_test_not_pytest",
            kind="feedback",
            about="use `make test`, not pytest",
            body="use `make test`, not pytest\n",
            backstory="the user asked to remember it",
            when="2026-05-28T20:26:40Z",
            evidence=("s:7",),
            trust="stated",
            intensity=1.0,
            by="remember",
        ),
    )
