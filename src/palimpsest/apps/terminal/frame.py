"""The part of the screen that changes: the open reply, running tools, queued messages, the open question, and the status line."""

from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace
from prompt_toolkit.data_structures import Size
from rich.cells import cell_len
from rich.text import Text

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Chooser
from palimpsest.apps.terminal.screen.blocks import Block
from palimpsest.apps.terminal.screen.diffs import diff_of
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.painting import gap, indented, paint, painted
from palimpsest.apps.terminal.screen.question import PermissionQuestion
from palimpsest.apps.terminal.screen.status import Status, status_line
from palimpsest.apps.terminal.screen.tool_titles import one_line, title_of
from palimpsest.tools.permissions.decision import displayable

_PREVIEW_LINES = 6


class Shown(Protocol):
    """What a frame shows."""

    @property
    def look(self) -> ScreenLook:
        """How to paint; the width is that of the terminal at each frame."""
        ...

    @property
    def last_block(self) -> Block | None:
        """The newest block of the scrollback."""
        ...

    def live_blocks(self) -> tuple[Block, ...]:
        """The blocks that still change."""
        ...

    def queued(self) -> tuple[str, ...]:
        """Messages that wait for the next safe point."""
        ...

    def question(self) -> PermissionQuestion | None:
        """The open question."""
        ...

    @property
    def is_answering(self) -> bool:
        """Whether keys answer the open question: nothing is typed."""
        ...

    def list(self) -> Chooser | None:
        """The open list."""
        ...

    def status(self) -> Status:
        """What the status line says."""
        ...


class Frame:
    """Paints what changes. Each part is painted again only if it or the width changed since the last frame."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._blocks: tuple[Block, ...] = ()
        self._painted: dict[Block, str] = {}
        self._status: tuple[Status, ScreenLook] | None = None
        self._status_line = ""
        self._width = 0

    def advance(self) -> None:
        """Take the blocks as they are now. Until the next call a key paints the same ones: their Markdown may take long."""
        self._blocks = self._shown.live_blocks()

    def live(self, size: Size) -> str:
        """Return what stands above the input."""
        look = replace(self._shown.look, width=size.columns)
        if size.columns != self._width:
            self._painted.clear()
            self._width = size.columns
        blocks = self._blocks
        self._painted = {block: self._painted.get(block) or paint(block, look) for block in blocks}
        followed = zip((self._shown.last_block, *blocks), blocks, strict=False)
        question = self._shown.question()
        chooser = self._shown.list()
        parts = [gap(before, block) + self._painted[block] for before, block in followed]
        parts += _queue(self._shown.queued(), look)
        parts += _question(question, look, is_typed=not self._shown.is_answering) if question is not None else ()
        parts += _list(chooser, look) if chooser is not None else ()
        return "".join(parts)

    def status(self, size: Size) -> str:
        """Return the line below the input."""
        drawn = (self._shown.status(), replace(self._shown.look, width=size.columns))
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
