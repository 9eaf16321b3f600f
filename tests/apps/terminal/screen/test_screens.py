"""Whole screens of the real process, line by line: what a user sees while a reply streams, at a question, and afterwards."""

import re
from collections.abc import Callable

import pytest
from pty_screen import PtyScreen
from streaming_model import Call, Gate
from terminal_room import NOTICE, Room, say

from pal.terminal.look import ScreenLook
from pal.terminal.painting import FoldBlock, ToolBlock, ToolState, paint
from pal.terminal.transcript import Status, status_line

CODE = 'def area(width, height):\n    """Return the area."""\n    return width + height\n'
OLD, NEW = "    return width + height\n", "    # An area is a product.\n    return width * height\n"
EDIT = Call("edit", {"path": "shape.py", "old": OLD, "new": NEW})
DIFF = ["  3 -     return width + height", "  3 +     # An area is a product.", "  4 +     return width * height"]
CHINESE = "一段很长的中文文字，没有空格，"
TABLE = "| 名称 | 数量 |\n|---|---:|\n| 面包 | 12 |\n\n- 一\n- two\n"
FOLD = FoldBlock(63, "fold", 64_155, 29_140, 0.021, 0.0117)
STATUS = Status("claude-sonnet-4-6", "palimpsest", "ask", 29_140, 200_000, 60_000, 0.23, 0.55, processes=1, queued=2)


def shown(screen: PtyScreen) -> list[str]:
    """All lines since the start: a frame that was higher for a moment may have moved the first ones out of the screen."""
    screen.wait_until_quiet()
    return screen.scrollback()


def test_a_reply_streams_an_edit_is_asked_about_and_its_output_opens(room: Callable[..., Room]) -> None:
    gate = Gate()
    fence = "The **sum** is wrong:\n\n```python\nreturn width + height\n"
    here = room((fence, gate, "```\n\n", Call("read", {"path": "shape.py"})), (EDIT,), ("It is `*` now.",))
    (here.project / "shape.py").write_text(CODE)
    said = ["", "❯ fix the area", "", "The sum is wrong:", "", "  return width + height", ""]
    with here.terminal(rows=26) as screen:
        say(screen, "fix the area")
        screen.wait_for(gate.reached.is_set)
        screen.wait_for("width + height")
        assert shown(screen) == [*NOTICE, *said, "❯", "working (Esc stops) · claude-sonnet-4-6 · ░░░░░░ 3% of 200k · ask"]
        gate.opened.set()
        screen.wait_for("y  yes, once")
        assert shown(screen) == [
            *NOTICE,
            *said,
            "● read shape.py",
            "",
            "edit needs your permission",
            "◌ edit shape.py (+2 -1)",
            *DIFF,
            "edit shape.py?",
            "    y  yes, once",
            "    a  always: allow edit(shape.py)",
            "    n  no",
            "  esc  no, and stop",
            "  or type a reason for a no, then Enter; Ctrl-O shows the call in full",
            "",
            "❯",
            "working (Esc stops) · claude-sonnet-4-6 · ░░░░░░ 1% of 200k · $0.0075 · ask",
        ]
        screen.type("y")
        screen.wait_for("It is * now.")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        screen.press("ctrl-o", "ctrl-o")
        opened = [
            "",
            "❯ fix the area",
            "",
            "The sum is wrong:",
            "",
            "  return width + height",
            "",
            "● read shape.py",
            "● edit shape.py (+2 -1)",
            *DIFF,
            "",
            "It is * now.",
            "",
            "● edit shape.py (+2 -1)",
            *DIFF,
            "● read shape.py",
            "       1  def area(width, height):",
            '       2      """Return the area."""',
            "       3      return width + height",
            "",
            "❯",
            "claude-sonnet-4-6 · ░░░░░░ 1% of 200k · $0.01 · ask · fold in 158k · cache 0%",
        ]
        # Both outputs are printed in frames of their own, between which the screen may be quiet for a moment.
        screen.wait_for(lambda: shown(screen)[-24:] == opened[-24:])


