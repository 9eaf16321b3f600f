"""Skills in `pal -p`: under every profile, what the context lists is what the tool loads, in the folders of its system."""

import re
from pathlib import Path
from typing import Any

import pytest
from live_agent import LiveAgent, results, using

OWN = {".config/palimpsest/skills": "ours", ".agents/skills": "agents", ".claude/skills": "claude", ".codex/skills": "codex"}
OWN |= {".codex/skills/.system": "system", ".config/opencode/skill": "opencode"}
PROJECT = {".agents/skills": "project-agents", ".claude/skills": "project-claude", ".codex/skills": "project-codex"}
OURS = {"ours", "agents", "claude", "project-agents", "project-claude"}
LISTED = {
    "palimpsest": OURS,
    "lossless": OURS,
    "provider": OURS,
    "classroom": OURS,
    "claude-code": {"claude", "project-claude"},
    "claude-code-2.1.325": {"claude", "project-claude"},
    "codex": {"agents", "codex", "system", "project-agents", "project-codex"},
    "codex-0.166": {"agents", "codex", "system", "project-agents", "project-codex"},
    "opencode": {"claude", "opencode", "project-claude"},
    "opencode-1.18": {"agents", "claude", "opencode", "project-agents", "project-claude"},
}


def agent_with_skills(folder: Path, profile: str) -> LiveAgent:
    agent = LiveAgent(folder, profile)
    (agent.project / ".git").mkdir()
    for top, places in ((folder, OWN), (agent.project, PROJECT)):
        for place, name in places.items():
            skill = top / place / name
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: For work of {name}.\n---\nBody of {name}.\n")
    return agent


def listed(request: Any) -> set[str]:
    """The skills that a request names with what they are for, wherever it does."""
    return set(re.findall(r"For work of ([a-z-]+)\.", str(request)))


@pytest.mark.states("SG-69")
@pytest.mark.parametrize("profile", [pytest.param(name, marks=() if name == "codex" else pytest.mark.long) for name in LISTED])
def test_every_skill_that_is_listed_can_be_loaded_and_every_other_one_is_unknown(tmp_path: Path, profile: str) -> None:
    agent = agent_with_skills(tmp_path, profile)
    names = sorted({*OWN.values(), *PROJECT.values()})
    requests = agent.turn("look", *[using("skill", name=name) for name in names], ("ok",))
    assert listed(requests[0]) == LISTED[profile]
    loaded = {name for name, text in zip(names, results(requests[-1]), strict=True) if text.endswith(f"\n\nBody of {name}.")}
    assert loaded == LISTED[profile]
    again = agent.turn("on", ("ok",))[0]
    assert listed(again) == LISTED[profile]
