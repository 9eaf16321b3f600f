"""OpenCode itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from npm_programs import npm_program, run_pal, user_variables
from scripted_api import ScriptedApi, serving

VERSION = "1.18.33"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, and OpenCode comes from there"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, installed into a temporary folder; `OPENCODE` names one that is there already."""
    return npm_program(tmp_path_factory.mktemp("npm"), f"opencode-ai@{VERSION}", "opencode", "OPENCODE")


class Desk:
    """A user of OpenCode, with pal plugged in and a scripted model."""

    def __init__(self, folder: Path, api: ScriptedApi) -> None:
        self.api, self.project = api, folder / "project"
        config = folder / "home" / ".config" / "opencode" / "opencode.jsonc"
        self.project.mkdir()
        config.parent.mkdir(parents=True)
        provider = {"anthropic": {"options": {"baseURL": f"{api.url}/v1", "apiKey": "scripted"}}}
        config.write_text("// mine\n" + json.dumps({"model": "anthropic/claude-sonnet-4-5", "provider": provider}))
        switches = dict.fromkeys(("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"), "1")
        self.variables = {**user_variables(folder / "home", folder / "pal"), **switches}

    def pal(self, *words: str) -> str:
        return run_pal(self.project, self.variables, *words)


@pytest.fixture
def desk() -> Iterator[Desk]:
    # An import may still run when OpenCode has ended.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, serving() as api:
        made = Desk(Path(folder), api)
        made.pal("plug", "opencode", "--yes")
        yield made


def test_recall_over_mcp_answers_and_an_idle_session_is_imported(program: Path, desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.api.calls = [("pal_recall", {"query": "what is the release branch called?"})]
    command = [str(program), "run", "What is the release branch called?"]
    done = subprocess.run(
        command, cwd=desk.project, env=desk.variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=180
    )
    deadline = time.monotonic() + 60
    while not (sessions := json.loads(desk.pal("sessions", "--json"))) and time.monotonic() < deadline:
        pass

    assert done.returncode == 0, done.stderr
    assert "The release branch is called stable." in json.dumps(desk.api.requests[-1]["messages"][-1])
    assert [session["origin"] for session in sessions] == ["opencode"]
