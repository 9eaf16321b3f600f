"""The keys of the terminal, which may stay in raw mode while something else prints."""

from contextlib import AbstractContextManager, nullcontext

from prompt_toolkit.input.vt100 import Vt100Input


class Keyboard(Vt100Input):
    """The input of a terminal.

    With `stays_raw` it remains in raw mode where prompt_toolkit would give the terminal to another program: otherwise an Enter that is
    typed then would come as a new line, however short the time is.
    """

    stays_raw: bool = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Return what gives the terminal to another program, or nothing to do if it stays in raw mode."""
        return nullcontext() if self.stays_raw else super().cooked_mode()
