"""The inline screen: final blocks go into the scrollback, and the changing frame below them survives a resize."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TextIO, TypeVar

from msgspec.structs import replace
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar
from rich.cells import cell_len
from rich.text import Text

from pal.terminal.choosing import Chooser
from pal.terminal.input import Keyboard
from pal.terminal.look import ScreenLook
from pal.terminal.painting import Block, ToolBlock, arguments_of, diff_of, gap, indented, paint, painted, title_of
from pal.terminal.programs import interrupts_ignored
from pal.terminal.transcript import PermissionQuestion, Status, status_line
from pal.text import one_line, plain
from palimpsest.agent.decision import displayable

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


_PREVIEW_LINES = 6


class Shown(NamedTuple):
    """What a frame shows above the input: blocks that still change, messages that wait, and the open question or list."""

    last_block: Block | None = None
    blocks: tuple[Block, ...] = ()
    queued: tuple[str, ...] = ()
    question: PermissionQuestion | None = None
    is_answering: bool = False
    chooser: Chooser | None = None


class Frame:
    """Paints what changes. Each part is painted again only if it or the width changed since the last frame."""

    def __init__(self, look: ScreenLook, shown: Callable[[], Shown], status: Callable[[], Status]) -> None:
        self.look = look
        self._shown = shown
        self._read_status = status
        self._blocks: tuple[Block, ...] = ()
        self._painted: dict[Block, str] = {}
        self._status: tuple[Status, ScreenLook] | None = None
        self._status_line = ""
        self._width = 0

    def advance(self) -> None:
        """Take the blocks as they are now. Until the next call a key paints the same ones: their Markdown may take long."""
        self._blocks = self._shown().blocks

    def live(self, size: Size) -> str:
        """Return what stands above the input."""
        look = replace(self.look, width=size.columns)
        shown = self._shown()
        if size.columns != self._width:
            self._painted.clear()
            self._width = size.columns
        blocks = self._blocks
        self._painted = {block: self._painted.get(block) or paint(block, look) for block in blocks}
        followed = zip((shown.last_block, *blocks), blocks, strict=False)
        parts = [gap(before, block) + self._painted[block] for before, block in followed]
        parts += _queue(shown.queued, look)
        parts += _question(shown.question, look, is_typed=not shown.is_answering) if shown.question is not None else ()
        parts += _list(shown.chooser, look) if shown.chooser is not None else ()
        return "".join(parts)

    def status(self, size: Size) -> str:
        """Return the line below the input."""
        drawn = (self._read_status(), replace(self.look, width=size.columns))
        if drawn != self._status:
            self._status, self._status_line = drawn, status_line(*drawn)
        return self._status_line


def _queue(texts: tuple[str, ...], look: ScreenLook) -> Iterator[str]:
    for text in texts:
        yield painted(Text(f"  queued: {one_line(plain(text), 200)}  (arrow up takes it back)", look.style("dim")), look)


def _question(question: PermissionQuestion, look: ScreenLook, *, is_typed: bool) -> Iterator[str]:
    """Yield the question: what would run, in full, and what each key does."""
    asked = question.asked
    yield painted(Text(f"\n{plain(asked.tool)} needs your permission", look.style("warning")), look)
    if question.call is not None and (diff_of(question.call) is not None or title_of(question.call) not in asked.question):
        yield paint(question.call, look)
    yield painted(Text(displayable(asked.question)), look)
    for key, what in question.choices:
        yield painted(Text.assemble((f"{key:>5}", "bold"), f"  {what}"), look)
    hint = (
        "what you typed is the reason of a no (Enter); Tab puts it aside for the keys"
        if is_typed
        else "or type a reason for a no, then Enter"
    )
    full = "" if question.call is None else "; Ctrl-O shows the call in full"
    yield indented(Text(f"{hint}{full}", look.style("dim")), "  ", look, "")


def _list(chooser: Chooser, look: ScreenLook) -> Iterator[str]:
    """Yield the rows of a list around its cursor, and the preview of the row under it."""
    keys = "".join(f", {key} {what}" for key, what in chooser.keys.items())
    hint = f"(type to filter, Enter takes{keys}, Esc leaves)"
    # Title and keys stand on one line if both fit.
    between = "  " if cell_len(chooser.title) + cell_len(hint) + 2 <= look.text_width else "\n"
    yield painted(Text.assemble(("\n" + chooser.title, f"bold {look.style('accent')}"), between, (hint, look.style("dim"))), look)
    for is_chosen, row in chooser.rows():
        mark = look.symbols.user if is_chosen else " "
        line = Text(f"{mark} {one_line(plain(row.text))}", "bold" if is_chosen else "")
        line.truncate(look.width - 1, overflow="ellipsis")
        yield painted(line, look, look.width)
    if chooser.left_out:
        yield painted(Text(f"  {chooser.left_out:,} more", look.style("dim")), look)
    if text := chooser.preview:
        preview = "\n".join(plain(text).splitlines()[:_PREVIEW_LINES])
        yield indented(Text(preview, look.style("dim")), "  ", look, "")


Result = TypeVar("Result")

# Seconds between two paintings: fast enough for the eye, and slow enough that typing never waits for a stream.
FRAME_SECONDS: Final = 0.05
# Seconds from the end of a suspension until its signal is handled.
_SAME_SIGNAL_SECONDS: Final = 0.5
_MOST_INPUT_LINES: Final = 12
_MOST_CHOICES: Final = 8
_DIM: Final = "fg:ansibrightblack"
# Rows that the live part leaves for the input and the status.
_RESERVED_ROWS: Final = 6
_DEPTHS: Final = {
    "none": ColorDepth.DEPTH_1_BIT,
    "standard": ColorDepth.DEPTH_4_BIT,
    "256": ColorDepth.DEPTH_8_BIT,
    "truecolor": ColorDepth.DEPTH_24_BIT,
}


class Device(NamedTuple):
    """The terminal itself: where keys come from, where the screen is, and whether it wraps lines again when its width changes."""

    input: Keyboard
    output: FrameOutput
    reflows: bool = False


class Display:
    """The screen of one terminal. `write` may be called at any time in the event loop; it never waits."""

    def __init__(self, buffer: Buffer, keys: KeyBindingsBase, frame: Frame, device: Device, *, vi: bool) -> None:
        output = device.output
        self._frame = frame
        self._buffer = buffer
        self._pending: list[str] = []
        self._flush: asyncio.Task[None] | None = None
        self._output = output
        self._keyboard = device.input
        self._is_away = False
        self._continued_at = 0.0
        self.search = SearchToolbar(ignore_case=True)
        prompt = f"{frame.look.symbols.user} "
        box = Window(
            BufferControl(buffer, [BeforeInput(prompt, "class:prompt")], search_buffer_control=self.search.control, preview_search=True),
            height=Dimension(min=1, max=_MOST_INPUT_LINES),
            wrap_lines=True,
            dont_extend_height=True,
        )
        choices = Window(FormattedTextControl(lambda: _choices(buffer)), dont_extend_height=True)
        self.app = InlineApplication(
            Layout(
                HSplit(
                    [
                        Window(FormattedTextControl(self._live), dont_extend_height=True, wrap_lines=False),
                        box,
                        ConditionalContainer(choices, Condition(lambda: buffer.complete_state is not None)),
                        self.search,
                        Window(FormattedTextControl(self._status), height=1, dont_extend_height=True),
                    ]
                ),
                focused_element=box,
            ),
            key_bindings=keys,
            color_depth=_DEPTHS[frame.look.colours],
            editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
            min_redraw_interval=FRAME_SECONDS / 25,
            input=device.input,
            output=output,
        )
        # A single Esc interrupts at once: special keys and Alt arrive with the rest of their sequence in one piece, also over ssh.
        self.app.ttimeoutlen = self.app.timeoutlen = 0.05
        self.app.frames, self.app.is_reflowed = output, device.reflows
        self.app.after_render += lambda _: output.release()

    @property
    def size(self) -> Size:
        """Rows and columns of the terminal now."""
        return self._output.get_size()

    def write(self, text: str) -> None:
        """Add text with escape sequences to the scrollback, in order, with the next frame."""
        if text:
            self._pending.append(text)
            self.refresh()

    def refresh(self) -> None:
        """Paint with the next frame."""
        if self._flush is None or self._flush.done():
            self._flush = asyncio.ensure_future(self._flush_soon())

    async def run(self) -> None:
        """Show the screen until `exit` is called."""
        try:
            await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            self._write_pending()
            self._output.release()

    def exit(self) -> None:
        """End the screen; what was written before is painted first."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def suspend(self) -> None:
        """Give the terminal back to the shell and stop the process; once it is continued, the input stands below what was printed."""
        self._output.release()
        self.app.renderer.erase()
        with self.app.input.cooked_mode():
            os.kill(0, signal.SIGTSTP)
        self._continued_at = time.monotonic()

    def come_back(self) -> None:
        """Take the terminal again after the process was stopped: its shell may have changed the modes and printed below the input.

        The signal that ends a suspension of our own changes nothing: the screen is painted already.
        """
        if self.app.is_running and not self._is_away and time.monotonic() - self._continued_at > _SAME_SIGNAL_SECONDS:
            # Entered for its effect: the one that `run` entered restores the modes of the beginning.
            self.app.input.raw_mode().__enter__()
            self.app.renderer.reset()
            self.app.invalidate()

    async def above(self, action: Callable[[], Result], *, in_thread: bool = False, reads_keys: bool = True) -> Result:
        """Take the input away, run an action that uses the terminal itself, show the input again, and return the result.

        With `in_thread` the session goes on meanwhile; what it has to show waits. What is typed during an action that reads no keys
        is for the input.
        """
        self._is_away = True
        self._output.release()
        self._keyboard.stays_raw = not reads_keys
        try:
            with interrupts_ignored():
                async with in_terminal():
                    # What was written before comes before what the action prints.
                    self._write_pending()
                    return await asyncio.to_thread(action) if in_thread else action()
        finally:
            self._keyboard.stays_raw = False
            self._is_away = False
            self.refresh()

    async def edit(self) -> None:
        """Let the user write the input in the editor of `VISUAL` or `EDITOR`."""
        self._is_away = True
        self._output.release()
        try:
            with interrupts_ignored():
                await self._buffer.open_in_editor()
        finally:
            self._is_away = False
            self.refresh()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FRAME_SECONDS)
        if self._pending and self.app.is_running and not self.app.is_done and not self._is_away:
            # The terminal stays in raw mode: otherwise it would echo what is typed meanwhile. What is erased is painted again in one piece.
            self._output.hold()
            self.app.renderer.erase()
            self._write_pending()
        self._frame.advance()
        self.app.invalidate()

    def _write_pending(self) -> None:
        text, self._pending = "".join(self._pending), []
        if text:
            self._output.write_raw(text.replace("\n", "\r\n"))
            self._output.flush()

    def _live(self) -> ANSI:
        size = self.size
        lines = self._frame.live(size).splitlines()[-max(1, size.rows - _RESERVED_ROWS) :]
        # An empty line always stands above the input, so that it does not move when a reply becomes final.
        return _parsed("\n".join((*lines, "")))

    def _status(self) -> ANSI:
        return _parsed(self._frame.status(self.size))


