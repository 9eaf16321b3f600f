"""Starts the terminal: finds out what it can show, and runs it until the user leaves or the terminal is closed."""

import asyncio
import os
import signal
import sys
from typing import Final

from prompt_toolkit.data_structures import Size

from palimpsest.apps.shown_text import unfiltered
from palimpsest.apps.terminal.display import Device
from palimpsest.apps.terminal.input.keyboard import Keyboard
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.output import FrameOutput
from palimpsest.apps.terminal.screen.resizing import reflows
from palimpsest.apps.terminal.surroundings import TerminalSurroundings
from palimpsest.apps.terminal.terminal import Terminal

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
    terminal = Terminal(around, look, Device(Keyboard(sys.stdin), output, reflows(os.environ)), vi=vi, seconds=seconds)
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


def _size() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _USUAL
    return Size(rows=size.lines or _USUAL.rows, columns=size.columns or _USUAL.columns)
