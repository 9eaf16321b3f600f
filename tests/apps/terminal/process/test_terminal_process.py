"""The terminal as a user has it: a real process in a real terminal, with keys, a stream and a screen."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from streaming_model import Call, Gate, Thought
from terminal_room import NOTICE, Room, say


def test_a_message_is_answered_and_the_screen_is_the_conversation(room: Callable[..., Room]) -> None:
    here = room((Thought("Let me think."), "# Title\n\nIt is **done**:\n\n", "- one\n- 二\n\n```py\nx = 1\n```\n"))
    with here.terminal() as screen:
        say(screen, "hello 你好")
        screen.wait_for("x = 1")
        screen.wait_until_quiet()
        assert screen.lines()[:-1] == [
            *NOTICE,
            "",
            "❯ hello 你好",
            "∴ Let me think.",
            "",
            "Title",
            "",
            "It is done:",
            "",
            " • one",
            " • 二",
            "",
            "  x = 1",
            "",
            "❯",
        ]


def test_a_command_runs_after_yes_and_the_model_gets_its_output(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "echo he''llo > made; cat made"}),), ("ready",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.wait_until_quiet()
        assert "echo he''llo > made; cat made" in screen.lines()
        assert not (here.project / "made").exists()
        screen.type("y")
        screen.wait_for("ready")
        assert (here.project / "made").read_text() == "hello\n"
        assert "hello" in str(here.model.asked[1]["messages"][-1])


def test_a_command_does_not_run_after_no(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "touch made"}),), ("as you like",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.type("n")
        screen.wait_for("as you like")
        assert not (here.project / "made").exists()
        assert "✗ bash touch made" in screen.text()


def test_always_writes_the_rule_and_the_next_call_of_it_is_not_asked(room: Callable[..., Room]) -> None:
    here = room(
        (Call("write", {"path": "a.txt", "content": "1\n"}),), (Call("edit", {"path": "a.txt", "old": "1", "new": "2"}),), ("done",)
    )
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("a  always: allow edit(a.txt)")
        screen.type("a")
        screen.wait_for("done")
        assert (here.project / "a.txt").read_text() == "2\n"
        assert screen.text().count("needs your permission") == 0


def test_esc_in_mid_stream_keeps_what_arrived(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("The beginning\n\nof a ", gate, "very long answer"), ("second",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("of a")
        screen.press("esc")
        screen.wait_for("interrupted")
        say(screen, "again")
        screen.wait_for("second")
        assert "of a" in str(here.model.asked[1]["messages"])


def test_esc_in_mid_tool_ends_the_command(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "echo started > started; cat < never"}),), ("second",))
    os.mkfifo(here.project / "never")
    with here.terminal("--mode", "ask", "--allow", "bash(echo:*)", "--allow", "bash(cat:*)", "--allow", "edit(started)") as screen:
        say(screen, "go")
        screen.wait_for(lambda: (here.project / "started").exists() or "yes, once" in screen.text())
        if "yes, once" in screen.text():
            screen.type("y")
            screen.wait_for((here.project / "started").exists)
        screen.press("esc")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        say(screen, "again")
        screen.wait_for("second")


def test_a_message_while_it_works_steers_and_can_be_taken_back_before(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("working", gate, " on it"), ("steered",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for(gate.reached.is_set)
        say(screen, "take the other way")
        screen.wait_for("queued: take the other way")
        screen.press("up")
        screen.wait_for(lambda: screen.lines()[-2] == "❯ take the other way")
        screen.type("!")
        screen.press("enter")
        screen.wait_for("queued: take the other way!")
        gate.opened.set()
        screen.wait_for("steered")
        assert [m["content"] for m in here.model.asked[1]["messages"] if "other way" in str(m)] != []


def test_a_paste_of_a_megabyte_is_a_mark_and_the_model_can_read_all_of_it(room: Callable[..., Room]) -> None:
    here = room(("understood",))
    text = "\n".join(f"line {number} of the paste" for number in range(45_000))
    with here.terminal() as screen:
        screen.type("look: ")
        screen.paste(text)
        screen.wait_for("[pasted #1, 45,000 lines]")
        screen.press("enter")
        screen.wait_for("understood")
        message = str(here.model.asked[0]["messages"])
        path = re.search(r"45,000 lines and is in the file (\S+);", message)
        assert path is not None
        assert Path(path[1]).read_text() == text


def test_no_line_is_wider_than_a_narrow_terminal(room: Callable[..., Room]) -> None:
    here = room((Thought("一个很长的想法" * 20), "一段很长的中文文字，没有空格" * 10 + "\n\n" + "word " * 60))
    with here.terminal(columns=40) as screen:
        say(screen, "go")
        screen.wait_for("word word")
        screen.wait_until_quiet()
        screen.wait_for(lambda: screen.lines()[-2:-1] == ["❯"])
        assert max(map(len, screen.lines())) <= 40


def test_a_resized_terminal_shows_the_input_once(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("answer")
        screen.type("some words")
        screen.wait_for("some words")
        for columns in (100, 50, 90):
            screen.resize(columns, 24)
            screen.wait_until_quiet()
        screen.wait_for(lambda: [line for line in screen.lines() if "some words" in line] == ["❯ some words"])


def test_ctrl_c_twice_leaves_and_the_terminal_is_usable(room: Callable[..., Room]) -> None:
    here = room(("answer",))
    with here.terminal() as screen:
        screen.press("ctrl-c")
        screen.wait_for("Ctrl-C again leaves")
        screen.press("ctrl-c")
        assert screen.wait_for_end() == 0
