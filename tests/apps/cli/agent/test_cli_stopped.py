"""`pal -p` that is stopped or refused: no process and no folder is left behind, and the session goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAL = [sys.executable, "-m", "pal.cli"]
# It ignores the request to end, and holds a lock for as long as it lives.
STUBBORN = """#!/bin/bash
trap "" TERM
exec 9> held
flock 9
echo ready > ready
cat < never
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (tmp_path / "temp").mkdir()
    return place


def settings(project: Path, *replies: object) -> dict[str, str]:
    folder = project.parent
    (folder / "script.jsonl").write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
    places = {"PAL_HOME": str(folder / "home"), "PAL_SCRIPT": str(folder / "script.jsonl"), "TMPDIR": str(folder / "temp")}
    return {**os.environ, **places, "PAL_RETRIES": "0", "PAL_SANDBOX": "off"}


@pytest.mark.parametrize("name", [".palimpsest/config.toml", ".tasks"])
def test_a_project_that_is_refused_leaves_no_temporary_folder(project: Path, name: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).symlink_to(project.parent)
    done = subprocess.run(
        [*PAL, "-p", "x"], cwd=project, env=settings(project, "y"), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode != 0
    assert list((project.parent / "temp").iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_is_stopped_leaves_no_process_and_goes_on_later(project: Path, number: signal.Signals, code: int, times: int) -> None:
    for name in ("ready", "never"):
        os.mkfifo(project / name)
    (project / "stubborn").write_text(STUBBORN)
    (project / "stubborn").chmod(0o755)
    call = {"calls": [{"tool": "bash", "args": {"command": "./stubborn"}}]}
    words = [*PAL, "-p", "go", "--allow", "bash(./stubborn)"]
    with subprocess.Popen(words, cwd=project, env=settings(project, call), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert (project / "ready").read_text() == "ready\n"
        process.send_signal(number)
        if times > 1:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(number)
        assert process.wait(30) == code
    subprocess.run(["flock", "-w", "120", project / "held", "true"], check=True)
    assert list((project.parent / "temp").iterdir()) == []

    done = subprocess.run(
        [*PAL, "-c", "-p", "and now?"],
        cwd=project,
        env=settings(project, "fine"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"fine\n")
