"""Codex itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from npm_programs import npm_program, run_pal, user_variables
from scripted_api import ScriptedApi, serving

VERSION = "0.166.0"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, and Codex comes from there"),
]
CONFIGURATION = """model = "gpt-5.5"
model_provider = "scripted"
model_auto_compact_token_limit = 5000

[model_providers.scripted] # on the loopback
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, installed into a temporary folder; `CODEX` names one that is there already."""
    return npm_program(tmp_path_factory.mktemp("npm"), f"@openai/codex@{VERSION}", "codex", "CODEX")


class Desk:
    """A user of Codex, with pal plugged in and a scripted model."""

    def __init__(self, program: Path, folder: Path, api: ScriptedApi) -> None:
        self.program, self.api = program, api
        self.project, self.config = folder / "project", folder / "home" / ".codex" / "config.toml"
        self.project.mkdir()
        self.config.parent.mkdir(parents=True)
        self.config.write_text(CONFIGURATION.format(url=api.url))
        self.variables = {**user_variables(folder / "home", folder / "pal"), "SCRIPTED_KEY": "scripted"}

    def pal(self, *words: str) -> str:
        return run_pal(self.project, self.variables, *words)

    def codex(self, *words: str, trust: bool = True) -> list[dict[str, Any]]:
        """Run a prompt to its end, and return the requests that the model got; with `trust` as if the user had accepted the hooks."""
        before = len(self.api.requests)
        options = [
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            *["--dangerously-bypass-hook-trust"][: int(trust)],
        ]
        command = [str(self.program), "exec", *options, *words]
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return self.api.requests[before:]


@pytest.fixture
def desk(program: Path) -> Iterator[Desk]:
    # Codex refuses some of its work in a home below the folder for temporary files, and an import may still run when it has ended.
    with TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder, serving() as api:
        made = Desk(program, Path(folder), api)
        made.pal("plug", "codex", "--yes")
        yield made


def test_mi_11_after_a_real_compaction_the_next_request_holds_the_evidence_once_the_hooks_are_trusted(desk: Desk) -> None:
    desk.codex("Keep the flag --fast, whatever happens.")
    desk.api.input_tokens = 9_000
    desk.codex("resume", "--last", "Second prompt.")
    desk.api.input_tokens = 1_000
    summary, after = desk.codex("resume", "--last", "Third prompt.")
    [evidence] = [item for item in after["input"] if "[Added by pal after this compaction" in json.dumps(item)]

    assert "[Added by pal" not in json.dumps(summary)
    assert evidence["role"] == "developer"
    assert ": Keep the flag --fast, whatever happens." in json.dumps(evidence)
    assert ": Second prompt." in json.dumps(evidence)


def test_mi_11_notes_are_in_the_first_request_and_recall_over_mcp_answers(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    # The first call waits for the server, which a checkout without compiled modules starts slowly.
    desk.api.calls = [("list_mcp_resources", {"server": "pal"}), ("mcp__pal.recall", {"query": "what is the release branch called?"})]
    first, _, last = desk.codex("What is the release branch called?")
    resources, output = (item["output"] for item in last["input"] if item["type"] == "function_call_output")

    assert "[project_the_release_branch_is_called_stable]" in json.dumps(first["input"])
    assert "pal://note/project_the_release_branch_is_called_stable" in json.dumps(resources)
    assert "The release branch is called stable." in json.dumps(output)


def test_without_trust_codex_skips_the_hooks_and_status_says_so(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    [request] = desk.codex("Hello.", trust=False)

    assert "release_branch" not in json.dumps(request["input"])
    with pytest.raises(subprocess.CalledProcessError) as failed:
        desk.pal("plug", "status")
    assert "codex     plugged in: Codex skips the hooks until you trust them" in failed.value.stdout
