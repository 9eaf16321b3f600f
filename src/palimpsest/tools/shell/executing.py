"""One command on its own: it runs in the project folder for a while, and goes on in the background if it has not ended by then."""

import asyncio
import os
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from palimpsest.core.events import ProcessStarted
from palimpsest.tools.shell.bash import MOST_BACKGROUND, Shell
from palimpsest.tools.shell.processes import Running
from palimpsest.tools.tool import ToolError, ToolEvent
from palimpsest.tools.workspace import Workspace


class ExecutedCommand(NamedTuple):
    """A command that ran: its process, the seconds it was waited for, and its number in the background if it goes on."""

    running: Running
    seconds: float
    number: int | None = None
    events: tuple[ToolEvent, ...] = ()


async def execute(shell: Shell, command: str, workspace: Workspace, seconds: float) -> ExecutedCommand:
    """Run a command for at most so many seconds; it goes on after that, with a number. Nothing persists for the next command.

    Raises `ToolError` if it cannot be started.
    """
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty" if not command.strip() else "the command has a zero byte, which no program can be given")
    shell.cwd = workspace.root
    began = monotonic()
    running = await shell.start(command, {"PAL_CWD_FILE": os.devnull})
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(running.process.wait(), seconds)
        if running.exit is None:
            return _in_background(shell, running, monotonic() - began)
        await running.end_rest()
    except BaseException:
        await running.kill()
        raise
    return ExecutedCommand(running, monotonic() - began, events=shell.ended())


def _in_background(shell: Shell, running: Running, seconds: float) -> ExecutedCommand:
    alive = [each for each in shell.background.values() if each.exit is None]
    if len(alive) >= MOST_BACKGROUND:
        raise ToolError(f"{MOST_BACKGROUND} processes run in the background already, so this one was ended; end one of them first")
    ended, number = shell.ended(), len(shell.background) + 1
    shell.background[f"p{number}"] = running
    started = ProcessStarted(f"p{number}", running.command, pid=running.process.pid)
    return ExecutedCommand(running, seconds, number, (*ended, started))