def test_sixty_columns_without_colour_in_chinese(room: Callable[..., Room]) -> None:
    here = room((Call("bash", {"command": "mkdir 一 && cat 二"}),), (CHINESE * 4 + "\n\n" + TABLE,))
    notice = ["· There is no sandbox (it is turned off): every command that", "  may change something asks first."]
    asked = [*notice, "", "❯ 请看看这个目录里有什么文件"]
    with here.terminal(columns=60, NO_COLOR="1") as screen:
        say(screen, "请看看这个目录里有什么文件")
        screen.wait_for("y  yes, once")
        assert shown(screen) == [
            *asked,
            "",
            "bash needs your permission",
            "Run this command?",
            "mkdir 一 && cat 二",
            "? mkdir '一'  [`mkdir` may change something]",
            "+ cat '二'  [read-only]",
            "(`mkdir` may change something)",
            "    y  yes, once",
            "    a  always: allow bash(mkdir '一')",
            "    n  no",
            "  esc  no, and stop",
            "  or type a reason for a no, then Enter; Ctrl-O shows the",
            "  call in full",
            "",
            "❯",
            "working (Esc stops) · claude-sonnet-4-6 · ░░░░░░ 1% of 200k",
        ]
        screen.type("y")
        screen.wait_for("two")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert shown(screen) == [
            *asked,
            "✗ bash mkdir 一 && cat 二 (exit 1)",
            "  cat: 二: No such file or directory",
            "  [exit code 1]",
            "",
            CHINESE * 2,
            CHINESE * 2,
            "",
            "名称  数量",
            "──────────",
            "面包    12",
            "",
            " • 一",
            " • two",
            "",
            "❯",
            "claude-sonnet-4-6 · ░░░░░░ 1% of 200k · $0.0075 · ask",
        ]
        assert re.findall(rb"\x1b\[[0-9;]*?(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m", screen.raw) == []


def test_for_a_screen_reader_there_are_words_instead_of_symbols(room: Callable[..., Room]) -> None:
    here = room(("# Title\n\nSome *text*.\n\n", Call("bash", {"command": "mkdir made"})), ("done",))
    with here.terminal("--screen-reader") as screen:
        say(screen, "go")
        screen.wait_for("y  yes, once")
        screen.type("n")
        screen.wait_for("done")
        screen.wait_for(lambda: "working" not in screen.lines()[-1])
        assert shown(screen) == [
            "note: There is no sandbox (it is turned off): every command that may change",
            "      something asks first.",
            "",
            "you: go",
            "",
            "# Title",
            "",
            "Some *text*.",
            "",
            "failed: bash mkdir made",
            "  the user said no",
            "",
            "done",
            "",
            "you:",
            "claude-sonnet-4-6, 1% of 200k, $0.0075, ask, fold in 158k, cache 0%, palimpsest",
        ]


@pytest.mark.parametrize(
    ("look", "line"),
    [
        (ScreenLook(80), "▾ fold 63: 64k → 29k tokens, saves $0.01 a call, costs $0.02 once (Ctrl-T)"),
        (ScreenLook(60), "▾ fold 63: 64k → 29k tokens, saves $0.01 a call (Ctrl-T)"),
        (ScreenLook(40), "▾ fold 63: 64k → 29k tokens (Ctrl-T)"),
        (ScreenLook(20), "▾ fold 63:… (Ctrl-T)"),
        (ScreenLook(80, spoken=True), "edit: fold 63: 64k to 29k tokens, saves $0.01 a call, costs $0.02 once (Ctrl-T)"),
    ],
    ids=["80", "60", "40", "20", "spoken"],
)
def test_the_line_of_a_fold_keeps_its_key_in_any_width(look: ScreenLook, line: str) -> None:
    assert re.sub(r"\x1b\[[0-9;]*m", "", paint(FOLD, look)) == f"{line}\n"


@pytest.mark.parametrize(
    ("look", "line"),
    [
        (
            ScreenLook(120),
            "claude-sonnet-4-6 · █░░░░░ 15% of 200k · $0.23 · ask · 2 queued · 1 process · fold in 30k · cache 55% · palimpsest",
        ),
        (ScreenLook(80), "claude-sonnet-4-6 · █░░░░░ 15% of 200k · $0.23 · ask · 2 queued · 1 process"),
        (ScreenLook(60), "claude-sonnet-4-6 · █░░░░░ 15% of 200k · $0.23 · ask"),
        (ScreenLook(30), "claude-sonnet-4-6"),
        (ScreenLook(80, spoken=True), "claude-sonnet-4-6, 15% of 200k, $0.23, ask, 2 queued, 1 process, fold in 30k"),
    ],
    ids=["120", "80", "60", "30", "spoken"],
)
def test_the_status_line_leaves_out_the_least_important(look: ScreenLook, line: str) -> None:
    assert re.sub(r"\x1b\[[0-9;]*m", "", status_line(STATUS, look)) == line


@pytest.mark.parametrize(("state", "line"), [("writing", "call: write a.py (+1)\n"), ("running", "running: write a.py (+1)\n")])
def test_a_screen_reader_does_not_say_of_a_call_that_waits_that_it_runs(state: ToolState, line: str) -> None:
    call = ToolBlock("c", "write", '{"path": "a.py", "content": "x\\n"}', state)
    assert paint(call, ScreenLook(80, colours="none", spoken=True)) == f"{line}  1 + x\n"
