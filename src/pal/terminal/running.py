"""Runs the terminal of standard input and output."""

import asyncio
import os
import signal
import sys
from typing import Final

from prompt_toolkit.data_structures import Size

from pal.terminal.display import Device, FrameOutput, reflows
from pal.terminal.input import Keyboard
from pal.terminal.keys import key_bindings
from pal.terminal.look import ScreenLook
from pal.terminal.surroundings import TerminalSurroundings
from pal.terminal.terminal import Commands, Terminal
from pal.text import unfiltered

# A terminal that reports no size.
_USUAL: Final = Size(rows=24, columns=80)
# A tenth of Python's default.
_SWITCH_SECONDS: Final = 0.0005


async def run_terminal(around: TerminalSurroundings, look: ScreenLook, *, vi: bool, seconds: float | None) -> None:
    """Run the agent in the terminal of standard input and output until the user leaves, or a signal or a closed terminal ends it."""
    # Keys wait for the threads that plan and encode a request: each time that the loop needs the interpreter, for at most so long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What the screen shows of texts is cleaned where it is painted; the rest is its own sequences.
    output = FrameOutput(unfiltered(sys.stdout), _size, os.environ.get("TERM"))
    device = Device(Keyboard(sys.stdin), output, reflows(os.environ))
    terminal = Terminal(around, look, device, key_bindings, _commands, vi=vi, seconds=seconds)
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, terminal.leave)
    loop.set_exception_handler(lambda _, context: terminal.broke(context))
    loop.add_signal_handler(signal.SIGCONT, terminal.display.come_back)
    try:
        await terminal.run()
    except EOFError:
        # A terminal that was closed has no more input, which may be noticed before the signal arrives.
        return


def _commands() -> Commands:
    from pal.terminal.commands.registry import completions, run_line  # loaded after the first prompt

    return Commands(run_line, completions)


def _size() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _USUAL
    return Size(rows=size.lines or _USUAL.rows, columns=size.columns or _USUAL.columns)
