"""The prompts of the Codex profiles: each exists and carries the parts that its specification asks for."""

import re

import pytest
from worlds import MemoryWorld

from palimpsest.peers.codex import CODEX_FAMILIES
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.sources.environment import permissions
from palimpsest.sources.prompts import mode_text, prompt_text, switch_notice, text_file
from palimpsest.sources.source import NetworkPolicy


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("family", [name for _, name in CODEX_FAMILIES])
@pytest.mark.states("CX-70")
def test_the_base_instructions_of_each_family_have_their_parts_and_a_slot_for_the_personality(family: str) -> None:
    text = text_file(f"codex/{family}")
    assert text.startswith("You are a coding agent")
    assert headings(text) == ["Tools", "Changing code", "Planning", "Checking", "Answers", "When to stop and ask"]
    assert re.findall(r"\{\{.*?\}\}", text) == ["{{personality}}"]


@pytest.mark.states("CX-70")
def test_the_permissions_state_sandbox_network_folders_and_approvals() -> None:
    source = permissions(tag=True)
    world = MemoryWorld().with_state(
        sandbox="workspace-write", approval="on-request", network=NetworkPolicy(enabled=False), writable=("/repo", "/shared")
    )
    fields = source.observe(world)
    assert fields is not None
    lines = source.baseline(fields).splitlines()
    assert (lines[0], lines[-1]) == ("<permissions instructions>", "</permissions instructions>")
    assert lines[1].startswith("Sandbox `workspace-write`: ")
    assert lines[2:6] == ["Network access of commands is disabled.", "Writable folders:", "- /repo", "- /shared"]
    assert lines[6].startswith("Approvals `on-request`: ")


@pytest.mark.parametrize("mode", ["default", "plan", "execute", "pair_programming"])
@pytest.mark.states("CX-70")
def test_each_collaboration_mode_has_a_text_and_only_plan_mode_ends_with_a_proposed_plan(mode: str) -> None:
    text = mode_text(mode)
    assert text
    assert ("<proposed_plan>" in text) == (mode == "plan")
    assert ("no edits" in text) == (mode == "plan")


@pytest.mark.states("CX-70")
def test_the_model_switch_names_the_model_and_holds_its_whole_instructions() -> None:
    notice = switch_notice("gpt-5.5", "ALL OF\nTHEM")
    assert notice.startswith("<model_switch>\n")
    assert "the model gpt-5.5" in notice
    assert notice.endswith("\n\nALL OF\nTHEM\n</model_switch>")


@pytest.mark.states("CX-70")
def test_the_skills_text_lists_the_skills_and_says_how_to_use_them() -> None:
    assert headings(text_file("skills")) == ["Skills", "Available skills", "How to use skills"]
    text = prompt_text("skills", skills="- deploy: how to deploy")
    assert "### Available skills\n- deploy: how to deploy\n" in text
    rules = text.rpartition("### How to use skills\n")[2].splitlines()
    assert [rule.partition(":")[0] for rule in rules if ":" in rule] == [
        "- When",
        "- Missing or unreadable",
        "- Several skills",
        "- Keep the context small",
    ]
    assert "`SKILL.md` first" in text


@pytest.mark.states("CX-70")
def test_the_compaction_prompt_has_its_headings_and_a_line_for_the_focus() -> None:
    text = prompt("handoff", focus="FOCUS on the lexer")
    assert headings(text) == [
        "Current request",
        "Tasks",
        "Decisions",
        "Limits and wishes",
        "Facts that cannot be found again",
        "Next steps",
    ]
    assert text.endswith("\nFOCUS on the lexer")
    assert "whether the user or the assistant decided it" in text
    assert "word for word" in text


@pytest.mark.states("CX-70")
def test_the_summary_prefix_begins_with_a_versioned_marker() -> None:
    marker, _, text = prompt("handoff_prefix").partition("\n")
    assert re.fullmatch(r"\[hand-over v\d+\]", marker)
    assert "Build on its work, do not repeat it" in text


@pytest.mark.parametrize("name", ["codex", "codex-0.166"])
@pytest.mark.states("CX-70")
def test_the_notice_of_an_aborted_turn_says_that_it_was_on_purpose_and_what_to_check(name: str) -> None:
    first, text, last = profile(name).interrupted_notice.splitlines()
    assert (first, last) == ("<turn_aborted>", "</turn_aborted>")
    assert text.startswith("The user interrupted the previous turn on purpose.")
    assert "check the current state" in text
