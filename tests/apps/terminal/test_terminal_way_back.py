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
        assert "which message?" not in "\n".join(screen.lines())
