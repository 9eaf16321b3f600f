"""`pal -p` in one session of many processes: without an edit each request begins with the one before it, whatever else changes."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from live_agent import MODEL, LiveAgent, using
from sent_lists import what_moved
from streaming_model import Thought

PROFILES = ("palimpsest", "claude-code-2.1.325", "codex-0.166", "opencode-1.18")
# The model of the live agent as one whose thinking is bound to what was sent before it.
BOUND = f'[cards.{MODEL}]\nlike = "claude-sonnet-5-5"\n'


def a_day(agent: LiveAgent) -> list[Any]:
    """The requests of a day: plan mode and back, a todo list that is forgotten, changed rules of the project, and eight processes."""
    (agent.project / "a.txt").write_text("one\n")
    todo: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}]}
    looks = [(Thought(f"look {number}"), *using("bash", command=f"echo {number}")) for number in range(12)]
    days = [*agent.turn("look", using("todo", **todo), *looks, ("seen",))]
    for mode in ("plan", "plan", "auto", "edits", "auto"):
        days += agent.turn(f"in mode {mode}", (Thought("so"), *using("read", path="a.txt")), ("done",), mode=mode)
    (agent.project / "AGENTS.md").write_text("Always write tests.\n")
    days += agent.turn("rules changed", ("I see",))
    (agent.project / "AGENTS.md").unlink()
    days += agent.turn("and are gone", ("I see",))
    # Requests beside the conversation, such as those for a title, have no tools.
    return [request for request in days if request.get("tools")]


@pytest.mark.states("PV-13")
@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_moves_in_a_live_day(tmp_path: Path, profile: str) -> None:
    agent = LiveAgent(tmp_path, profile)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cards.toml").write_text(BOUND)
    sent = [json.dumps(request).encode() for request in a_day(agent)]
    assert len(sent) > 20
    assert [moved for older, newer in pairwise(sent) if (moved := what_moved(older, newer))] == []
