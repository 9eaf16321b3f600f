"""The window as a grid of ten rows of ten cells, one percent of the window each."""

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
    """One percent of the window, and its category."""

    glyph: str
    category: str


def grid(shares: Sequence[CategoryTokens], window: int, buffer: int, form: GridForm = "2.1.325") -> tuple[tuple[GridCell, ...], ...]:
    """Return the rows of the grid: categories in order, then free space, then the buffer as far as cells are left.

    In the measured form, a category above zero gets at least one cell, and a cell filled to 0.6 or less is drawn as partly used.
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
    # Integers, because the limit of 0.6 must not depend on floating point.
    partly = count > whole and rest * 10 <= 6 * window
    return [GridCell(PARTLY if partly and number == whole else USED, share.name) for number in range(count)]


def _rounded(tokens: int, window: int) -> int:
    """Return the percent of the window, halves rounded up."""
    return (2 * CELLS * tokens + window) // (2 * window) if window else 0


def thousands(tokens: int, form: GridForm = "2.1.325") -> str:
    """Format tokens as `16.6k`, plain below a thousand; documented form `45.0k`, measured form `45k`."""
    if tokens < 1_000:
        return str(tokens)
    tenths = (tokens + 50) // 100
    if form == "2.1.325" and tenths % 10 == 0:
        return f"{tenths // 10}k"
    return f"{tenths // 10}.{tenths % 10}k"


def share_line(share: CategoryTokens, window: int, form: GridForm = "2.1.325") -> str:
    """Return the legend line of a category: `System tools: 16.6k tokens (8.3%)`."""
    tenths = (2_000 * share.tokens + window) // (2 * window) if window else 0
    return f"{share.name}: {thousands(share.tokens, form)} tokens ({tenths // 10}.{tenths % 10}%)"


def head_line(model: str, used: int, window: int) -> str:
    """Return the title line: model, used tokens, window, percent."""
    return f"{model} · {thousands(used)}/{thousands(window)} tokens ({_rounded(used, window)}%)"
