"""Tables, lines and progress bars for a terminal, whose width they fit."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pal.text import plain

# Text columns are at least this wide.
_NARROWEST = 8
_GAP = 2


class Columns:
    """A table without frame for `Console.print`; if it does not fit even with texts cut, each row becomes a block of `name: value` lines.

    Columns in `right` are right-aligned numbers; these and the columns in `keep` are never cut.
    """

    def __init__(self, *names: str, right: Sequence[str] = (), keep: Sequence[str] = ()) -> None:
        self._names = names
        self._right = [name in right for name in names]
        self._uncut = [name in right or name in keep for name in names]
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a row with a cell for each column."""
        self._rows.append((tuple(map(plain, cells)), style))

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Text]:
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._row_blocks(options.max_width)
            return
        yield self._table_line(self._names, widths, "bold")
        for cells, style in self._rows:
            yield self._table_line(cells, widths, style)

    def _widths(self, room: int) -> list[int] | None:
        """Return the column widths, or None if the columns that are never cut do not fit; the widest text column shrinks first."""
        widths = _column_widths([self._names, *(cells for cells, _ in self._rows)])
        least = [width if kept else min(width, _NARROWEST) for width, kept in zip(widths, self._uncut, strict=True)]
        gaps = _GAP * (len(widths) - 1)
        if sum(least) + gaps > room:
            return None
        while sum(widths) + gaps > room:
            place = max((place for place, width in enumerate(widths) if width > least[place]), key=widths.__getitem__)
            widths[place] -= 1
        return widths

    def _table_line(self, cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
        cut = [_cut_cell(cell, width) for cell, width in zip(cells, widths, strict=True)]
        return Text((" " * _GAP).join(_padded(cut, widths, self._right)).rstrip(), style=style, no_wrap=True)

    def _row_blocks(self, room: int) -> Iterator[Text]:
        for number, (cells, style) in enumerate(self._rows):
            if number:
                yield Text()
            for name, cell, kept in zip(self._names, cells, self._uncut, strict=True):
                if not cell:
                    continue
                head = f"{name}: " if name else ""
                words = cell if kept else _cut_cell(cell, max(_NARROWEST, room - cell_len(head)))
                yield Text.assemble((head, "bold"), words, style=style, overflow="fold")


def _padded(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Return the cells filled with spaces to the widths of their columns."""
    spaces = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return [space + cell if side else cell + space for cell, space, side in zip(cells, spaces, right, strict=True)]


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _cut_cell(cell: str, width: int) -> str:
    text = Text(cell)
    text.truncate(width, overflow="ellipsis")
    return text.plain


_INDENT = 2


def print_listing(screen: Console, header: Sequence[str], rows: Sequence[tuple[Sequence[str], Text | None]], right: frozenset[str]) -> None:
    """Print rows in columns, wrapped to several lines on a narrow screen, with the text of a row below it."""
    widths = _column_widths([header, *(cells for cells, _ in rows)])
    sides = [name in right for name in header]
    lines = _columns_by_line(widths, screen.width)

    def show(cells: Sequence[str], style: str) -> None:
        padded = _padded(cells, widths, sides)
        for number, places in enumerate(lines):
            line = " " * (_INDENT if number else 0) + "  ".join(padded[place] for place in places).rstrip()
            screen.print(Text(line, style=style), no_wrap=True, overflow="ignore", crop=False)

    show(header, "bold")
    for cells, text in rows:
        show(cells, "")
        if text is not None:
            screen.print(Text.assemble("  ", text), no_wrap=True, overflow="ellipsis")


def _columns_by_line(widths: Sequence[int], room: int) -> list[range]:
    """Return the columns of each line; the second and later lines are indented."""
    lines: list[range] = []
    used, first = 0, 0
    for place, width in enumerate(widths):
        if place > first and used + width > room:
            lines.append(range(first, place))
            used, first = _INDENT, place
        used += width + 2
    return [*lines, range(first, len(widths))]


@contextmanager
def progress_bar(what: str, total: int, note: Callable[[], str] | None = None) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the number of parts done and shows a progress bar; silent without a terminal.

    Behind the bar stands the remaining time, or what `note` returns.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # slow to load, and for terminals only

    behind = TimeRemainingColumn() if note is None else TextColumn("{task.fields[note]}")
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), behind)
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=total, note="")
        yield lambda done: bar.update(task, completed=done, note="" if note is None else note())


_ELLIPSIS = "…"
_PART_OF_NUMBER = re.compile(r"[-+$~(]*\d[\d,.:%-]*")


class _Screen(Console):
    """A console on which no text acts, and that raises `BrokenPipeError` instead of exiting, so that the command line handles it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render with every text plain; what is left of escape sequences is our own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`."""
        raise BrokenPipeError


def console(*, err: bool = False) -> Console:
    """Return a console for standard output or error: width of the terminal, else 80 columns; colours only on a terminal."""
    # Shells and containers set COLUMNS=0 if the width is unknown, so zero is ignored.
    settings = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"} or value.strip("0")}
    return _Screen(stderr=err, highlight=False, markup=False, emoji=False, soft_wrap=False, _environ=settings)


def one_line(text: str, width: int) -> str:
    """Return the beginning of a text on one line of at most `width` columns; a number is never cut."""
    whole = " ".join(plain(text[: width * 8]).split())
    line = Text(whole)
    line.truncate(width, overflow="ellipsis")
    if line.plain == whole:
        return whole
    kept = line.plain.removesuffix(_ELLIPSIS)
    last = kept.rpartition(" ")[2]
    if _PART_OF_NUMBER.fullmatch(last) and whole[len(kept) : len(kept) + 1] != " ":
        kept = kept[: -len(last)]
    return f"{kept}{_ELLIPSIS}"
