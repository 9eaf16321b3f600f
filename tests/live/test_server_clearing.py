"""Claude Code's cached microcompact: the provider clears old results itself, by its documented context editing."""

import json
from pathlib import Path
from typing import Any

import pytest
from live_agent import LiveAgent, using
from streaming_model import Ended, Part, Spent

BETA = "context-management-2025-06-27"
SIZES = (14_000, *(18_000,) * 9, *(20_000,) * 4)


def clearing(kept: int, *excluded: str) -> dict[str, Any]:
    """The field of a request that lets the newest `kept` tool uses stay, and all of some tools."""
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": kept},
        "keep": {"type": "tool_uses", "value": kept},
    }
    return {"edits": [edit | ({"exclude_tools": list(excluded)} if excluded else {})]}


def printing(number: int, size: int, tokens: int) -> tuple[Part, ...]:
    """A reply that runs a command with a long output."""
    return using("bash", tokens=tokens, command=f"printf '%0{size}d' {number}")


@pytest.mark.states("SG-02")
def test_the_server_is_asked_to_clear_what_the_token_kind_would_and_again_in_every_later_request(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code@cached_microcompact=on")
    todo = using("todo", todos=[{"content": "measure", "status": "pending"}])
    calls = [printing(number, size, 137_000 if number == 13 else 20_000) for number, size in enumerate(SIZES)]
    asked = agent.turn("run them all", todo, *calls, ("All ran.", Spent(137_000)))
    assert [request.get("context_management") for request in asked] == [None] * 15 + [clearing(8, "todo")]
    assert agent.betas == [None] * 15 + [BETA]
    # The messages themselves only grow.
    assert asked[15]["messages"][: len(asked[14]["messages"])] == asked[14]["messages"]
    later = agent.turn("once more", printing(14, 100, 120_000), ("And done.", Spent(121_000)))
    assert [request["context_management"] for request in later] == [clearing(8, "todo"), clearing(9, "todo")]
    assert agent.betas == [BETA, BETA]
    assert later[0]["messages"][: len(asked[15]["messages"])] == asked[15]["messages"]


@pytest.mark.states("SG-02")
def test_without_the_setting_results_are_cleared_here(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    calls = [printing(number, size, 137_000 if number == 13 else 20_000) for number, size in enumerate(SIZES)]
    asked = agent.turn("run them all", *calls, ("All ran.", Spent(137_000)))
    assert (["context_management" in request for request in asked], agent.betas) == ([False] * 15, [None] * 15)


@pytest.mark.states("PV-50")
def test_what_the_server_cleared_is_in_the_record_and_the_audit(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    edits = [
        {"type": "clear_thinking_20251015", "cleared_input_tokens": 300, "cleared_thinking_turns": 2},
        {"type": "clear_tool_uses_20250919", "cleared_input_tokens": 12_000, "cleared_tool_uses": 5},
        {"type": "of_next_year"},
    ]
    reported = Ended("end_turn", more={"context_management": {"applied_edits": edits}})
    agent.turn("go", ("Done.", reported))
    agent.turn("again", ("Done.", reported))
    events = json.loads(agent.pal("show", "last", "--json"))["events"]
    [first, _] = [event for event in events if event["body"]["type"] == "model_replied"]
    assert first["body"]["applied_edits"] == [
        {"type": "clear_thinking_20251015", "input_tokens": 300, "thinking_turns": 2},
        {"type": "clear_tool_uses_20250919", "input_tokens": 12_000, "tool_uses": 5},
        {"type": "of_next_year"},
    ]
    lines = [
        "the provider cleared 2 thinking turns, 300 tokens before the model read the request (clear_thinking_20251015)",
        "the provider cleared 5 tool uses, 12,000 tokens before the model read the request (clear_tool_uses_20250919)",
        "the provider cleared something before the model read the request (of_next_year)",
    ]
    # What it repeats with each reply is told once.
    assert agent.pal("audit", "last").splitlines() == [f"{first['seq']}: {line}" for line in lines]
    assert [line for line in agent.pal("show", "last").splitlines() if line.startswith("the provider")] == lines
