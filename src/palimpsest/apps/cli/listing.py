"""Rows of a table with a line of text under each, for terminals where one line is too narrow."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text


def print_listing(screen: Console, header: Sequence[str], rows: Sequence[tuple[Sequence[str], Text | None]], right: frozenset[str]) -> None:
    """Cells in columns, two spaces between them; the text of a row stands indented under it."""
    widths = [max(cell_len(cells[place]) for cells in (header, *(cells for cells, _ in rows))) for place in range(len(header))]
    sides = [name in right for name in header]
    screen.print(Text(_line(header, widths, sides), style="bold"), no_wrap=True, overflow="ignore", crop=False)
    for cells, text in rows:
        screen.print(Text(_line(cells, widths, sides)), no_wrap=True, overflow="ignore", crop=False)
        if text is not None:
            screen.print(Text.assemble("  ", text), no_wrap=True, overflow="ellipsis")


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[bool]) -> str:
    padded = (_pad(cell, width, right=right) for cell, width, right in zip(cells, widths, sides, strict=True))
    return "  ".join(padded).rstrip()


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space
