"""What fills the window is shown with rows, buffer and free space of the profile that the session works under."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.helpers import text_block
from editor import Desk, Editor, new_session, run
from live_agent import LiveAgent, unmarked

PAL = [sys.executable, "-m", "pal.cli"]
MEASURED = ["System prompt", "System tools", "Memory files", "Skills", "Messages"]


def pal(folder: Path, *words: str, **variables: str) -> str:
    """Run `pal` in a project with instructions, and return what it prints."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    for name in ("CLAUDE.md", "AGENTS.md"):
        (project / name).write_text("Use tabs. " * 50)
    (folder / "script").write_text('"hi"\n"there"\n')
    own = {"PAL_HOME": str(folder / "home"), "HOME": str(folder), "PAL_SCRIPT": str(folder / "script"), "NO_COLOR": "1"}
    environment = {**os.environ, **own, **variables}
    done = subprocess.run(
        [*PAL, *words], cwd=project, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, check=True
    )
    return done.stdout


def context(folder: Path, profile: str, model: str, **variables: str) -> dict[str, Any]:
    """What `pal context --json` says of a session under a profile after two runs."""
    pal(folder, "-p", "hello", "--profile", profile, "--model", model, **variables)
    pal(folder, "-c", "-p", "on", **variables)
    found: dict[str, Any] = json.loads(pal(folder, "context", "last", "--json", **variables))
    return found


@pytest.mark.states("SG-43", "SG-14", "SG-31")
@pytest.mark.parametrize(
    ("profile", "model", "buffer"),
    [
        ("claude-code", "claude-sonnet-4-5", 45_000),
        ("claude-code-2.1.325", "claude-sonnet-4-5", 33_000),
        ("codex", "gpt-5.5", 27_200),
        ("codex-0.166", "gpt-5.5", 27_200),
        ("opencode", "claude-sonnet-4-5", 32_000),
        ("palimpsest", "claude-sonnet-4-5", 40_000),
    ],
)
def test_buffer_free_space_and_rows_are_those_of_the_profile(tmp_path: Path, profile: str, model: str, buffer: int) -> None:
    found = context(tmp_path, profile, model)
    window, rows = found["window"], ["System prompt", "System tools", "Messages"] if profile == "claude-code" else MEASURED
    assert (window, found["buffer"], list(found["rows"])) == (272_000 if "codex" in profile else 200_000, buffer, rows)
    assert found["free"] == window - buffer - found["used"]
    assert all(found["rows"][name] > 0 for name in rows if name != "Skills")


@pytest.mark.states("SG-43")
@pytest.mark.parametrize(("profile", "buffer"), [("classroom", 149_999), ("lossless", 0), ("gateway", 0), ("none", 0)])
def test_the_buffer_is_all_above_the_level_of_compaction_and_nothing_where_there_is_none(tmp_path: Path, profile: str, buffer: int) -> None:
    found = context(tmp_path, profile, "claude-sonnet-4-5")
    assert (found["buffer"], found["free"]) == (buffer, 200_000 - buffer - found["used"])


@pytest.mark.states("SG-43")
def test_the_table_names_the_rows_of_the_documents_and_settings_move_the_buffer(tmp_path: Path) -> None:
    found = context(tmp_path, "claude-code", "claude-sonnet-4-5", CLAUDE_CODE_MAX_OUTPUT_TOKENS="8000")
    lines = pal(tmp_path, "context", "last", CLAUDE_CODE_MAX_OUTPUT_TOKENS="8000").splitlines()
    assert found["buffer"] == 21_000
    legend = [line[20:].strip().rpartition(":")[0].lstrip("□▨⛶⛝ ") for line in lines[1:6]]
    assert legend == ["S System prompt", "Y System tools", "M Messages", "Free space", "Autocompact buffer"]
    assert lines[5].endswith("Autocompact buffer: 21.0k tokens (10.5%)")


@pytest.mark.states("SG-43")
def test_an_editor_gets_the_same_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path.resolve())
    said: list[str] = []

    async def scenario() -> None:
        editor = Editor()
        async with desk.started(editor, "hi", PAL_PROFILE="claude-code") as (agent, _):
            session = await new_session(agent, desk.project)
            await agent.prompt(session, [text_block("hello")])
            await agent.prompt(session, [text_block("/context")])
            said.append(editor.text(session))

    run(scenario)
    names = [line.partition(":")[0] for line in said[0].splitlines()[-5:]]
    assert names == ["- System prompt", "- System tools", "- Messages", "- Free space", "- Autocompact buffer"]
    assert said[0].splitlines()[-1] == "- Autocompact buffer: 45,000 tokens (23 %)"


@pytest.mark.states("SG-46")
def test_the_provider_is_asked_once_for_the_size_of_all_tools(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    agent.tools_tokens = 16_148
    asked = agent.turn("go", ("ok",))
    agent.turn("on", ("fine",))
    count = {"model": asked[0]["model"], "messages": [{"role": "user", "content": "foo"}], "tools": asked[0]["tools"]}
    assert [(path, unmarked(body)) for path, body in agent.counted] == [("/v1/messages/count_tokens?beta=true", count)]
    found = json.loads(pal(tmp_path, "context", "last", "--json"))
    assert (found["rows"]["System tools"], found["tools_counted"]) == (16_148, True)
    assert pal(tmp_path, "context", "last").splitlines()[-1] == "the provider counted the tools"


@pytest.mark.states("SG-46")
def test_where_nothing_counts_the_estimate_is_shown_as_one(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    agent.turn("go", ("ok",))
    found = json.loads(pal(tmp_path, "context", "last", "--json"))
    assert (len(agent.counted), found["rows"]["System tools"] > 1_000, found["tools_counted"]) == (1, True, False)
    assert pal(tmp_path, "context", "last").splitlines()[-1] == "the tools are estimated: the provider was not asked, or did not count"
