"""A terminal whose size changes at any moment, and frames that reach it in one piece."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streaming_model import Call, Gate
from terminal_room import PAL, Room, say

from pal.terminal.display import reflows, rows_above

BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path, room: Room, columns: int) -> None:
        self._room, self._socket = room, socket
        self("new-session", "-d", "-x", str(columns), "-y", "24", " ".join(PAL))

    def __call__(self, *words: str) -> str:
        env = self._room.environment(TERM="tmux-256color")
        command = ["tmux", "-f", "/dev/null", "-S", str(self._socket), *words]
        return subprocess.run(command, cwd=self._room.project, env=env, capture_output=True, text=True, check=True).stdout

    def lines(self) -> list[str]:
        """The scrollback and the screen."""
        return [line.rstrip() for line in self("capture-pane", "-p", "-S", "-").rstrip().splitlines()]

    def wait_for(self, wanted: Callable[[list[str]], bool], seconds: float = 120) -> list[str]:
        until = time.monotonic() + seconds
        while not wanted(lines := self.lines()):
            assert time.monotonic() < until, "\n".join(lines)
        return lines


def test_tmux_which_wraps_again_shows_input_and_status_once(room: Callable[..., Room], tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: no terminal here wraps its lines again")
    here = room(("The answer has words.",))
    tmux = Tmux(tmp_path / "s", here, 100)
    try:
        tmux.wait_for(lambda lines: any("of 200k" in line for line in lines))
        tmux("send-keys", "go", "Enter")
        tmux.wait_for(lambda lines: any("The answer" in line for line in lines) and "working" not in lines[-1])
        tmux("send-keys", "some words that are typed and not sent, " * 2)
        for columns, rows in ((90, 24), (50, 20), (44, 12), (61, 30), (100, 24), (45, 24), (120, 50), (80, 24)):
            tmux("resize-window", "-x", str(columns), "-y", str(rows))
            lines = tmux.wait_for(lambda lines, width=columns: _is_settled(lines, width))  # type: ignore[misc]
        text = "\n".join(lines)
        assert (text.count("❯ some words"), text.count("claude-sonnet-4-6"), text.count("The answer")) == (1, 1, 1), text
    finally:
        tmux("kill-server")


def _is_settled(lines: list[str], width: int) -> bool:
    """Whether the last frame is one of this width: the status line is cut by it."""
    return bool(lines) and lines[-1].startswith("claude-sonnet-4-6") and len(lines[-1]) < width and "❯ some words" in "\n".join(lines)


def test_resizes_in_the_middle_of_a_stream_and_of_a_question_leave_nothing_behind(room: Callable[..., Room]) -> None:
    gate, second = Gate(), Gate()
    here = room(("one two three\n\n", gate, "four five six\n\n", second, Call("bash", {"command": "touch made"})), ("done",))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("one two three")
        screen.resize(60, 24)
        gate.opened.set()
        screen.wait_for("four five six")
        screen.resize(100, 24)
        second.opened.set()
        screen.wait_for("y  yes, once")
        for columns in (70, 90, 80):
            screen.resize(columns, 24)
            screen.wait_until_quiet()
        shown = screen.text()
        assert [shown.count(part) for part in ("one two three", "four five six", "needs your permission", "y  yes, once")] == [1, 1, 1, 1]
        screen.type("y")
        screen.wait_for("done")
        screen.wait_until_quiet()
        assert "yes, once" not in screen.text()


def test_what_is_erased_is_painted_again_in_the_same_piece(room: Callable[..., Room]) -> None:
    here = room(tuple(f"paragraph {number} of some words\n\n" for number in range(60)))
    with here.terminal() as screen:
        say(screen, "go")
        screen.wait_for("paragraph 59")
        screen.wait_until_quiet()
        # Erasing below the cursor makes the input vanish unless its frame is shown as one.
        frames = re.split(re.escape(BEGIN), screen.raw)[1:]
        outside = b"".join(frame.partition(END)[2] for frame in frames)
        assert len(frames) >= 2
        assert all(END in frame and "❯".encode() in frame.partition(END)[0] for frame in frames)
        assert outside.count(b"\x1b[J") == 0
        assert [line for line in screen.scrollback() if line.startswith("paragraph")] == [
            f"paragraph {number} of some words" for number in range(60)
        ]
        assert screen.text().count("claude-sonnet-4-6") == 1


def test_a_key_while_blocks_are_printed_leaves_no_piece_of_the_input_behind(room: Callable[..., Room]) -> None:
    gates = [Gate() for _ in range(10)]
    here = room(tuple(part for number, gate in enumerate(gates) for part in (f"paragraph {number}\n\n", gate)))
    with here.terminal() as screen:
        say(screen, "go")
        for number, gate in enumerate(gates):
            screen.type("xyz"[number % 3])
            gate.opened.set()
        screen.wait_for("paragraph 9")
        screen.wait_for("❯ xyzxyzxyzx")
        screen.wait_until_quiet()
        assert [line for line in screen.scrollback() if line.startswith("❯")] == ["❯ go", "❯ xyzxyzxyzx"]


@given(st.lists(st.integers(0, 200), max_size=10), st.integers(0, 100), st.integers(10, 120))
def test_lines_that_fit_are_one_row_each(widths: list[int], column: int, columns: int) -> None:
    rows = rows_above(widths, column, columns)
    assert rows >= len(widths)
    assert (rows == len(widths)) == (all(width <= columns for width in widths) and column < columns)


def test_only_terminals_that_say_so_wrap_again() -> None:
    assert (reflows({"TMUX": "/s,1,0"}), reflows({"TERM_PROGRAM": "iTerm.app"}), reflows({"TERM": "xterm"})) == (True, True, False)
