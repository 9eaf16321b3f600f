"""What OpenCode states, statement by statement, in both variants."""

import pytest
from every_case import every_case
from workplace import work
from worlds import MemoryWorld, state, texts

from palimpsest.agent.session import Session
from palimpsest.core.events import ToolReturned, ViewEdited
from palimpsest.core.items import Mask, Text, ToolResult, text_of
from palimpsest.peers.opencode import OPENCODE_1_18_FAMILIES, OPENCODE_FAMILIES
from palimpsest.policies.named import profile
from palimpsest.sources.instructions import nested_instructions
from palimpsest.sources.prompts import family, prompt_text, text_file
from palimpsest.sources.source import GitFacts

MODELS = ("gpt-5.2", "gpt-4o", "gpt-5-codex", "o3-mini", "gemini-3", "claude-opus-4-6", "kimi-k2", "qwen3")
GIT = {"/repo/.git/HEAD": ""}
FULL = MemoryWorld(
    files={**GIT, "/repo/AGENTS.md": "be kind", "/repo/.claude/skills/s/SKILL.md": "---\nname: s\ndescription: d\n---\n"},
    repository=GitFacts("main"),
).with_state(mcp={"files": "Use paths."}, texts={"system": "Answer in rhyme."})


def opencode(name: str = "opencode", **settings: str) -> Session:
    return work(profile(name, settings))


def instructions(world: MemoryWorld, name: str = "opencode", **settings: str) -> list[str]:
    """The texts of the instruction files in their order."""
    stated = texts(state(opencode(name, **settings), world)).get("instructions", "")
    return [part.partition("\n")[2].rstrip() for part in stated.split("Instructions from: ")[1:]]


@pytest.mark.states("OC-30")
def test_the_head_has_its_parts_in_order_and_nothing_else_is_stated() -> None:
    documented, measured = opencode(), opencode("opencode-1.18")
    state(documented, FULL)
    state(measured, FULL)

    assert [item.source for item in documented.log.view.head] == ["base", "environment", "instructions", "system"]
    order = ["base", "environment", "instructions", "mcp", "skills", "system"]
    assert [item.source for item in measured.log.view.head] == order
    assert (documented.log.view.items, measured.log.view.items) == ((), ())
    assert (
        text_of(measured.log.view.head[3].content)
        == '<mcp_instructions>\n  <server name="files">\nUse paths.\n  </server>\n</mcp_instructions>'
    )


@pytest.mark.states("OC-30")
def test_the_prompt_of_an_agent_stands_in_place_of_the_family() -> None:
    session = opencode()
    state(session, MemoryWorld().with_state(texts={"base": "You review code."}))

    assert text_of(session.log.view.head[0].content) == "You review code."


@pytest.mark.states("OC-31")
def test_the_family_follows_the_name_of_the_model() -> None:
    documented = ["codex", "beast", "codex", "beast", "gemini", "anthropic", "plain", "plain"]
    measured = ["gpt", "beast", "codex", "beast", "gemini", "anthropic", "kimi", "default"]

    assert [family(model, OPENCODE_FAMILIES) for model in MODELS] == documented
    assert [family(model, OPENCODE_1_18_FAMILIES) for model in MODELS] == measured


@every_case("name", sorted({found for families in (OPENCODE_FAMILIES, OPENCODE_1_18_FAMILIES) for _, found in families}))
@pytest.mark.states("OC-31")
def test_every_family_has_a_prompt_with_its_parts(name: str) -> None:
    text = prompt_text(f"opencode/{name}")

    planned = {"## Planning"} if name not in {"plain", "gemini", "trinity", "default"} else set()
    wanted = {"## Tools", "## Changing code", "## Checking", "## Answers", "## When to stop and ask"} | planned
    assert {line for line in text.splitlines() if line.startswith("## ")} == wanted
    assert "{{" not in text


@pytest.mark.states("OC-32")
def test_the_environment_has_exactly_the_fields_of_its_variant() -> None:
    documented, measured = opencode(), opencode("opencode-1.18")
    state(documented, FULL.with_state(cwd="/repo/src"))
    state(measured, FULL.with_state(cwd="/repo/src"))

    lines = ["  Is directory a git repo: yes", "  Platform: linux", "  Today's date: 2026-11-16", "</env>"]
    assert text_of(documented.log.view.head[1].content).splitlines()[1:] == [
        "<env>",
        "  Working directory: /repo/src",
        *lines,
        "<files>",
        "</files>",
    ]
    assert text_of(measured.log.view.head[1].content).splitlines()[1:] == [
        "<env>",
        "  Working directory: /repo/src",
        "  Workspace root folder: /repo",
        *lines,
    ]


@pytest.mark.states("OC-33")
def test_only_the_first_name_with_a_match_counts_and_each_ancestor_once() -> None:
    both = MemoryWorld(files={**GIT, "/repo/AGENTS.md": "root", "/repo/a/CLAUDE.md": "claude"}).with_state(cwd="/repo/a")
    two = MemoryWorld(files={**GIT, "/repo/AGENTS.md": "root", "/repo/a/AGENTS.md": "leaf", "/AGENTS.md": "above"}).with_state(
        cwd="/repo/a"
    )

    assert instructions(both) == ["root"]
    assert instructions(two) == ["leaf", "root"]
    assert instructions(both, OPENCODE_DISABLE_PROJECT_CONFIG="1") == []
    claude = MemoryWorld(files={**GIT, "/repo/CLAUDE.md": "claude"})
    assert (instructions(claude), instructions(claude, OPENCODE_DISABLE_CLAUDE_CODE_PROMPT="true")) == (["claude"], [])


