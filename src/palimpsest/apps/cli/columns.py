"""Rows in columns: on a narrow screen words give way, and numbers never do."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

# Columns of words are not made narrower than this: fewer letters tell nothing.
_NARROWEST = 8
_GAP = 2


class Columns:
    """A table without frame, for `Console.print`; where it does not fit even with words cut, each row is a block of `name: value` lines.

    Columns in `right` are numbers, set to the right; these and those in `keep` are never cut.
    """

    def __init__(self, names: Sequence[str], right: Sequence[str] = (), keep: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._right = [name in right for name in names]
        self._kept = [name in right or name in keep for name in names]
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """One more row, a cell for each column."""
        self._rows.append((cells, style))

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Text]:
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._blocks(options.max_width)
            return
        yield self._line(self._names, widths, "bold")
        for cells, style in self._rows:
            yield self._line(cells, widths, style)

    def _widths(self, room: int) -> list[int] | None:
        """How wide each column is; nothing when what may not be cut does not fit. The widest column of words gives way first."""
        widths = [
            max(cell_len(cells[place]) for cells in (self._names, *(cells for cells, _ in self._rows))) for place in range(len(self._names))
        ]
        least = [width if kept else min(width, _NARROWEST) for width, kept in zip(widths, self._kept, strict=True)]
        gaps = _GAP * (len(widths) - 1)
        if sum(least) + gaps > room:
            return None
        while sum(widths) + gaps > room:
            place = max((place for place, width in enumerate(widths) if width > least[place]), key=widths.__getitem__)
            widths[place] -= 1
        return widths

    def _line(self, cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
        shown = [_set(cell, width, right=side) for cell, width, side in zip(cells, widths, self._right, strict=True)]
        return Text((" " * _GAP).join(shown).rstrip(), style=style, no_wrap=True)

    def _blocks(self, room: int) -> Iterator[Text]:
        for number, (cells, style) in enumerate(self._rows):
            if number:
                yield Text()
            for name, cell, kept in zip(self._names, cells, self._kept, strict=True):
                if not cell:
                    continue
                head = f"{name}: " if name else ""
                words = cell if kept else _cut(cell, max(_NARROWEST, room - cell_len(head)))
                yield Text.assemble((head, "bold"), words, style=style, overflow="fold")


def _set(cell: str, width: int, *, right: bool) -> str:
    shown = _cut(cell, width)
    space = " " * (width - cell_len(shown))
    return space + shown if right else shown + space


def _cut(cell: str, width: int) -> str:
    text = Text(cell)
    text.truncate(width, overflow="ellipsis")
    return text.plain
