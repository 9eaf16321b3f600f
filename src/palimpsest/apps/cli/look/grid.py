"""The room as ten rows of ten cells, one percent of the window each."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from palimpsest.core.items import Value

USED, PARTLY, BUFFER, FREE = "⛁", "⛀", "⛝", "⛶"
BUFFER_NAME = "Autocompact buffer"
FREE_NAME = "Free space"
CELLS, ROW = 100, 10

GridForm: TypeAlias = Literal["documents", "2.1.325"]


class CategoryTokens(Value, frozen=True):
    """A category and its tokens."""

    name: str
    tokens: int


class GridCell(Value, frozen=True):
    """One percent of the window, and the category that has it."""

    glyph: str
    category: str


def grid(shares: Sequence[CategoryTokens], window: int, buffer: int, form: GridForm = "2.1.325") -> tuple[tuple[GridCell, ...], ...]:
    """Categories in order, then what is free, then the buffer, which gets at most what is left.

    As measured, a category above zero has at least one cell, and a cell filled to 0.6 or less is drawn as partly used.
    """
    cells: list[GridCell] = []
    for share in shares:
        cells += _cells_of(share, window, form)
    del cells[CELLS:]
    left = CELLS - len(cells)
    kept = min(left, _rounded(buffer, window))
    cells += [GridCell(FREE, FREE_NAME)] * (left - kept) + [GridCell(BUFFER, BUFFER_NAME)] * kept
    return tuple(tuple(cells[start : start + ROW]) for start in range(0, CELLS, ROW))


def _cells_of(share: CategoryTokens, window: int, form: GridForm) -> Iterable[GridCell]:
    count = min(CELLS, _rounded(share.tokens, window))
    if form == "documents":
        return [GridCell(USED, share.name)] * count
    if share.tokens > 0:
        count = max(1, count)
    whole, rest = divmod(share.tokens * CELLS, window) if window else (0, 0)
    # In whole numbers, for 0.6 of a cell must not depend on how a fraction is stored.
    partly = count > whole and rest * 10 <= 6 * window
    return [GridCell(PARTLY if partly and number == whole else USED, share.name) for number in range(count)]


def _rounded(tokens: int, window: int) -> int:
    """Percent of the window, halves rounded up."""
    return (2 * CELLS * tokens + window) // (2 * window) if window else 0


def grid_text(rows: Iterable[Iterable[GridCell]]) -> str:
    """The glyphs alone, for a terminal without colours."""
    return "\n".join(" ".join(cell.glyph for cell in row) for row in rows)


def thousands(tokens: int, form: GridForm = "2.1.325") -> str:
    """`16.6k`, or the plain number below a thousand; as documented `45.0k`, as measured `45k`."""
    if tokens < 1_000:
        return str(tokens)
    tenths = (tokens + 50) // 100
    if form == "2.1.325" and tenths % 10 == 0:
        return f"{tenths // 10}k"
    return f"{tenths // 10}.{tenths % 10}k"


def share_line(share: CategoryTokens, window: int, form: GridForm = "2.1.325") -> str:
    """One category in words: `System tools: 16.6k tokens (8.3%)`."""
    tenths = (2_000 * share.tokens + window) // (2 * window) if window else 0
    return f"{share.name}: {thousands(share.tokens, form)} tokens ({tenths // 10}.{tenths % 10}%)"


def head_line(model: str, used: int, window: int) -> str:
    """The line over the grid, as documented: model, used and window, percent."""
    return f"{model} · {thousands(used)}/{thousands(window)} tokens ({_rounded(used, window)}%)"
