"""Starts the terminal: finds out what it can show, and runs it until the user leaves."""

import os
import sys
from typing import Final

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_input
from prompt_toolkit.output.vt100 import Vt100_Output

from palimpsest.apps.terminal.display import Device
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.sessions.surroundings import TerminalSurroundings
from palimpsest.apps.terminal.terminal import Terminal

# A terminal that reports no size.
_USUAL: Final = Size(rows=24, columns=80)


async def run_terminal(around: TerminalSurroundings, look: ScreenLook, *, vi: bool, seconds: float | None) -> None:
    """Run the agent in the terminal of standard input and output until the user leaves."""
    # Asking the terminal for the place of its cursor delays every line over a slow connection, and an inline screen does not need it.
    output = Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False)
    await Terminal(around, look, Device(create_input(), output), vi=vi, seconds=seconds).run()


def _size() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _USUAL
    return Size(rows=size.lines or _USUAL.rows, columns=size.columns or _USUAL.columns)
