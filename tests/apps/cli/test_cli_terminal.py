import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pal_runs import SMALL, Pal, edited


def _in_terminal(pal: Pal, *words: str, answer: bytes = b"", **env: str) -> tuple[int, str]:
    """Run the real program in a terminal of its own; the answer is typed when a question stands there."""
    near, far = pty.openpty()
    settings = {"PATH": os.environ["PATH"], "PAL_HOME": str(pal.home.folder), "TERM": "xterm-256color", "COLUMNS": "80", **env}
    with subprocess.Popen(
        [sys.executable, "-m", "palimpsest.apps.cli", *words], stdin=far, stdout=far, stderr=far, env=settings, start_new_session=True
    ) as running:
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


def test_the_demo_shows_a_progress_bar_and_removes_it_at_the_end(pal: Pal, tmp_path: Path) -> None:
    ended, shown = _in_terminal(pal, "demo", "--tokens", "120000", "--html", str(tmp_path / "page.html"))

    assert ended == 0
    assert re.search(r"\rreplaying ━+─* +\d+ %", shown)
    assert shown.rindex("\r\x1b[K") > shown.rindex("replaying ━")
