"""Output at every width and on a terminal: numbers, ids, times and prices are never cut."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pal_runs import LONG, SMALL, Pal, edited, long
from rich.console import Console

from pal.cli.tables import Columns, one_line
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Mask
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock


def _printed(made: Columns, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(made)
    return file.getvalue()


def _made() -> Columns:
    made = Columns("edit", "when", "policy", "price", right=("edit", "price"), keep=("when",))
    made.add_row("1261", "11-15 14:32", "a policy with a long name", "-$0.93")
    made.add_row("7", "2031-04-01", "fold", "?")
    return made


def test_where_there_is_room_everything_shows() -> None:
    assert _printed(_made(), 60) == (
        "edit  when         policy                      price\n"
        "1261  11-15 14:32  a policy with a long name  -$0.93\n"
        "   7  2031-04-01   fold                            ?\n"
    )


def test_words_give_way_to_numbers() -> None:
    assert _printed(_made(), 40) == (
        "edit  when         policy          price\n1261  11-15 14:32  a policy wit…  -$0.93\n   7  2031-04-01   fold                ?\n"
    )


def test_where_numbers_have_no_room_rows_become_blocks() -> None:
    first = "edit: 1261\nwhen: 11-15 14:32\npolicy: a policy with a long …\nprice: -$0.93\n"

    assert _printed(_made(), 30) == f"{first}\nedit: 7\nwhen: 2031-04-01\npolicy: fold\nprice: ?\n"


def test_a_block_leaves_out_what_is_empty_and_never_cuts_what_is_kept() -> None:
    made = Columns("id", "", "note", keep=("id",))
    made.add_row("0123456789abcdef", "", "")

    assert _printed(made, 12) == "id: \n0123456789ab\ncdef\n"


@given(st.integers(40, 130), st.lists(st.tuples(st.integers(0, 10**9), st.text("abc 字", max_size=60), st.integers(0, 10**6)), min_size=1))
def test_no_number_is_cut_at_any_width_and_no_line_is_too_wide(width: int, rows: list[tuple[int, str, int]]) -> None:
    made = Columns("first number", "words", "second number", right=("first number", "second number"))
    for first, words, second in rows:
        made.add_row(f"{first:,}", words.strip(), f"{second:,}")
    shown = _printed(made, width)

    assert max(Console(width=200).measure(line).maximum for line in shown.splitlines() if line) <= width
    assert [word for word in shown.split() if word[0].isdigit()] == [f"{number:,}" for row in rows for number in (row[0], row[2])]


@pytest.mark.parametrize("words", [("audit", LONG), ("compact", LONG, "--preview", "--no-model")])
def test_edits_are_listed_with_whole_numbers_on_any_screen(pal: Pal, words: tuple[str, ...]) -> None:
    long(pal.home)
    with Log.open(pal.home.store, LONG, FixedClock(1_932_900_000_000), write=True) as log:
        mask = Mask((log.view.items[0].id,), "x")
        body = ViewEdited(
            (mask,), "a policy with a very long name", "costs 1,234,567 tokens", "asked", 1_234_567, 123_456, -1234.93, 1234.56
        )
        made = log.append(body)
    edits = pal.json(*words)
    for width in (40, 60, 80, 120):
        result = pal(*words, COLUMNS=str(width))
        shown = result.stdout.split()
        assert result.exit_code == 0
        assert (width, {str(edit["edit"]) for edit in edits} - set(shown)) == (width, set())
        # A command to copy is never cut or wrapped.
        assert max(len(line) for line in result.stdout.splitlines() if "`pal " not in line) <= max(width, 50)
        if words[0] == "audit":
            assert (width, {str(made.seq), "1.2M", "123k", "-$1,234.93", "$1,234.56"} - set(shown)) == (width, set())


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("costs 1,234,567 tokens", 40, "costs 1,234,567 tokens"),
        ("costs 1,234,567 tokens", 10, "costs …"),
        ("costs 1,234,567 tokens", 16, "costs 1,234,567…"),
        ("costs $0.93 now", 10, "costs …"),
        ("see src/v12/app.py", 10, "see src/v…"),
    ],
)
def test_a_number_in_a_sentence_shows_whole_or_not_at_all(text: str, width: int, line: str) -> None:
    assert one_line(text, width) == line


def _in_terminal(pal: Pal, *words: str, answer: bytes = b"", **env: str) -> tuple[int, str]:
    """Run the real program in a terminal of its own; the answer is typed when a question stands there."""
    return _program_in_terminal(pal, [sys.executable, "-m", "pal.cli", *words], answer=answer, **env)


def _program_in_terminal(pal: Pal, command: list[str], *, answer: bytes = b"", **env: str) -> tuple[int, str]:
    near, far = pty.openpty()
    settings = {"PATH": os.environ["PATH"], "PAL_HOME": str(pal.home.folder), "TERM": "xterm-256color", "COLUMNS": "80", **env}
    with subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=settings, start_new_session=True) as running:
        os.close(far)
        shown = b""
        while True:
            try:
                piece = os.read(near, 65536)
            except OSError:
                break
            shown += piece
            if not piece:
                break
            if answer and b"[y/N]:" in shown:
                os.write(near, answer)
                answer = b""
    os.close(near)
    return running.returncode, shown.decode()


@pytest.mark.parametrize(("answer", "code", "last"), [(b"y\n", 0, "room 197,000"), (b"n\n", 1, "nothing was changed")])
def test_a_person_is_asked_before_edits_that_rest_on_it_go_too(pal: Pal, answer: bytes, code: int, last: str) -> None:
    edited(pal.home)
    before = pal.json("context", SMALL)
    ended, shown = _in_terminal(pal, "undo", SMALL, "14", answer=answer)

    assert ended == code
    assert "edit 15 depends on edit 14 and would be undone too. Continue? [y/N]:" in shown
    assert shown.strip().endswith(last)
    assert (pal.json("context", SMALL) == before) is (code == 1)


def test_colours_are_for_terminals_that_want_them(pal: Pal) -> None:
    edited(pal.home)

    assert "\x1b[" in _in_terminal(pal, "show", SMALL)[1]
    assert "\x1b[3" not in _in_terminal(pal, "show", SMALL, NO_COLOR="1")[1]
    assert "\x1b" not in pal("show", SMALL).stdout


def test_what_was_found_stands_out_in_a_terminal(pal: Pal) -> None:
    edited(pal.home)

    assert "\x1b[1;33mtimeout\x1b[0m of ten seconds." in _in_terminal(pal, "search", "timeout", "--kind", "assistant")[1]
    assert "[timeout]" in _in_terminal(pal, "search", "timeout", "--kind", "assistant", NO_COLOR="1")[1]


def test_the_demo_leaves_no_progress_bar_on_the_terminal(pal: Pal, tmp_path: Path) -> None:
    ended, shown = _in_terminal(pal, "demo", "--tokens", "120000", "--html", str(tmp_path / "page.html"))

    assert ended == 0
    # A fast machine ends before the second after which the bar comes.
    assert shown.rfind("\r\x1b[K") >= shown.rfind("replaying ━")


_SHOWS_PROGRESS = """
from pal.cli.output import progress
with progress("replaying", after_s=0.0) as show:
    show(1, 4)
    show(4, 4)
with progress("too soon", after_s=3600.0) as show:
    show(1, 4)
"""


def test_a_progress_bar_is_shown_after_its_time_and_removed_at_the_end(pal: Pal) -> None:
    shown = _program_in_terminal(pal, [sys.executable, "-c", _SHOWS_PROGRESS])[1]

    assert shown == "\rreplaying ━━━━━━━───────────────────────  25 %\rreplaying ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100 %\r\x1b[K"
