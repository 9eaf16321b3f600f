"""Claude Code itself, from npm, against a scripted model on the loopback: `./run pytest -m real tests/real`."""

import json
from pathlib import Path
from typing import Any

import pytest
from desks import ClaudeDesk

from palimpsest.core.events import ModelReplied, ToolReturned, UserSaid, UserTyped, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.exchange.claude.writer import claude_session
from palimpsest.stores.home import FolderHome

pytestmark = pytest.mark.real
RECALL = "mcp__plugin_pal_pal__recall"


@pytest.fixture
def desk(claude_desk: ClaudeDesk) -> ClaudeDesk:
    claude_desk.pal("plug", "claude", "--yes")
    return claude_desk


def contexts(request: dict[str, Any]) -> list[str]:
    """The blocks that hooks added to a request."""
    blocks = (block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"])
    return [block["text"] for block in blocks if block["type"] == "text" and " hook additional context: " in block["text"]]


@pytest.mark.states("MI-11")
def test_after_a_real_compaction_the_next_request_holds_the_evidence(desk: ClaudeDesk) -> None:
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


@pytest.mark.states("MI-11")
def test_notes_are_in_the_first_request_and_recall_over_mcp_answers(desk: ClaudeDesk) -> None:
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
    # Claude Code does not wait for servers: on a busy machine the first request leaves before ours has answered.
    assert "Memory of this user's coding sessions" in json.dumps(requests)
    assert "The release branch is called stable." in json.dumps(result)


@pytest.mark.states("MI-13")
def test_after_unplugging_nothing_of_pal_is_in_a_request(desk: ClaudeDesk) -> None:
    desk.pal("memory", "add", "The release branch is called stable.")
    desk.pal("unplug", "claude", "--yes")
    first = desk.claude("What is the release branch called?")[0]

    assert contexts(first) == []
    assert "pal_pal" not in json.dumps(first)


def test_an_exported_session_goes_on_with_what_its_view_shows(claude_desk: ClaudeDesk) -> None:
    desk = claude_desk
    home = FolderHome(Path(desk.variables["PAL_HOME"]))
    with home.new(cwd=str(desk.project), model="claude-sonnet-4-6") as log:
        log.append(ModelReplied((Text("I am ready.", "assistant"),)))
        log.append(UserSaid((Text("Read a.txt."),)))
        log.append(ModelReplied((ToolCall("toolu_1", "Read", '{"file_path":"a.txt"}'),)))
        result = log.append(ToolReturned(ToolResult("toolu_1", (Text("THE-WHOLE-FILE"),))))
        log.append(ModelReplied((Text("Done.", "assistant"),)))
        log.append(ViewEdited((Mask((f"{result.seq}.0",), "[cleared; recall it]"),), "pal"))
        log.append(UserTyped((Text("And b.txt, when you are done."),)))
        session = claude_session(log)
    desk.pal("export", log.session, "--to", "claude", "--install")
    [request] = [request for request in desk.claude("--resume", session, "Go on.") if request.get("tools")]
    sent = json.dumps(request["messages"])

    assert request["messages"][0]["role"] == "user"
    assert "I am ready." in sent
    assert "[cleared; recall it]" in sent
    assert "THE-WHOLE-FILE" not in sent
    assert "And b.txt, when you are done." in sent
