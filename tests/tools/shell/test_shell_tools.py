"""The tools that run commands, against real processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace

Run = Callable[..., Awaitable[ToolOutput]]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with some files."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def Parse():\n    return 1\n")
    (tmp_path / "b.txt").write_text("parse me\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.txt").write_text("parse me\n")
    return Workspace(tmp_path)


def in_shell(workspace: Workspace, steps: Callable[[Run], Awaitable[list[ToolOutput]]]) -> list[ToolOutput]:
    """What some steps return, with a shell that is closed after them."""

    async def run() -> list[ToolOutput]:
        shell = Shell(workspace.root)
        tools = {tool.name: tool for tool in shell.tools()}

        async def use(name: str, **arguments: object) -> ToolOutput:
            return await tools[name].run(json.dumps(arguments), workspace)

        try:
            return await steps(use)
        finally:
            await shell.close()

    return asyncio.run(run())


def test_a_command_gives_its_output_and_exit_code_and_the_directory_persists(workspace: Workspace) -> None:
    async def steps(use: Run) -> list[ToolOutput]:
        commands = ("echo hello; cd src", "ls", "echo oops >&2; exit 3", "cd /; X=1", "pwd; echo $X", "true")
        return [await use("bash", command=command) for command in commands]

    assert in_shell(workspace, steps) == [
        ToolOutput("hello\n", exit=0),
        ToolOutput("a.py\n", exit=0),
        ToolOutput("oops\n[exit code 3]", error=True, exit=3),
        ToolOutput("[no output]", exit=0),
        ToolOutput(f"{workspace.root / 'src'}\n\n", exit=0),
        ToolOutput("[no output]", exit=0),
    ]


OPEN_ENDS = {
    "false \\": ("[no output]\n[exit code 1]", 1),
    "cd src; false #": ("[no output]\n[exit code 1]", 1),
    "cat <<END\nhi $#": ("hi 0\n", 0),
    "cat <<'END'\n$pal_code": ("$pal_code\n", 0),
    "exit() { :; }; pwd() { echo /; }; (builtin exit 4)": ("[no output]\n[exit code 4]", 4),
    "set -u; echo ${1-none}; false": ("none\n[exit code 1]", 1),
    "set -x; false": ("++ false\n[exit code 1]", 1),
    "trap 'echo bye >&2' EXIT; false": ("bye\n[exit code 1]", 1),
    "echo a\0b": ("the command has a zero byte, which no program can be given", None),
    "-x": None,
    "echo 'open": None,
    "if true; then": None,
    "echo $(": None,
}


def test_a_command_with_an_open_end_keeps_its_exit_code_and_shows_nothing_of_ours(workspace: Workspace) -> None:
    async def steps(use: Run) -> list[ToolOutput]:
        return [await use("bash", command=command) for command in (*OPEN_ENDS, "pwd")]

    *outputs, last = in_shell(workspace, steps)
    assert last.text == f"{workspace.root / 'src'}\n"
    for (command, expected), output in zip(OPEN_ENDS.items(), outputs, strict=True):
        if expected is None:
            assert output.exit, command
        else:
            # Bash warns about a here-document that ends with the command.
            assert (output.text.endswith(expected[0]), output.exit) == (True, expected[1]), (command, output)
        assert "PAL_CWD" not in output.text, command
        assert "eval --" not in output.text, command


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(workspace: Workspace) -> None:
    async def steps(use: Run) -> list[ToolOutput]:
        return [await use("bash", command="echo begun; sleep 60 & wait", timeout=1)]

    assert in_shell(workspace, steps) == [ToolOutput("begun\n\n[ended after 1 s: the time limit]", error=True, exit=124)]


def test_output_without_end_is_bounded(workspace: Workspace) -> None:
    async def steps(use: Run) -> list[ToolOutput]:
        return [await use("bash", command="head -c 5000000 /dev/zero | tr '\\0' x; echo end")]

    (output,) = in_shell(workspace, steps)
    assert len(output.text) < 1_000_000
    assert "bytes left out]" in output.text
    assert output.text.endswith("end\n")


def test_a_temp_folder_that_was_deleted_is_made_again_and_one_that_was_replaced_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()

    async def run() -> list[ToolOutput]:
        bash = Shell(workspace.root, temp=temp).tools()[0]
        first = await bash.run('{"command": "rm -rf \\"$TMPDIR\\"; echo gone"}', workspace)
        second = await bash.run('{"command": "test -d \\"$TMPDIR\\" && echo back"}', workspace)
        temp.rmdir()
        temp.symlink_to(tmp_path / "src")
        return [first, second, await bash.run('{"command": "echo no"}', workspace)]

    assert asyncio.run(run()) == [
        ToolOutput("gone\n", exit=0),
        ToolOutput("back\n", exit=0),
        ToolOutput(f"{temp}, the temp folder of this session, was replaced by something else", error=True),
    ]
