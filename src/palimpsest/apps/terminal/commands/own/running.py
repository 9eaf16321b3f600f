"""Runs a command of a file: fills it with arguments, runs what the user's own files want run, and sends the text."""

from pathlib import Path
from typing import Final

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.commands.command import CommandRoom, agent_of
from palimpsest.apps.terminal.commands.own.template import OwnCommand, filled, shell_lines, with_outputs
from palimpsest.apps.terminal.programs.running import run_shell_line

# Seconds and characters of one command inside of a text.
_SECONDS: Final = 30.0
_LONGEST: Final = 20_000


async def run_own(room: CommandRoom, command: OwnCommand, argument: str) -> None:
    """Send the text of a command.

    Commands inside of the text run only if the file is the user's own. Those of a project are left to the model, so that the permissions
    decide about each.
    """
    root = agent_of(room).toolbox.workspace.root
    text = filled(command, argument)
    outputs = await _outputs(text, root) if command.scope == "user" else {}
    room.send(with_outputs(text, outputs))


async def _outputs(text: str, root: Path) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for line in shell_lines(text):
        done = await run_shell_line(line, root, seconds=_SECONDS)
        printed = plain(done.output).strip()
        shown = printed if len(printed) <= _LONGEST else f"{printed[:_LONGEST]}\n[cut]"
        outputs[line] = shown if done.code == 0 else f"(`{line}` ended with {done.code}) {shown}"
    return outputs
