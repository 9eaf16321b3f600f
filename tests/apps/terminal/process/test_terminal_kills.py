"""SIGKILL at any moment: the next terminal shows the same conversation, with what was typed and not sent in the input line."""

import os
import signal
from collections.abc import Callable

import pytest
from pty_screen import PtyScreen
from streaming_model import Call, Gate
from terminal_room import NOTICE, Room, say

READ = Call("bash", {"command": "cat never"})
CHANGE = Call("bash", {"command": "touch made"})


def kill(screen: PtyScreen) -> None:
    """End the process as the kernel does when memory is short."""
    os.killpg(screen.process.pid, signal.SIGKILL)


def shown(screen: PtyScreen) -> list[str]:
    """The lines of the conversation and of the input, without notices and the status."""
    screen.wait_until_quiet()
    return [line for line in screen.scrollback()[:-1] if line.strip() and not line.startswith(("·", "something asks"))]


def test_a_message_that_was_sent_before_the_session_is_open_is_in_the_next_terminal(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    # No session can be opened as long as there is a file in place of their folder.
    (here.home / "sessions").write_text("")
    with here.terminal(ready="no session is open") as screen:
        say(screen, "the first message")
        screen.wait_for("queued: the first message")
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        kill(screen)
    (here.home / "sessions").unlink()
    with here.terminal() as screen:
        assert shown(screen)[-2:] == ["❯ the first message", "half a thou"]
        screen.press("enter")
        screen.wait_for("answer")
        assert "the first message\\nhalf a thou" in str(here.model.asked[0]["messages"])
        screen.wait_for(lambda: list((here.home / "drafts").iterdir()) == [])


def test_the_same_conversation_and_each_letter_that_was_shown_are_there_again(room: Callable[..., Room]) -> None:
    here = room(("the answer",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the answer")
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        kill(screen)
    with here.terminal("--continue") as screen:
        screen.wait_until_quiet()
        assert screen.lines()[:-1] == ["", "❯ the question", "", "the answer", "", *NOTICE, "", "❯ half a thou"]


def test_a_kill_while_a_reply_streams_in_keeps_message_queue_and_draft(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("the beginning", gate, " and the end"), ("after the kill",))
    with here.terminal() as screen:
        say(screen, "the question")
        screen.wait_for("the beginning")
        say(screen, "and this too")
        screen.wait_for("queued: and this too")
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        kill(screen)
    with here.terminal("--continue", ready="after the kill") as screen:
        lines = [line for line in shown(screen) if not line.startswith("  ")]
        assert lines == ["❯ the question", "the beginning", "❯ and this too", "after the kill", "❯ half a thou"]
        assert "· cut off here: the terminal ended while this reply arrived" in screen.text()
        assert "the beginning" not in str(here.model.asked[-1]["messages"])
        screen.wait_for(lambda: list((here.home / "drafts").glob("*.reply.jsonl")) == [])


def test_a_kill_while_a_question_is_open_keeps_the_call_and_the_draft(room: Callable[..., Room]) -> None:
    here = room((CHANGE,), ("after the kill",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.type("because")
        screen.wait_for("❯ because")
        kill(screen)
    with here.terminal("--continue", ready="❯ because") as screen:
        screen.wait_for("y  yes, once")
        lines = shown(screen)
        assert lines[0] == "❯ go"
        assert lines[2:5] == ["bash needs your permission", "Run this command?", "touch made"]
        assert lines[-1] == "❯ because"
        assert not (here.project / "made").exists()


def test_a_kill_while_a_tool_runs_keeps_the_call_and_the_draft(room: Callable[..., Room]) -> None:
    here = room((READ,), ("after the kill",))
    os.mkfifo(here.project / "never")
    with here.terminal("--allow", "bash(cat:*)") as screen:
        say(screen, "go")
        screen.wait_for("◌ bash cat never")
        screen.type("half a thou")
        screen.wait_for("❯ half a thou")
        kill(screen)
    with here.terminal("--continue", ready="❯ half a thou") as screen:
        assert shown(screen)[:2] == ["❯ go", "✗ bash cat never"]


@pytest.mark.long
@pytest.mark.parametrize("printed", range(0, 4_500, 300))
def test_whatever_was_shown_when_the_process_was_killed_is_shown_again(room: Callable[..., Room], printed: int) -> None:
    words = ("alpha", "bravo", "charlie", "delta")
    here = room((CHANGE,), ("first answer " * 40,))
    with here.terminal(ready="❯") as screen:
        screen.type("alpha\rbravo\rcharlie\rdelta")
        begun = len(screen.raw)
        screen.wait_for(lambda: len(screen.raw) >= begun + printed or "yes, once" in screen.text())
        if "yes, once" in screen.text() and len(screen.raw) < begun + printed:
            # What is typed is the reason of a no, and the turn goes on.
            screen.press("enter")
            screen.wait_for(lambda: len(screen.raw) >= begun + printed or "first answer" in screen.text())
        kill(screen)
        before = [word for word in words if word in screen.text()]
    resumed = ("--continue",) if list((here.home / "sessions").glob("*.jsonl")) else ()
    with here.terminal(*resumed) as screen:
        screen.wait_until_quiet()
        assert [word for word in before if word not in screen.text()] == []
