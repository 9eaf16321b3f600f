"""Codex itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
import subprocess

import pytest
from desks import CodexDesk

pytestmark = pytest.mark.real


@pytest.fixture
def desk(codex_desk: CodexDesk) -> CodexDesk:
    codex_desk.pal("plug", "codex", "--yes")
    return codex_desk


@pytest.mark.states("MI-11")
def test_after_a_real_compaction_the_next_request_holds_the_evidence_once_the_hooks_are_trusted(desk: CodexDesk) -> None:
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


@pytest.mark.states("MI-11")
def test_notes_are_in_the_first_request_and_recall_over_mcp_answers(desk: CodexDesk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    # The first call waits for the server, which a checkout without compiled modules starts slowly.
    desk.api.calls = [("list_mcp_resources", {"server": "pal"}), ("mcp__pal.recall", {"query": "what is the release branch called?"})]
    first, _, last = desk.codex("What is the release branch called?")
    resources, output = (item["output"] for item in last["input"] if item["type"] == "function_call_output")

    assert "[project_the_release_branch_is_called_stable]" in json.dumps(first["input"])
    assert "pal://note/project_the_release_branch_is_called_stable" in json.dumps(resources)
    assert "The release branch is called stable." in json.dumps(output)


def test_without_trust_codex_skips_the_hooks_and_status_says_so(desk: CodexDesk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    [request] = desk.codex("Hello.", trust=False)

    assert "release_branch" not in json.dumps(request["input"])
    with pytest.raises(subprocess.CalledProcessError) as failed:
        desk.pal("plug", "status")
    assert "codex     plugged in: Codex skips the hooks until you trust them" in failed.value.stdout
