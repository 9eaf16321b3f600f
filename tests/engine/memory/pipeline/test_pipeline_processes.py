"""Several processes on one home, and processes that are killed at any point: every job is done once, and nothing is half-written."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from finished_sessions import CWD, HOUR, START, add_session, clock_of, places_in, run_now

from palimpsest.memory.summaries import RolloutPointer, SummaryInput, check_summary, decode_rollout
from palimpsest.memory.work import PipelinePlaces

SESSIONS = 6
_SUPPORT = str(Path(__file__).parents[3] / "support" / "projects")
_WORKER = f"""
import os, signal, sys
sys.path.insert(0, {_SUPPORT!r})
from pathlib import Path
from finished_sessions import places_in, run_now
steps, kill_at = 0, int(sys.argv[2])
def announce(step, subject):
    global steps
    if steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    steps += 1
if kill_at < 0:
    sys.stdin.readline()
report = run_now(places_in(Path(sys.argv[1]), now=int(sys.argv[3])), announce)
for each in report.sessions:
    print(each.session, each.status, flush=True)
print("steps", steps)
"""


def start(home: Path, kill_at: int, now: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _WORKER, str(home), str(kill_at), str(now)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def filled(home: Path, count: int = SESSIONS) -> PipelinePlaces:
    for number in range(count):
        add_session(home, f"s{number}", at=START + number * 1_000)
    return places_in(home)


def assert_complete(places: PipelinePlaces, count: int) -> None:
    """Every session has one summary, files and rows agree, and the summary of the scope is valid."""
    scope = places.scope_of(CWD)
    texts, rows = places.rollouts(scope).read(), places.rows.all()
    assert [row.session for row in rows] == sorted(f"s{number}" for number in range(count))
    assert sorted(texts) == sorted(row.stem for row in rows)
    assert_whole(places)
    assert all(row.stem in (places.scope_folder(scope) / "SUMMARY.md").read_text() for row in rows)
    assert {row.status for row in places.claims.rows()} == {"done"}


def assert_whole(places: PipelinePlaces) -> None:
    """No file that could be injected is half-written."""
    scope = places.scope_of(CWD)
    texts = places.rollouts(scope).read()
    files = {stem: decode_rollout(text) for stem, text in texts.items()}
    assert all(file is not None and file.body.endswith("> Done.") for file in files.values())
    summary = places.scope_folder(scope) / "SUMMARY.md"
    pointers = tuple(RolloutPointer(stem, "", "") for stem in files)
    notes = tuple(places.notebook(scope).notes().active.values())
    assert not summary.exists() or check_summary(summary.read_text(), SummaryInput(notes, pointers).targets()) == ""


@pytest.mark.states("ME-32")
def test_two_processes_at_once_do_each_session_once(tmp_path: Path) -> None:
    places = filled(tmp_path, 12)
    workers = [start(tmp_path, -1, places.home.clock.now()) for _ in range(2)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    lines = [line for worker in workers for line in worker.communicate(timeout=120)[0].splitlines() if line.startswith("s")]
    done = Counter(line for line in lines if line.endswith("done"))
    assert done == {f"s{number} done": 1 for number in range(12)}
    run_now(places)
    assert_complete(places, 12)


@pytest.mark.parametrize("kill_at", range(12))
def test_a_process_killed_at_any_step_leaves_a_state_from_which_the_next_completes(tmp_path: Path, kill_at: int) -> None:
    places = filled(tmp_path, 1)
    killed = start(tmp_path, kill_at, places.home.clock.now())
    output, _ = killed.communicate(timeout=120)
    assert killed.returncode == (-signal.SIGKILL if "steps" not in output else 0)
    assert_whole(places)
    # Before its lease ends, what the dead process held is left alone; afterwards it is taken over.
    clock_of(places).time += HOUR
    run_now(places)
    assert_complete(places, 1)


def test_the_steps_at_which_processes_are_killed_cover_a_whole_run(tmp_path: Path) -> None:
    places = filled(tmp_path, 1)
    steps: list[str] = []
    run_now(places, lambda step, _: steps.append(step))
    first = ["claimed", "read", "answered", "noted", "written", "completed"]
    assert steps == [*first, "claimed", "consolidated", "proposed", "replaced", "completed"]


def test_a_file_that_a_dead_process_left_without_a_row_is_replaced_by_the_next_run(tmp_path: Path) -> None:
    places = filled(tmp_path, 1)
    killed = start(tmp_path, 4, places.home.clock.now())
    killed.communicate(timeout=120)
    assert len(places.rollouts(places.scope_of(CWD)).read()) == 1
    assert places.rows.all() == ()
    clock_of(places).time += HOUR
    run_now(places)
    assert_complete(places, 1)
