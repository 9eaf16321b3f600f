"""Who filled the window when it was fullest: areas as large as their tokens, in a frame as large as the window."""

from collections.abc import Sequence
from typing import NamedTuple

from palimpsest.lab.outcome import CardRun, Replayed, Share
from palimpsest.lab.report.markup import amount, figure, legend, percent, said
from palimpsest.lab.simulation.replay import UNSEEN

KINDS = {
    "head": "head and tools",
    "user": "the user",
    "assistant": "replies and calls",
    "result": "results of tools",
    "summary": "summaries",
    "context": "context and reminders",
    "other": "other",
}
_SORTS = {
    "head": "head",
    "tools": "head",
    "system": "head",
    "user": "user",
    "steering": "user",
    "assistant": "assistant",
    "thinking": "assistant",
    "tool_call": "assistant",
    "call": "assistant",
    "tool_result": "result",
    "result": "result",
    "summary": "summary",
    "context": "context",
    "reminder": "context",
    "recalled": "context",
    "notes": "context",
}
# The shape that cells are laid out for; the drawing itself takes the width it is given.
_NOMINAL = (480.0, 230.0)
_LETTER, _LINE = 7.0, 15.0
_FEWEST = 4
# The least that a drawing is wide in columns side by side, and on a phone or on paper: labels are cut for both, and one of them shows.
_WIDTHS = {"roomy": 416.0, "tight": 290.0}


class Cell(NamedTuple):
    """A share and its place in a frame of width and height one."""

    share: Share
    x: float
    y: float
    width: float
    height: float


def squarified(shares: Sequence[Share], width: float = 1.0, height: float = 1.0) -> list[Cell]:
    """Cells that fill a frame, as near to squares as can be: the largest first, row by row along the shorter side."""
    rest = sorted((share for share in shares if share.tokens > 0), key=lambda share: (-share.tokens, share.kind, share.name))
    scale = width * height / max(1, sum(share.tokens for share in rest))
    x = y = 0.0
    cells: list[Cell] = []
    while rest:
        side = min(width - x, height - y)
        row = _row(rest, side, scale)
        thick = sum(share.tokens for share in row) * scale / max(side, 1e-9)
        along = 0.0
        upright = width - x >= height - y
        for share in row:
            length = share.tokens * scale / max(thick, 1e-9)
            cells.append(Cell(share, x, y + along, thick, length) if upright else Cell(share, x + along, y, length, thick))
            along += length
        x, y = (x + thick, y) if upright else (x, y + thick)
        rest = rest[len(row) :]
    return cells


def _row(rest: Sequence[Share], side: float, scale: float) -> Sequence[Share]:
    """As many of the largest as make their row squarer than it was without the last of them."""
    best, count = float("inf"), 0
    for number in range(1, len(rest) + 1):
        areas = [share.tokens * scale for share in rest[:number]]
        total = sum(areas)
        worst = max(max(side * side * area / total**2, total**2 / (side * side * area)) for area in areas)
        if worst > best:
            break
        best, count = worst, number
    return rest[:count]


def treemaps(run: CardRun, session: Replayed, colours: dict[str, str]) -> str:
    """A map for each profile of a session."""
    known = {name: _told(outcome.census) for name, outcome in session.profiles.items() if outcome.census}
    # In a frame as large as the window little things could not be seen, so that they have a smaller one in common.
    most = max((sum(share.tokens for share in census) for census in known.values()), default=0)
    frame = run.window if most > run.window / 4 else most
    sorts = {_sort(share) for census in known.values() for share in census}
    keys = legend([(f"kind-{sort}", words) for sort, words in KINDS.items() if sort in sorts])
    panels = "".join(
        figure(f'<b class="{colours[name]}">{said(name, 40)}</b> {_filled(census, run.window)}', _map(name, census, run.window, frame))
        for name, census in known.items()
    )
    return f'{keys}<div class="panels">\n{panels}</div>\n' if known else ""


def _told(census: Sequence[Share]) -> list[Share]:
    """The same, with what no recording shows under one name."""
    unseen = [share for share in census if share.name.startswith(UNSEEN)]
    rest = [share for share in census if not share.name.startswith(UNSEEN)]
    tokens = sum(share.tokens for share in unseen)
    return [*rest, Share("head", "not recorded", tokens, len(unseen))] if unseen else rest


def _sort(share: Share) -> str:
    return _SORTS.get(share.kind, "other")


def _filled(census: Sequence[Share], window: int) -> str:
    used = sum(share.tokens for share in census)
    return f"{amount(used)} of {amount(window)}, {percent(used / window) if window else ''}"


def _map(name: str, census: Sequence[Share], window: int, frame: int) -> str:
    used = sum(share.tokens for share in census)
    filled = min(1.0, used / frame) if frame else 1.0
    wide, high = _NOMINAL
    pieces = [_cell(cell, used) for cell in squarified(census, filled * wide, high)]
    if filled < 1:
        free = f"<title>free: {amount(window - used)} tokens</title>"
        pieces.append(f'<rect class="free" x="{filled * 100:.2f}%" width="{(1 - filled) * 100:.2f}%" height="100%">{free}</rect>')
        if (1 - filled) * wide > 50:
            pieces.append(f'<text class="tick" x="{50 + filled * 50:.2f}%" y="{high / 2:.0f}" text-anchor="middle">free</text>')
    if window and used > window:
        edge = f"{window * 100 / used:.2f}%"
        words = f"<title>the window ends here: {window:,} tokens</title>"
        pieces.append(f'<line class="window" x1="{edge}" x2="{edge}" y1="0" y2="100%">{words}</line>')
    label = f"{said(name, 40)}: " + ", ".join(f"{_words(share)} {amount(share.tokens)}" for share in census[:8])
    return f'<svg class="map" width="100%" height="{high:.0f}" role="img" aria-label="{label}">\n{"".join(pieces)}\n</svg>\n'


def _words(share: Share) -> str:
    return said(share.name or share.kind, 40)


def _cell(cell: Cell, used: int) -> str:
    wide, high = _NOMINAL
    share = cell.share
    kind = said(share.kind.replace("_", " "), 40)
    title = f"{_words(share)} ({kind}): {share.tokens:,} tokens in {share.items:,} items, {percent(share.tokens / used)}"
    place = (
        f'x="{cell.x * 100 / wide:.2f}%" y="{cell.y * 100 / high:.2f}%" '
        f'width="{cell.width * 100 / wide:.2f}%" height="{cell.height * 100 / high:.2f}%"'
    )
    labels = {look: _labels(cell, most / wide) for look, most in _WIDTHS.items()}
    if labels["roomy"] == labels["tight"]:
        lines = labels["roomy"]
    else:
        lines = "".join(f'<g class="{look}">{inner}</g>' for look, inner in labels.items() if inner)
    frame = f'<rect class="kind-{_sort(share)}" width="100%" height="100%"/>'
    return f"<svg {place}><title>{title}</title>{frame}{lines}</svg>\n"


def _labels(cell: Cell, narrowed: float) -> str:
    """Name and size where a cell has room for them in a drawing that is narrowed by so much."""
    width, share = cell.width * narrowed - 10, cell.share
    name, size = share.name or share.kind, amount(share.tokens)
    most = int(width / _LETTER)
    if most < min(_FEWEST, len(name)) or cell.height <= _LINE + 4:
        return ""
    told = f'<text class="name" x="6" y="15">{said(name, most)}</text>'
    if cell.height > 2 * _LINE + 4 and most >= len(size):
        told += f'<text class="size" x="6" y="{15 + _LINE:.0f}">{size}</text>'
    return told
