"""What policies and jobs have to say reaches the user exactly once: in the terminal, in `pal -p` and in an editor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from acp.helpers import text_block
from editor import Desk, Editor, new_session, run
from streaming_model import Call, Spent, StreamingModel, model_streaming
from terminal_room import room_of, say

PAL = [sys.executable, "-m", "pal.cli"]
PROFILE = "claude-code@CLAUDE_CODE_MAX_OUTPUT_TOKENS=64000"
# The reply reserve of 64,000 puts compaction at 123,000 tokens and the warning 20,000 below it.
FILLED = (("fine", Spent(100_000)), (Call("read", {"path": "a.txt"}), Spent(110_000)), ("done", Spent(110_000)))
LINE = "Context left until auto-compact: 10%"


def asking(folder: Path, model: StreamingModel, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `pal` in a project with one file."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "a.txt").write_text("one\n")
    own = {"PAL_HOME": str(folder / "home"), "HOME": str(folder), "PAL_SANDBOX": "off", "PAL_PROFILE": PROFILE, **model.environment}
    return subprocess.run(
        [*PAL, *words], cwd=project, capture_output=True, text=True, env={**os.environ, **own}, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.states("SG-42")
def test_a_headless_run_says_once_how_much_context_is_left_and_so_does_the_run_that_goes_on(tmp_path: Path) -> None:
    with model_streaming(*FILLED) as model:
        first = asking(tmp_path, model, "-p", "hello")
        second = asking(tmp_path, model, "-c", "-p", "look", "--json")
        third = asking(tmp_path, model, "-c", "-p", "again", "--json-stream", "--quiet")
    assert ([LINE in done.stderr for done in (first, second, third)], LINE in first.stdout) == ([False, True, False], False)
    assert second.stderr.count("Context left") == 1
    value = json.loads(second.stdout)
    assert (value["text"], value["notices"]) == ("done", [LINE])
    bodies = [json.loads(line).get("body", {}) for line in third.stdout.splitlines()]
    assert [body for body in bodies if body.get("type") == "noticed"] == [{"type": "noticed", "text": LINE, "by": "warn"}]


@pytest.mark.states("SG-42")
def test_the_terminal_shows_the_line_once(tmp_path: Path) -> None:
    with room_of(tmp_path, *FILLED) as room:
        (room.project / "a.txt").write_text("one\n")
        with room.terminal("--profile", PROFILE) as screen:
            say(screen, "hello")
            screen.wait_for("fine")
            say(screen, "look")
            screen.wait_for("done")
            screen.wait_until_quiet()
            assert [line for line in screen.lines() if "Context left" in line] == [f"· {LINE}"]


@pytest.mark.states("SG-42")
def test_an_editor_is_sent_the_line_once_and_what_a_compaction_says_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path.resolve())
    (desk.project / "a.txt").write_text("one\n")

    thoughts: list[str] = []

    async def scenario() -> None:
        editor = Editor()
        with model_streaming(*FILLED) as model:
            variables = {**model.environment, "PAL_SCRIPT": "", "PAL_PROFILE": PROFILE}
            async with desk.started(editor, **variables) as (agent, _):
                session = await new_session(agent, desk.project)
                for text in ("hello " * 3_000, "look", "/compact", "again"):
                    await agent.prompt(session, [text_block(text)])
                thoughts.append(editor.thoughts(session))

    run(scenario)
    assert [thoughts[0].count(line) for line in (f"[{LINE}]", "[Conversation compacted]", "The context was folded")] == [1, 1, 1]
