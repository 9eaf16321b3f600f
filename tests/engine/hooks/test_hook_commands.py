"""Hooks that are commands: what they read, what their exit codes and outputs mean, and where they run."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hook_runs import PLAIN_ENVIRONMENT, HookedRun, processes_with, run_hooked
from loops import PROFILE, calls

from palimpsest.agent.agent import Agent
from palimpsest.agent.hook_commands import HookCommand, command_hook, stdin_of
from palimpsest.agent.hooks import HookCall, HookResult
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import HookMoment, HookRan, ToolReturned, TurnEnded
from palimpsest.core.items import text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home


def result(command: str, folder: Path, moment: HookMoment = "before_tool") -> HookResult:
    return asyncio.run(HookCommand(command, folder, PLAIN_ENVIRONMENT)(HookCall("s", moment, tool="bash")))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", HookResult(exit=0)),
        ("echo", HookResult(exit=0)),
        ("""echo '{"block":"no","context":"c","notice":"n"}'""", HookResult("no", "c", "n", exit=0)),
        ("""echo '{"block":null,"context":""}'""", HookResult(exit=0)),
        ("echo 'keep out' >&2; echo ignored; exit 2", HookResult("keep out", exit=2)),
        ("exit 2", HookResult("no reason was given", exit=2)),
        ("echo noise >&2", HookResult(exit=0)),
    ],
)
def test_exit_code_and_output_are_the_result(command: str, expected: HookResult, tmp_path: Path) -> None:
    assert result(command, tmp_path) == expected


@pytest.mark.parametrize("moment", ["session_start", "user_prompt"])
def test_plain_text_is_context_where_a_prompt_is_near(moment: HookMoment, tmp_path: Path) -> None:
    assert result("echo 'on branch x'", tmp_path, moment) == HookResult(context="on branch x", exit=0)
    assert result("""echo '{"context":"c"}'""", tmp_path, moment) == HookResult(context="c", exit=0)


def test_a_command_reads_the_call_as_json_and_runs_in_the_project_folder(tmp_path: Path) -> None:
    hook = command_hook("before_tool", "cat > call.json; pwd > where", cwd=tmp_path, environment=PLAIN_ENVIRONMENT)
    done = run_hooked(calls(("a", "echo", '{"a": [1]}')), "done", hooks=(hook,), cwd=tmp_path)
    read = json.loads((tmp_path / "call.json").read_text())
    assert {**read, "session": ""} == {
        "session": "",
        "moment": "before_tool",
        "cwd": str(tmp_path),
        "tool": "echo",
        "call_id": "a",
        "arguments": {"a": [1]},
    }
    assert (tmp_path / "where").read_text() == f"{tmp_path}\n"
    assert done.runs == [HookRan("cat", "before_tool", exit=0, call_id="a")]


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000, "\ud800"])
def test_arguments_that_are_no_json_are_given_as_text(arguments: str) -> None:
    call = json.loads(stdin_of(HookCall("s", "before_tool", arguments=arguments)))
    assert call == {"session": "s", "moment": "before_tool", "arguments": arguments.replace("\ud800", "?")}


@pytest.mark.parametrize("arguments", ['{"a": 1000000000000000000000000000000}', '{"a": 1, "a": 2}', '{"a":\n 1.50}'])
def test_valid_arguments_are_given_exactly_as_the_model_sent_them(arguments: str) -> None:
    expected = f'{{"session":"s","moment":"before_tool","arguments":{arguments}}}\n'
    assert stdin_of(HookCall("s", "before_tool", arguments=arguments)).decode() == expected


def test_an_interrupt_kills_a_command_with_all_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    marker = f"PAL_TEST_INTERRUPT={tmp_path.name}"
    name, _, value = marker.partition("=")
    command = "setsid tail -f /dev/null & echo begun > pipe; tail -f /dev/null"
    hook = command_hook("session_start", command, cwd=tmp_path, environment={**PLAIN_ENVIRONMENT, name: value}, name="slow")

    async def work() -> tuple[list[int], HookedRun]:
        async with Agent("claude-sonnet-4-5", provider=Scripted(), profile=PROFILE, hooks=[hook]) as agent:
            task = asyncio.ensure_future(agent.ask("go"))
            assert await asyncio.to_thread(pipe.read_text) == "begun\n"
            before = processes_with(marker)
            await agent.interrupt()
            return before, HookedRun(agent, (await task).stop)

    before, done = asyncio.run(work())
    assert (len(before) >= 2, processes_with(marker)) == (True, [])
    assert [(run.hook, run.exit, run.failure) for run in done.runs] == [("slow", None, "was interrupted")]
    assert done.bodies[-1] == TurnEnded("interrupted")


def test_what_a_hook_started_ends_when_the_agent_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = "setsid flock lock sh -c 'echo begun > pipe; exec tail -f /dev/null' & exec tail -f /dev/null"
    script = (
        "import asyncio, os, sys; from pathlib import Path; from palimpsest.agent.hook_commands import run_command\n"
        "asyncio.run(run_command(sys.argv[1], b'', Path.cwd(), os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", script, command], cwd=tmp_path) as agent:
        assert (tmp_path / "pipe").read_text() == "begun\n"
        agent.kill()
    assert subprocess.run(["flock", "-w", "60", tmp_path / "lock", "true"], check=False).returncode == 0


def test_a_file_that_a_hook_changes_under_an_edit_is_not_overwritten(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    # The second line of the hook's own, after the model has read the file.
    hook = command_hook("before_tool", "echo of-the-hook >> a.txt", cwd=project, environment=PLAIN_ENVIRONMENT, tool="edit", name="rude")
    edit = '{"path": "a.txt", "old": "one", "new": "two"}'
    replies = (calls(("r", "read", '{"path": "a.txt"}')), calls(("e", "edit", edit)), "done")

    async def work() -> tuple[str, list[ToolReturned]]:
        home = Home.in_memory()
        async with Agent("claude-sonnet-4-5", provider=Scripted(*replies), cwd=project, home=home) as agent:
            equip(agent, home, CodingSettings(mode="edits", sandbox="off", hooks=(hook,)))
            answer = await agent.ask("go")
            return answer.stop, [event.body for event in agent.session.log.events() if isinstance(event.body, ToolReturned)]

    stop, (_, edited) = asyncio.run(work())
    assert (stop, edited.result.error) == ("done", True)
    assert "changed" in text_of(edited.result)
    assert (project / "a.txt").read_text() == "one\nof-the-hook\n"
