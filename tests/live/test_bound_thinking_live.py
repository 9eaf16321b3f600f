"""`pal -p` as a process, in a small window, with a model that binds thinking to all before it: no request is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from left_out import needless

from palimpsest.testing.strict.answers import ScriptedFailure, StrictRequest
from palimpsest.testing.strict.provider import StrictAnswer, StrictProvider, calls, says, thinks

READS = 5
REFUSED = ScriptedFailure(400, "invalid_request_error", "messages.1.content.0: The block was not created in this conversation.")


class Reader:
    """The strict double as a model that reads files, five in each turn, and then says so; other requests get a text."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.double = StrictProvider(self.answer, thinks=False)
        self.project = folder / "project"
        self.project.mkdir()
        for number in range(40):
            (self.project / f"part_{number}.py").write_text(f"value_{number} = {number}\n" * 150)
        self.home = folder
        self.environment = environment
        self.failing: list[ScriptedFailure] = []
        self.read = 0

    def answer(self, request: StrictRequest) -> StrictAnswer:
        """The next reply of the model."""
        if not request.body.get("tools"):
            return "A title"
        if self.failing:
            return self.failing.pop()
        self.read += 1
        if self.read % (READS + 1) == 0:
            return [thinks(f"all read {self.read}"), says(f"read {self.read}")]
        return [thinks(f"now part {self.read}"), says("I look."), thinks("closer"), calls("read", path=f"part_{self.read}.py")]

    def run(self, *words: str) -> Any:
        """One run of `pal -p --json`, and what it printed."""
        own = {"HOME": str(self.home), "PAL_HOME": str(self.home / "home"), "PAL_SANDBOX": "off", "PAL_RETRIES": "0", "PAL_OFFLINE": ""}
        asked = {"ANTHROPIC_BASE_URL": self.double.url, "ANTHROPIC_API_KEY": "key"}
        done = subprocess.run(
            [sys.executable, "-m", "pal.cli", *words, "--json"],
            check=False,
            cwd=self.project,
            env={**os.environ, **own, **asked, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)


@pytest.mark.states("PV-11", "PV-12")
def test_a_session_goes_on_over_edits_runs_and_models_without_a_refused_request(tmp_path: Path) -> None:
    reader = Reader(tmp_path, PAL_COMPACT_AT="14000")
    with reader.double:
        first = reader.run("-p", "read the first parts", "--model", "claude-opus-5-5")
        runs = [
            first,
            reader.run("-c", "-p", "read on"),
            reader.run("--resume", first["session"], "-p", "and on"),
            reader.run("-c", "-p", "with another", "--model", "claude-sonnet-5-5"),
            reader.run("-c", "-p", "with the first again", "--model", "claude-opus-5-5"),
            reader.run("--fork", "last", "-p", "in a fork"),
        ]
    counts = reader.double.counts
    assert dict(counts.refused) == {}
    assert [run["stop"] for run in runs] == ["done"] * 6
    assert sum(run["edits"] for run in runs) > 3
    assert counts.thinking_kept > counts.requests
    assert counts.thinking_dropped == 0
    assert needless(reader.double) == []


@pytest.mark.states("PV-15")
def test_a_refusal_that_nobody_expected_costs_one_request_and_is_told(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with reader.double:
        reader.run("-p", "read", "--model", "claude-opus-5-5")
        reader.failing = [REFUSED]
        told = reader.run("-c", "-p", "go on")
        after = reader.run("-c", "-p", "and on")
    assert (told["edits"], told["recovered"]) == (1, 1)
    assert told["notices"] == ["the provider refused thinking at messages.1.content.0, and answered without it"]
    assert (after["edits"], after["recovered"], after["notices"]) == (0, 0, [])
    refused = [record.status for record in reader.double.records].index(400)
    again = reader.double.records[refused + 1]
    assert (again.status, again.thinking_sent) == (200, 0)
    assert dict(reader.double.counts.refused) == {"scripted": 1}
