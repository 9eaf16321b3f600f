"""Rows of a table with a line of text under each, for terminals where one line is too narrow."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_INDENT = 2


def print_listing(screen: Console, header: Sequence[str], rows: Sequence[tuple[Sequence[str], Text | None]], right: frozenset[str]) -> None:
    """Cells in columns, two spaces between them, on more lines where the screen is narrow; the text of a row stands under it."""
    widths = [max(cell_len(cells[place]) for cells in (header, *(cells for cells, _ in rows))) for place in range(len(header))]
    sides = [name in right for name in header]
    lines = _lines(widths, screen.width)

    def show(cells: Sequence[str], style: str) -> None:
        padded = [_pad(cell, width, right=side) for cell, width, side in zip(cells, widths, sides, strict=True)]
        for number, places in enumerate(lines):
            line = " " * (_INDENT if number else 0) + "  ".join(padded[place] for place in places).rstrip()
            screen.print(Text(line, style=style), no_wrap=True, overflow="ignore", crop=False)

    show(header, "bold")
    for cells, text in rows:
        show(cells, "")
        if text is not None:
            screen.print(Text.assemble("  ", text), no_wrap=True, overflow="ellipsis")


def _lines(widths: Sequence[int], room: int) -> list[range]:
    """Which columns stand together on a line; the second line and later ones are indented."""
    lines: list[range] = []
    used, first = 0, 0
    for place, width in enumerate(widths):
        if place > first and used + width > room:
            lines.append(range(first, place))
            used, first = _INDENT, place
        used += width + 2
    return [*lines, range(first, len(widths))]


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space
