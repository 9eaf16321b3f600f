"""What a change of the width does to the lines that stand on the screen, so that all of them are erased and nothing else is."""

from collections.abc import Mapping, Sequence
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Screen

from palimpsest.apps.terminal.screen.output import FrameOutput

# Variables that terminals set which wrap the lines on the screen again when their width changes.
_REFLOWING: Final = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION", "WEZTERM_PANE")
_REFLOWING_PROGRAMS: Final = frozenset({"iTerm.app", "Apple_Terminal", "WezTerm", "ghostty", "vscode", "tmux"})


def reflows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal wraps what it shows again when its width changes. xterm and terminals that are not known cut lines instead."""
    return any(environment.get(name) for name in _REFLOWING) or environment.get("TERM_PROGRAM", "") in _REFLOWING_PROGRAMS


def rows_above(widths: Sequence[int], column: int, columns: int) -> int:
    """Return how many rows stand above the cursor after lines were wrapped again.

    `widths` are the columns of the lines above that of the cursor, `column` is where the cursor was in its own line.
    """
    return sum(max(1, -(-width // columns)) for width in widths) + column // columns


class InlineApplication(Application[None]):
    """An application whose frames are written in one piece, and which erases what a terminal wrapped again."""

    frames: FrameOutput | None = None
    is_reflowed: bool = False

    def _on_resize(self) -> None:
        """Erase and paint again, in one step. prompt_toolkit calls this when the size of the terminal changed."""
        if self.frames is None:
            super()._on_resize()
            return
        self.frames.hold()
        screen = self.renderer.last_rendered_screen
        if self.is_reflowed and screen is not None:
            cursor = screen.get_cursor_position(self.layout.current_window)
            widths = [_width(screen, row) for row in range(cursor.y)]
            # The renderer goes up by the rows that it painted; the others are those that the terminal made of them.
            self.output.cursor_up(max(0, rows_above(widths, cursor.x, self.output.get_size().columns) - cursor.y))
        super()._on_resize()
        self.frames.release()


def _width(screen: Screen, row: int) -> int:
    """Columns of a painted line up to its last visible letter."""
    cells = screen.data_buffer[row]
    return max((column + max(1, cell.width) for column, cell in cells.items() if cell.char.strip()), default=0)
