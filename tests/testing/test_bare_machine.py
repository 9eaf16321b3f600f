"""A run of the tests looks at nothing that only some machines have, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
INNER = """
import os
import subprocess
from pathlib import Path

import pytest


def test_that_the_machine_looks_bare():
    assert [name for name in os.environ if name.startswith(("GIT_", "PAL_"))] == {variables}
    assert list(Path.home().iterdir()) == []
    asked = ["git", "config", "--get-regexp", "user|gpgsign"]
    assert subprocess.run(asked, cwd="/", capture_output=True).stdout == b""


@pytest.mark.filterwarnings("ignore")
def test_that_a_process_and_a_file_are_left():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    (Path.home() / "trace").write_text("")
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the processes are found by /proc")
def test_a_run_sees_no_settings_of_its_user_and_fails_if_it_leaves_a_process_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    passed = ["PAL_TEST_PATIENCE", "PAL_TEST_RUN", "PAL_TEST_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"]
    (tmp_path / "test_inner.py").write_text(INNER.replace("{variables}", repr(passed)))
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n[commit]\n\tgpgsign = true\n")
    users = {"HOME": str(home), "PAL_MODEL": "gpt-5.5", "GIT_DIR": str(tmp_path), "ANTHROPIC_API_KEY": "none", "PAL_TEST_PATIENCE": "0"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **users},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout
    _, _, summary = done.stdout.partition("left behind, so the run has failed")
    assert summary, done.stdout
    _, process, trace, _ = filter(None, summary.splitlines())
    assert process.startswith("test_inner.py::test_that_a_process_and_a_file_are_left (call): process ")
    assert (process.endswith(": sleep 600"), trace) == (True, "a file in the home: trace")
    assert "2 passed" in summary, done.stdout
