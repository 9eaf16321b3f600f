"""Output that is large or hostile, in a real terminal: the screen stays usable, and nothing of it is an instruction to the terminal."""

from collections.abc import Callable

import pytest
from streaming_model import Call, Gate
from terminal_room import Room, say

HOSTILE = (
    "\x1b[2J\x1b[H\x1b]0;title\x07\x1b]52;c;aGk=\x07"
    + "\x07" * 5_000
    + "\x9b31m \u202egnp.exe\u202c \u2066x\u2069 👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b\u200d end\r\n\x08\x08\x0c\x0e"
)


def test_escape_sequences_of_a_reply_and_of_a_tool_do_not_reach_the_terminal(room: Callable[..., Room]) -> None:
    here = room((HOSTILE + "\n\n", Call("read", {"path": "hostile.txt"})), ("read it",))
    (here.project / "hostile.txt").write_text(HOSTILE)
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("read it")
        screen.press("ctrl-o")
        screen.wait_until_quiet()
        assert [
            bad for bad in (b"\x07", b"\x1b[2J", b"\x1b]0", b"\x1b]52", b"\x9b31m", "\u202e".encode(), b"\x0e") if bad in screen.raw
        ] == []
        assert screen.screen.title == ""
        assert screen.lines()[-2] == "❯"
        assert screen.text().count("❯ go") == 1


def test_ten_megabytes_of_a_tool_do_not_keep_keys_from_the_screen(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 100"}),), ("done",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.type("y")
        keys = 0
        while "done" not in screen.text() or keys < 5:
            keys += 1
            screen.type("k")
            screen.wait_for("❯ k")
            screen.press("backspace")
            screen.wait_for(lambda: "❯ k" not in screen.text())
            assert keys < 2_000, screen.text()
        # How long a key takes is what the bar `typing_ms` measures, on a machine that does nothing else.
        screen.press("ctrl-o")
        screen.wait_until_quiet()
        assert "xxxx" in screen.text()


@pytest.mark.long
def test_a_reply_of_one_line_of_a_megabyte_is_all_there(room: Callable[..., Room]) -> None:
    words = [f"w{number}" for number in range(150_000)]
    line = " ".join(words)
    here = room((*(line[start : start + 4_000] for start in range(0, len(line), 4_000)),))
    with here.terminal(columns=100) as screen:
        say(screen, "go")
        screen.wait_for(lambda: b"w149999" in screen.raw[-20_000:], seconds=90)
        screen.wait_until_quiet()
        shown = screen.scrollback()
        last = " ".join(shown[-2_000:]).split()
        found = [word for word in last if word.startswith("w") and word[1:].isdecimal()]
        assert found == words[-len(found) :]
        assert len(found) > 10_000
        assert shown[-2] == "❯"


def test_nested_fences_and_a_wide_table_stay_within_the_screen(room: Callable[..., Room]) -> None:
    table = "| a | b | c |\n|---|---|---|\n| " + " | ".join(["long words in a cell " * 5] * 3) + " |\n\n"
    fence = "````md\nouter\n```py\ninner = 1\n```\nouter again\n````\n\n"
    here = room((table, fence, "after"))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("after")
        screen.wait_until_quiet()
        shown = screen.lines()
        assert max(map(len, shown)) <= 80
        assert shown[shown.index("  outer") :][:6] == ["  outer", "  ```py", "  inner = 1", "  ```", "  outer again", ""]
        assert screen.text().count("long") == 15


def test_blocks_are_divided_by_one_empty_line_and_thinking_and_tools_stand_together(room: Callable[..., Room]) -> None:
    gate = Gate()
    here = room(("one\n\ntwo", gate, "\n\n", Call("read", {"path": "a"}), Call("read", {"path": "b"})), ("three",))
    (here.project / "a").write_text("1")
    (here.project / "b").write_text("2")
    gate.opened.set()
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("three")
        screen.wait_until_quiet()
        assert screen.lines()[3:-1] == ["❯ go", "", "one", "", "two", "", "● read a", "● read b", "", "three", "", "❯"]
