from pathlib import Path

from corpus import GOLDEN
from readings import Home, check_repeat, check_session, check_stages, faults, said, sources

from palimpsest.core.events import FilesSnapshotted, ModelReplied, SessionOpened, Usage, UserTyped, ViewEdited
from palimpsest.core.items import Mask, Text, text_of
from palimpsest.exchange.aider import AiderFormat, ChatBlock, blocks_in

FORM = AiderFormat()
NEW, OLD = (GOLDEN / "aider" / name / ".aider.chat.history.md" for name in ("project", "old"))
FIRST, SECOND = "aider-project-2026-05-04T10-00-00", "aider-project-2026-05-04T11-30-00"


def replies(home: Home, session: str) -> list[ModelReplied]:
    return [body for body in home.bodies(session) if isinstance(body, ModelReplied)]


def test_0_86_1_has_a_session_with_its_messages_for_every_start() -> None:
    home = check_repeat(FORM, NEW)
    assert list(home.store.sessions()) == [FIRST, SECOND]
    bodies = home.bodies(FIRST)
    opened = bodies[0]
    assert isinstance(opened, SessionOpened)
    assert (opened.model, opened.meta) == ("claude-sonnet-4-5", {"version": "0.86.1"})
    assert said(bodies) == ["Make the greeting polite.\n\nKeep it short.", "/ask Is it short enough?", "Thank you."]
    assert [text_of(body.parts[0]) for body in bodies if isinstance(body, UserTyped)] == ["/add greet.py", "/clear"]
    assert [body.usage for body in replies(home, FIRST)] == [
        Usage(500, 900, 1100, output=120),
        Usage(3000, output=10),
        Usage(1000, output=4),
    ]
    assert [(body.snapshot, body.paths) for body in bodies if isinstance(body, FilesSnapshotted)] == [("1a2b3c4", ("greet.py",))]
    assert said(home.bodies(SECOND)) == ["hello"]
    assert faults(home, FIRST) == faults(home, SECOND) == []


def test_0_86_1_keeps_quotes_and_headings_that_stand_in_a_reply() -> None:
    home = Home()
    home.take(FORM, NEW)
    first = text_of(replies(home, FIRST)[0].parts[0])
    assert first.startswith("I change one line:\n\ngreet.py\n```python\n")
    assert '> print("good morning")\n#### print("bye")\n>>>>>>> REPLACE\n```\n\nThat is all.' in first


def test_0_86_1_hides_the_chat_when_it_was_cleared() -> None:
    home = Home()
    home.take(FORM, NEW)
    assert [body.edits for body in home.bodies(FIRST) if isinstance(body, ViewEdited)] == [(Mask(("4.0", "6.0", "9.0", "11.0")),)]


def test_0_37_1_counts_its_tokens_in_older_words() -> None:
    home, session, bodies = check_session(FORM, OLD)
    assert said(bodies) == ["The list is never emptied.\nPlease look."]
    assert [(body.parts, body.usage) for body in replies(home, session)] == [((Text("I found it.", "assistant"),), Usage(1500, output=20))]


def test_a_chat_that_grows_gives_the_same_logs(tmp_path: Path) -> None:
    data = NEW.read_bytes()
    ends = [place for place in range(300, len(data)) if data.startswith((b"\n\n####", b"\n\n> Tokens"), place)]
    assert len(ends) == 8
    check_stages(FORM, tmp_path / "project" / NEW.name, [data[: end + 2] for end in ends], data)


def test_a_fence_that_is_never_closed_swallows_no_message() -> None:
    tokens = "> Tokens: 1 sent, 1 received.  \n"
    text = f"\n#### one  \n\n```\nopen\n\n{tokens}\n#### two  \n\n```\nclosed\n```\n\n{tokens}"
    assert blocks_in(text) == [
        ChatBlock("user", "one"),
        ChatBlock("assistant", "```\nopen"),
        ChatBlock("tool", "Tokens: 1 sent, 1 received."),
        ChatBlock("user", "two"),
        ChatBlock("assistant", "```\nclosed\n```"),
        ChatBlock("tool", "Tokens: 1 sent, 1 received."),
    ]


def test_two_starts_in_one_second_are_two_sessions_and_bad_bytes_are_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "p" / NEW.name
    path.parent.mkdir()
    start = b"\n# aider chat started at 2026-05-04 10:00:00\n\n"
    path.write_bytes(start + b"#### one  \n\n" + start + b"#### two \xff  \n")
    assert [source.session for source in sources(FORM, path)] == ["p-2026-05-04T10-00-00", "p-2026-05-04T10-00-00-2"]
    home = Home()
    first, second = home.take(FORM, path)
    assert said(home.bodies(first.session)) == ["one"]
    assert said(home.bodies(second.session)) == ["two \ufffd"]
    assert [len(done.problems) for done in (first, second)] == [0, 1]


def test_a_file_without_a_start_is_not_of_this_format(tmp_path: Path) -> None:
    path = tmp_path / NEW.name
    path.write_text("#### hello\n", encoding="utf-8")
    assert sources(FORM, path) == []
