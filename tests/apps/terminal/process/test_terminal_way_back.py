"""The ways back in a real terminal: going back to an earlier message with its files."""

import subprocess
from collections.abc import Callable

from streaming_model import Call
from terminal_room import Room, say


def test_esc_twice_goes_back_to_an_earlier_message_with_its_files(room: Callable[..., Room]) -> None:
    here = room(
        (Call("write", {"path": "a.txt", "content": "first\n"}),), ("one",), (Call("write", {"path": "b.txt", "content": "x\n"}),), ("two",)
    )
    subprocess.run(["git", "init", "-q", str(here.project)], check=True)
    with here.terminal("--mode", "edits") as screen:
        say(screen, "make a")
        screen.wait_for("one")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        say(screen, "make b")
        screen.wait_for("two")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert (here.project / "b.txt").exists()
        screen.press("esc")
        screen.wait_until_quiet()
        screen.press("esc")
        screen.wait_for("Go back to before which message?")
        screen.type("make b")
        screen.press("enter")
        screen.wait_for("conversation and files")
        screen.press("enter")
        screen.wait_for("went back to event")
        screen.wait_for("❯ make b")
        screen.wait_for(lambda: not (here.project / "b.txt").exists())
        assert (here.project / "a.txt").read_text() == "first\n"
        screen.wait_for(lambda: "which message?" not in "\n".join(screen.lines()))


def test_an_escape_that_closes_a_list_is_not_the_first_of_two_and_words_behind_a_command_without_any_do_nothing(
    room: Callable[..., Room],
) -> None:
    here = room(("one",))
    with here.terminal() as screen:
        say(screen, "the message")
        screen.wait_for("one")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        say(screen, "/mode")
        screen.wait_for("(type to filter")
        screen.press("esc")
        screen.wait_for(lambda: "(type to filter" not in "\n".join(screen.lines()))
        screen.press("esc")
        # A letter that follows at once would be one with Alt.
        screen.wait_until_quiet()
        say(screen, "/new write the tests")
        screen.wait_for("/new takes nothing behind its name, and nothing was done")
        screen.wait_until_quiet()
        assert "which message?" not in screen.text()
        screen.press("up")
        screen.wait_for(lambda: screen.lines()[-2] == "❯ /new write the tests")
        assert len(list((here.home / "sessions").glob("*.jsonl"))) == 1
