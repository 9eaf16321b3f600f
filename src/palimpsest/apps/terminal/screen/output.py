"""The output of the inline screen: a frame reaches the terminal in one piece, and a terminal that is gone is no failure."""

import errno
from collections.abc import Callable
from typing import Final, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

# Terminals that know these marks show nothing of a frame before its end; others ignore them.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
# Save the cursor, erase the line, go down, erase the rest, restore the cursor.
_ERASE_DOWN: Final = "\x1b7\x1b[K\x1b[B\x1b[J\x1b8"
# What a write reports when the terminal was closed.
_GONE: Final = frozenset({errno.EIO, errno.EPIPE, errno.ENXIO, errno.EBADF})


class FrameOutput(Vt100_Output):
    """Writes to a terminal. Between `hold` and `release` nothing is written, so that erasing and painting are one step for the eye.

    `is_gone` is true once the terminal was closed; what is written then is dropped.
    """

    def __init__(self, stdout: TextIO, size: Callable[[], Size], term: str | None) -> None:
        # Asking the terminal for the place of its cursor delays every line over a slow connection, and an inline screen does not need it.
        super().__init__(stdout, size, term=term, enable_cpr=False)
        self.is_gone = False
        self._is_held = False

    def hold(self) -> None:
        """Write nothing until `release`; a second call changes nothing."""
        if not self._is_held:
            self._is_held = True
            self.write_raw(_BEGIN)

    def release(self) -> None:
        """Write what was held back."""
        if self._is_held:
            self._is_held = False
            self.write_raw(_END)
        self.flush()

    def erase_down(self) -> None:
        """Erase from the cursor to the end of the screen: this line, then the lines below it.

        tmux keeps a screen that is erased from its first place on in the scrollback, where every frame would be left behind.
        """
        self.write_raw(_ERASE_DOWN)

    def flush(self) -> None:
        """Write what is pending, unless it is held back or the terminal is gone."""
        if self._is_held:
            return
        if self.is_gone:
            self._buffer.clear()
            return
        try:
            super().flush()
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self.is_gone = True
