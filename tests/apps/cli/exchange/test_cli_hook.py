"""`pal hook` as other agents run it: a process that prints JSON or nothing and always ends with 0."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from claude_session import SESSION, prompt, reply, text, written
from corpus import golden

from palimpsest.stores.home import Home

COMMAND = (sys.executable, "-m", "palimpsest.apps.cli", "hook")


def run(home: Path, data: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "PAL_HOME": str(home)}
    return subprocess.run([*COMMAND, *words], input=data, capture_output=True, env=variables, check=False, timeout=120)


def input_of(transcript: Path, event: str, **fields: str) -> bytes:
    common = {"session_id": SESSION, "transcript_path": str(transcript), "cwd": str(transcript.parent), "hook_event_name": event}
    return json.dumps(common | fields).encode()


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    return written(tmp_path, prompt("u1", None, "Keep the flag --fast."), reply("a1", "u1", "m1", text("I will.")))


def test_after_a_compaction_the_hook_prints_one_json_value(transcript: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart")

    assert (done.returncode, done.stderr) == (0, b"")
    assert "- 2026-01-02 03:04: Keep the flag --fast." in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]


def test_after_a_compaction_of_claude_code_the_hook_shows_the_commands_that_ran_and_their_errors(tmp_path: Path) -> None:
    transcript = golden("claude/2.1.325/projects/-repo-project/69901b92*.jsonl")[0]
    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart")
    lines = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"].splitlines()

    assert lines[lines.index("Commands, newest first, with exit codes:") + 1 : lines.index("Messages of the user, verbatim:")] == [
        "- [0] seq 1 30000",
        "- [3] echo oops >&2; exit 3",
        "Open errors:",
        "- [3] oops | echo oops >&2; exit 3",
    ]


@pytest.mark.parametrize(
    "data", [b"", b"not json", b'{"hook_event_name": "SessionStart", "source": "compact", "transcript_path": "/dev/zero"}']
)
def test_mi_12_with_any_input_and_no_usable_home_the_hook_ends_with_0_and_says_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the home should be")
    done = run(tmp_path / "home", data, "SessionStart")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_that_needs_more_time_than_it_has_says_nothing(transcript: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart", "--seconds", "0.001")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_at_the_end_of_a_session_it_is_imported_beside_the_agent(transcript: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    done = run(home.folder, input_of(transcript, "SessionEnd", reason="other"), "SessionEnd")
    # The background process writes this file last; it is in a session of its own, so that it cannot be waited for.
    deadline = time.monotonic() + 120
    while not (home.folder / "imports.json").exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.02)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert home.store.sessions() == [f"claude-{SESSION}"]