@lru_cache(maxsize=4)
def _parsed(text: str) -> ANSI:
    """Return a text with its escape sequences parsed. Most frames are those of a key, with the texts of the frame before."""
    return ANSI(text)


def _choices(buffer: Buffer) -> StyleAndTextTuples:
    """The completions around the chosen one, a line each."""
    state = buffer.complete_state
    if state is None:
        return []
    chosen = state.complete_index or 0
    first = max(0, min(chosen - _MOST_CHOICES // 2, len(state.completions) - _MOST_CHOICES))
    offered = state.completions[first : first + _MOST_CHOICES]
    width = max((get_cwidth(completion.display_text) for completion in offered), default=0)
    shown: StyleAndTextTuples = []
    for place, completion in enumerate(offered, first):
        name = completion.display_text
        shown += [("", "\n" if shown else ""), ("reverse" if place == state.complete_index else "", f"  {name}")]
        shown += [(_DIM, f"{' ' * (width - get_cwidth(name))}  {completion.display_meta_text}")]
    return shown


# Bytes of a file that are searched; a larger one gets no line numbers of its own.
_LARGEST: Final = 2 * 1024 * 1024


def placed(block: Block, root: Path | None) -> Block:
    """Return the block of an edit with the line where its text begins in the file now; any other block as it is."""
    if not isinstance(block, ToolBlock) or block.state not in ("done", "writing") or root is None:
        return block
    return replace(block, first_line=_first_line(block, root))


def _first_line(block: ToolBlock, root: Path) -> int:
    """Return the number of the line where the new text of an edit, or the old one before it ran, begins; 1 if it is not found."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return 1
    path = arguments.get("path") or arguments.get("file_path")
    old = arguments.get("old") or arguments.get("old_string")
    new = arguments.get("new") or arguments.get("new_string")
    sought = old if block.state == "writing" else new
    if not isinstance(path, str) or not isinstance(sought, str) or not sought:
        return 1
    try:
        with (root / path).open("rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return 1
    place = text.find(sought)
    return text.count("\n", 0, place) + 1 if place >= 0 else 1
