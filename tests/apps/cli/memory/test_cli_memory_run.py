"""`pal memory run` and `pal memory status`: what they do, print and cost, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from finished_sessions import CWD, add_session
from pal_runs import Pal

from palimpsest.core.text import iso_time
from palimpsest.memory.work import PipelinePlaces
from palimpsest.stores.memory_config import MemoryConfig

NOW = time.time_ns() // 1_000_000
HOUR = 3_600_000
REPLY = {"title": "T", "slug": "t", "context": "", "tasks": [{"name": "n", "outcome": "success"}], "changes": []}
SUMMARY = "v1\n\n## User profile\n\n## Preferences\n\n## General tips\n\n## What is in memory\n"
MODEL = ("--model", "claude-haiku-4-5")


@pytest.fixture
def filled(pal: Pal) -> Pal:
    """A home with a finished session, a fresh one and an old one."""
    add_session(pal.home.folder, "finished", at=NOW - 7 * HOUR)
    add_session(pal.home.folder, "fresh", at=NOW)
    add_session(pal.home.folder, "old", at=NOW - 1_000 * HOUR)
    return pal


def places_of(pal: Pal) -> PipelinePlaces:
    return PipelinePlaces(pal.home, MemoryConfig())


def script(tmp_path: Path, *replies: object) -> str:
    """A file of replies, in the order in which they are asked for."""
    path = tmp_path / "script.jsonl"
    texts = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    path.write_text("".join(json.dumps({"text": text, "model": "claude-haiku-4-5"}) + "\n" for text in texts))
    return str(path)


def test_a_run_without_a_model_reads_finished_sessions_and_says_what_it_left(filled: Pal) -> None:
    result = filled("memory", "run", "--no-model")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "sessions to read: 1 (not: 1 fresh, 1 too old)",
        "no model is asked: --no-model was given",
        "read 1 session: summaries 1, 0 notes, 0 refused",
        "consolidated 1 of 1 folders of notes, 0 changes",
        "read 3 sessions into the index of recall, 9 turns",
    ]
    assert [row.session for row in places_of(filled).rows.all()] == ["finished"]


def test_with_now_all_sessions_are_read_once(filled: Pal) -> None:
    first = filled.json("memory", "run", "--now", "--no-model")
    assert [each["session"] for each in first["report"]["sessions"]] == ["fresh", "finished", "old"]
    assert {each["status"] for each in first["report"]["scopes"]} == {"done"}
    second = filled.json("memory", "run", "--now", "--no-model")
    assert (second["report"]["sessions"], second["plan"]["skipped"]) == ([], {"up_to_date": 3})
    assert {each["status"] for each in second["report"]["scopes"]} == {"unchanged"}


def test_a_dry_run_shows_sessions_and_cost_and_writes_nothing(filled: Pal) -> None:
    found = filled.json("memory", "run", "--now", "--dry-run", *MODEL)
    assert (found["dry_run"], found["model"], len(found["plan"]["sessions"])) == (True, "claude-haiku-4-5", 3)
    assert found["estimate"]["calls"] == 4
    assert 0 < found["estimate"]["usd"] < 1
    assert found["spent"] == {"calls": 0, "read": 0, "written": 0, "usd": 0.0}
    assert not (filled.home.folder / "memory").exists()


def test_a_run_with_a_model_prints_the_cost_before_and_after(filled: Pal, tmp_path: Path) -> None:
    result = filled("memory", "run", *MODEL, PAL_SCRIPT=script(tmp_path, REPLY, SUMMARY))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].startswith("estimate with claude-haiku-4-5: up to 2 requests, ")
    assert lines[1].endswith("; budget $1.00")
    assert lines[-1].startswith("cost $0.0")
    assert ": 2 requests, " in lines[-1]
    places = places_of(filled)
    scope = places.scope_of(CWD)
    assert (places.scope_folder(scope) / "SUMMARY.md").read_text() == SUMMARY
    (text,) = places.rollouts(scope).read().values()
    assert "made_by: model" in text


def test_a_budget_in_dollars_is_refused_for_a_model_of_unknown_price(filled: Pal, tmp_path: Path) -> None:
    result = filled("memory", "run", "--now", "--model", "openai-compatible/mine", PAL_SCRIPT=script(tmp_path))
    why = "the limit of $1 cannot be kept, because no price is known for openai-compatible/mine"
    assert (result.exit_code, why in result.stderr, "--no-model" in result.stderr) == (2, True, True)
    assert places_of(filled).rows.all() == ()


def test_a_budget_that_does_not_suffice_asks_nothing_and_is_a_finding(filled: Pal, tmp_path: Path) -> None:
    result = filled("memory", "run", "--now", "--usd", "0.000001", *MODEL, PAL_SCRIPT=script(tmp_path))
    assert result.exit_code == 1
    assert "the budget of $1e-06 for a run does not allow another call" in result.stderr
    assert places_of(filled).rows.all() == ()


@pytest.mark.states("ME-20")
def test_with_jobs_off_or_without_a_dollar_no_model_is_asked(filled: Pal, tmp_path: Path) -> None:
    result = filled("memory", "run", PAL_SCRIPT=script(tmp_path))
    assert "no model is asked: memory.jobs is off; --model NAME asks one" in result.stdout
    (filled.home.folder / "config.toml").write_text('[memory]\njobs = "auto"\n')
    result = filled("memory", "run", "--usd", "0", PAL_SCRIPT=script(tmp_path))
    assert "no model is asked: the budget is $0" in result.stdout


def test_a_failed_answer_is_a_finding_and_stands_in_the_status(filled: Pal, tmp_path: Path) -> None:
    result = filled("memory", "run", *MODEL, PAL_SCRIPT=script(tmp_path, {**REPLY, "raw_memory": "x"}))
    assert result.exit_code == 1
    assert "pal: finished: the reply about a session does not have the required form" in result.stderr
    found = filled.json("memory", "status")
    assert "raw_memory" in found["last_error"]
    assert found["skipped"] == {"fresh": 1, "retry_later": 1, "too_old": 1}
    (job,) = [each for each in found["jobs"] if each["key"] == "finished"]
    assert (job["status"], job["retries_left"]) == ("failed", 2)
    assert found["next_at"] == job["next_at"] > iso_time(NOW)
    assert found["used"]["read"] > 0


def test_the_status_is_printed_for_people(filled: Pal) -> None:
    filled("memory", "run", "--no-model")
    lines = filled("memory", "status", "--all").stdout.splitlines()
    assert lines[:3] == [
        "background runs: off",
        "sessions to read now: 0 (not: 1 fresh, 1 too old, 1 up to date)",
        "summaries of sessions: 1; folders of notes that changed: 0",
    ]
    assert lines[3].endswith(": 0 of 200k read, 0 of 20k written")
    assert [line.split()[:3] for line in lines[-2:]] == [
        ["scope", places_of(filled).scope_of(CWD), "done"],
        ["session", "finished", "done"],
    ]


def test_the_status_of_an_empty_home_writes_nothing(pal: Pal) -> None:
    found = pal.json("memory", "status")
    assert (found["jobs"], found["backlog"], found["changed"], found["last_error"], found["next_at"]) == ([], 0, [], "", None)
    assert not (pal.home.folder / "memory").exists()


def test_the_status_names_quarantine_files_that_are_no_notes_and_sessions_without_an_index(filled: Pal) -> None:
    folder = filled.home.folder / "memory" / "user"
    note = filled("memory", "add", "likes tea", "--kind", "user")
    assert note.exit_code == 0
    (folder / "notes" / "user_broken.md").write_text("no front matter")
    (text,) = [path.read_text() for path in (folder / "notes").glob("user_likes*.md")]
    (folder / "quarantine" / "user_held.md").write_text(text.replace("user_likes_tea", "user_held").replace("stated", "quarantined"))
    (scope,) = filled.json("memory", "status")["scopes"]
    assert scope == {"scope": "user", "notes": 1, "quarantine": 1, "unreadable": 1, "history_problem": ""}
    assert filled.json("memory", "status")["unindexed"] == 3
    lines = filled("memory", "status").stdout.splitlines()
    assert lines[3:6] == [
        "sessions that recall has not indexed yet: 3",
        "user: 1 note in quarantine; `pal memory list --quarantine`",
        "user: 1 file that cannot be read as notes; `pal memory list` names them",
    ]
    filled("memory", "run", "--no-model")
    assert filled.json("memory", "status")["unindexed"] == 0


def test_ctrl_c_leaves_no_claim_behind_and_ends_with_130(pal: Pal) -> None:
    for number in range(30):
        add_session(pal.home.folder, f"s{number}", at=NOW - 7 * HOUR)
    command = [sys.executable, "-m", "pal.cli", "memory", "run", "--now", "--no-model"]
    process = subprocess.Popen(
        command, env={**os.environ, "PAL_HOME": str(pal.home.folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    places = places_of(pal)
    while not places.rows.all():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (130, 0)
    assert "running" not in {row.status for row in places.claims.rows()}
    assert pal("memory", "run", "--now", "--no-model").exit_code == 0
    assert len(places.rows.all()) == 30
