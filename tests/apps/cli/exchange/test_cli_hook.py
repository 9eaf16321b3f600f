"""`pal hook` as other agents run it: a process that prints JSON or nothing and always ends with 0."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from claude_session import SESSION, call, prompt, reply, result, text, written
from corpus import golden

from pal.plugin.bounds import HOOK_BYTES
from palimpsest.stores.home import FolderHome

COMMAND = (sys.executable, "-m", "pal.cli", "hook")


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


def many_small_lines(folder: Path, size: int) -> Path:
    """A transcript of about `size` bytes in short calls, the newest of which the user took back."""
    lines = [prompt("u0", None, "Keep the flag --fast.")]
    for number in range(size // 1_080):
        parent = f"r{number - 1}" if number else "u0"
        lines.append(reply(f"a{number}", parent, f"m{number}", call(f"c{number}", command=f"make part-{number}")))
        lines.append(result(f"r{number}", f"a{number}", f"c{number}", "ok"))
    return written(folder, *lines, prompt("u1", f"r{len(lines) // 2 - 5}", "Try another way."))


def test_after_a_compaction_a_transcript_of_thousands_of_short_lines_is_read_to_its_end(tmp_path: Path) -> None:
    transcript = many_small_lines(tmp_path, HOOK_BYTES - 200_000)
    assert HOOK_BYTES - 600_000 < transcript.stat().st_size < HOOK_BYTES

    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart")

    said = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert "make part-" in said
    assert said.endswith("Try another way.")


def test_a_hook_that_has_no_time_for_the_whole_transcript_shows_its_end_and_says_so(tmp_path: Path) -> None:
    transcript = many_small_lines(tmp_path, HOOK_BYTES - 200_000)
    # The first reading needs several times as much, the second one a fraction.
    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart", "--seconds", "0.2")

    said = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"].splitlines()
    assert said[1] == "[3 MB of the transcript before this are not part of the lists below]"
    assert said[-1].endswith("Try another way.")


def test_a_transcript_of_claude_code_is_not_taken_for_a_rollout_of_codex_by_a_word_in_its_first_line(tmp_path: Path) -> None:
    first = {"type": "attachment", "attachment": {"type": "hook_success", "data": {"payload": "x"}}, "sessionId": SESSION}
    transcript = written(tmp_path, first, prompt("u1", None, "Keep the flag --fast."), reply("a1", "u1", "m1", text("I will.")))

    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart")

    assert "Keep the flag --fast." in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]


@pytest.mark.parametrize(
    "data", [b"", b"not json", b'{"hook_event_name": "SessionStart", "source": "compact", "transcript_path": "/dev/zero"}']
)
@pytest.mark.states("MI-12")
def test_with_any_input_and_no_usable_home_the_hook_ends_with_0_and_says_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the home should be")
    done = run(tmp_path / "home", data, "SessionStart")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_that_needs_more_time_than_it_has_says_nothing(transcript: Path, tmp_path: Path) -> None:
    # More than a processor reads before its clock ticks.
    transcript.write_bytes(transcript.read_bytes() * 3_000)
    done = run(tmp_path / "home", input_of(transcript, "SessionStart", source="compact"), "SessionStart", "--seconds", "0.001")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_at_the_end_of_a_session_it_is_imported_beside_the_agent(transcript: Path, tmp_path: Path) -> None:
    home = FolderHome(tmp_path / "home")
    done = run(home.folder, input_of(transcript, "SessionEnd", reason="other"), "SessionEnd")
    # The background process writes this file last; it is in a session of its own, so that it cannot be waited for.
    deadline = time.monotonic() + 120
    while not (home.folder / "imports.json").exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.02)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert home.store.sessions() == [f"claude-{SESSION}"]
