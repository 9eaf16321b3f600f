"""Claude Code itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from npm_programs import npm_program, run_pal, user_variables
from scripted_api import ScriptedApi, serving

VERSION = "2.1.325"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, and Claude Code comes from there"),
]
RECALL = "mcp__plugin_pal_pal__recall"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, installed into a temporary folder; `CLAUDE_CODE` names one that is there already."""
    return npm_program(tmp_path_factory.mktemp("npm"), f"@anthropic-ai/claude-code@{VERSION}", "claude", "CLAUDE_CODE")


class Desk:
    """A user of Claude Code, with pal plugged in and a scripted model."""

    def __init__(self, program: Path, folder: Path, api: ScriptedApi) -> None:
        self.program, self.api = program, api
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir()
        self.home.mkdir()
        self.variables = {
            **user_variables(self.home, folder / "pal"),
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def pal(self, *words: str) -> str:
        return run_pal(self.project, self.variables, *words)

    def claude(self, *words: str) -> list[dict[str, Any]]:
        """Run a prompt to its end, and return the messages of the requests that the model got."""
        before = len(self.api.requests)
        command = [str(self.program), "-p", "--model", "claude-sonnet-4-6", "--permission-mode", "bypassPermissions", *words]
        done = subprocess.run(command, cwd=self.project, env=self.variables, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        return self.api.requests[before:]


@pytest.fixture
def desk(program: Path, tmp_path: Path) -> Iterator[Desk]:
    with serving() as api:
        made = Desk(program, tmp_path, api)
        made.pal("plug", "claude", "--yes")
        yield made


def contexts(request: dict[str, Any]) -> list[str]:
    """The blocks that hooks added to a request."""
    blocks = (block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"])
    return [block["text"] for block in blocks if block["type"] == "text" and " hook additional context: " in block["text"]]


def test_mi_11_after_a_real_compaction_the_next_request_holds_the_evidence(desk: Desk) -> None:
    (desk.project / "a.txt").write_text("hello\n")
    desk.api.calls = [("Bash", {"command": "cat a.txt && exit 3", "description": "Read"})]
    desk.claude("Keep the flag --fast, whatever happens.")
    asked = desk.claude("--continue", "/compact")
    first = desk.claude("--continue", "Go on.")[0]
    [evidence] = [text for text in contexts(first) if "[Added by pal after this compaction" in text]

    assert "what was decided and why" in json.dumps(asked[-1]["messages"][-1])
    assert "THE-SUMMARY" in json.dumps(first)
    assert ": Keep the flag --fast, whatever happens." in evidence
    assert "[3] cat a.txt && exit 3" in evidence


def test_mi_11_notes_are_in_the_first_request_and_recall_over_mcp_answers(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.api.calls = [
        ("ToolSearch", {"query": f"select:{RECALL}", "max_results": 3}),
        (RECALL, {"query": "what is the release branch called?"}),
    ]
    requests = desk.claude("What is the release branch called?")
    [result] = [
        block["content"]
        for block in requests[-1]["messages"][-1]["content"]
        if block["type"] == "tool_result" and "tool_reference" not in json.dumps(block)
    ]

    assert [text for text in contexts(requests[0]) if "SessionStart" in text and "[project_the_release_branch_is_called_stable]" in text]
    assert "Memory of this user's coding sessions" in json.dumps(requests[0])
    assert "The release branch is called stable." in json.dumps(result)


def test_mi_13_after_unplugging_nothing_of_pal_is_in_a_request(desk: Desk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.pal("unplug", "claude", "--yes")
    first = desk.claude("What is the release branch called?")[0]

    assert contexts(first) == []
    assert "pal_pal" not in json.dumps(first)