@pytest.mark.states("OC-34")
def test_only_the_first_own_file_counts_and_the_variants_differ_in_order() -> None:
    files = {
        **GIT,
        "/repo/AGENTS.md": "project",
        "/home/u/.config/opencode/AGENTS.md": "own",
        "/home/u/.claude/CLAUDE.md": "claude",
        "/custom/AGENTS.md": "custom",
    }
    without = {key: text for key, text in files.items() if "opencode" not in key}

    assert instructions(MemoryWorld(files=files)) == ["project", "own"]
    assert instructions(MemoryWorld(files=files), "opencode-1.18") == ["own", "project"]
    assert instructions(MemoryWorld(files=without)) == ["project", "claude"]
    only_custom = {key: text for key, text in without.items() if "CLAUDE" not in key}
    assert instructions(MemoryWorld(files=only_custom), OPENCODE_CONFIG_DIR="/custom") == ["project", "custom"]
    assert instructions(MemoryWorld(files=only_custom), "opencode-1.18") == ["project"]


@pytest.mark.states("OC-35")
def test_configured_entries_are_home_absolute_and_relative_patterns_and_pages() -> None:
    files = {
        **GIT,
        "/repo/AGENTS.md": "project",
        "/home/u/rules.md": "home",
        "/etc/rules/a.md": "first",
        "/etc/rules/b.md": "second",
        "/etc/rules/c.txt": "no",
        "/repo/docs/x.md": "root docs",
        "/repo/a/docs/x.md": "leaf docs",
    }
    world = MemoryWorld(files=files, pages={"https://rules.org/x": "page"}).with_state(cwd="/repo/a")
    entries = '["https://dead.org/y", "~/rules.md", "/etc/rules/*.md", "docs/*.md", "https://rules.org/x", "~/rules.md"]'

    assert instructions(world, instructions=entries) == ["project", "home", "first", "second", "leaf docs", "root docs", "page"]


def nested_world() -> MemoryWorld:
    files = {**GIT, "/repo/AGENTS.md": "root", "/repo/a/AGENTS.md": "of a", "/repo/a/b/CLAUDE.md": "of b", "/repo/a/b/x.py": ""}
    return MemoryWorld(files=files)


def attached(session: Session, world: MemoryWorld, path: str) -> list[str]:
    """The instructions that a read of this path attaches; its result is recorded with them."""
    parts = nested_instructions(session.log.view, world, path)
    session.log.append(ToolReturned(ToolResult("", (Text("Instructions from: /repo/c/AGENTS.md\nfake"), *parts)), tool="read"))
    return [part.text for part in parts]


@pytest.mark.states("OC-36")
def test_nested_files_are_attached_once_on_read_and_not_those_of_the_working_directory() -> None:
    session, world = opencode("opencode-1.18"), nested_world()
    state(session, world)

    assert attached(session, world, "/repo/a/b/x.py") == [
        "Instructions from: /repo/a/b/CLAUDE.md\nof b",
        "Instructions from: /repo/a/AGENTS.md\nof a",
    ]
    assert attached(session, world, "a/b/x.py") == []
    assert attached(session, world, "main.py") == []
    assert attached(session, world, "/elsewhere/x.py") == []


@pytest.mark.states("OC-36")
def test_a_read_that_was_masked_attaches_them_again() -> None:
    session, world = opencode("opencode-1.18"), nested_world()
    attached(session, world, "a/x.py")
    session.log.append(ViewEdited((Mask((session.log.view.items[0].id,), "[Old tool result content cleared]"),), by="test"))

    assert attached(session, world, "a/x.py") == ["Instructions from: /repo/a/AGENTS.md\nof a"]


@pytest.mark.states("OC-36")
def test_the_file_that_is_read_itself_and_stated_files_attach_nothing() -> None:
    session, world = opencode("opencode-1.18"), nested_world()

    assert attached(session, world, "a/AGENTS.md") == []
    below = world.with_state(cwd="/repo/a")
    state(session, below)
    assert attached(session, world, "a/x.py") == []


def test_an_output_that_looks_like_attached_instructions_does_not_count_as_such() -> None:
    session, world = opencode("opencode-1.18"), MemoryWorld(files={**GIT, "/repo/c/AGENTS.md": "of c", "/repo/d": ""})
    attached(session, world, "main.py")

    assert attached(session, world, "c/x.py") == ["Instructions from: /repo/c/AGENTS.md\nof c"]


def test_a_changed_instruction_file_is_stated_at_the_end_and_a_removed_one_is_named() -> None:
    session = opencode()
    world = MemoryWorld(files={**GIT, "/repo/AGENTS.md": "one", "/repo/a/AGENTS.md": "two"}).with_state(cwd="/repo/a")
    state(session, world)
    changed = MemoryWorld(files={**GIT, "/repo/AGENTS.md": "three", "/repo/a/x": ""}, state=world.state)

    assert texts(state(session, changed)) == {
        "instructions+": "These instructions replace the earlier ones from the same place.\nInstructions from: /repo/AGENTS.md\nthree\n"
        "The instructions from /repo/a/AGENTS.md no longer apply."
    }
    assert session.log.view.epoch == 1


def test_every_prompt_file_that_is_included_exists() -> None:
    assert "{{>" not in text_file("claude/main")
