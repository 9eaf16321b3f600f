"""The inline screen: what is final goes into the scrollback, and below it stand what still changes, the input and the status."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeVar

from prompt_toolkit.application import in_terminal
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
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from palimpsest.apps.terminal.input.keyboard import Keyboard
from palimpsest.apps.terminal.programs.shell_line import interrupts_ignored
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.output import FrameOutput
from palimpsest.apps.terminal.screen.resizing import InlineApplication

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


class Painted(Protocol):
    """The parts of the screen that are painted again for each frame, as text with escape sequences."""

    def advance(self) -> None:
        """Take what still changes as it is now, for this frame and those of keys that follow."""
        ...

    def live(self, size: Size) -> str:
        """What still changes: the open reply, running tools, a question."""
        ...

    def status(self, size: Size) -> str:
        """The line below the input."""
        ...


class Display:
    """The screen of one terminal. `write` may be called at any time in the event loop; it never waits."""

    def __init__(self, buffer: Buffer, keys: KeyBindingsBase, painted: Painted, look: ScreenLook, device: Device, *, vi: bool) -> None:
        output = device.output
        self._painted = painted
        self._buffer = buffer
        self._pending: list[str] = []
        self._flush: asyncio.Task[None] | None = None
        self._output = output
        self._keyboard = device.input
        self._is_away = False
        self._continued_at = 0.0
        self.search = SearchToolbar(ignore_case=True)
        prompt = f"{look.symbols.user} "
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
            color_depth=_DEPTHS[look.colours],
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
        self._painted.advance()
        self.app.invalidate()

    def _write_pending(self) -> None:
        text, self._pending = "".join(self._pending), []
        if text:
            self._output.write_raw(text.replace("\n", "\r\n"))
            self._output.flush()

    def _live(self) -> ANSI:
        size = self.size
        lines = self._painted.live(size).splitlines()[-max(1, size.rows - _RESERVED_ROWS) :]
        # An empty line always stands above the input, so that it does not move when a reply becomes final.
        return _parsed("\n".join((*lines, "")))

    def _status(self) -> ANSI:
        return _parsed(self._painted.status(self.size))


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
