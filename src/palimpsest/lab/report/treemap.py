"""Treemaps of the fullest window: areas proportional to tokens, in a frame of the size of the window."""

from collections.abc import Sequence
from typing import NamedTuple

from palimpsest.core.format.texts import counted
from palimpsest.lab.outcome import CardRun, ReplayedSession, WindowShare
from palimpsest.lab.report.markup import WINDOW_GROUPS, legend, panels, percent, profile_title, short_number, snippet
from palimpsest.lab.simulation.replay import UNSEEN_SOURCE

_KINDS_BY_GROUP = {
    "head": ("head", "tools", "system"),
    "user": ("user", "steering"),
    "assistant": ("assistant", "thinking", "tool_call", "call"),
    "result": ("tool_result", "result"),
    "summary": ("summary",),
    "context": ("context", "reminder", "recalled", "notes"),
}
_GROUPS = {kind: group for group, kinds in _KINDS_BY_GROUP.items() for kind in kinds}
# Width and height in pixels for which cells are laid out; the SVG stretches to the available width.
_LAYOUT_SIZE = (480.0, 230.0)
_LETTER_WIDTH, _LINE_HEIGHT = 7.0, 15.0
_FEWEST_LETTERS = 4
# Smallest widths in pixels, in columns on a screen and on a phone or paper; labels are cut for both, and CSS shows one of them.
_LABEL_WIDTHS = {"roomy": 416.0, "tight": 290.0}


class TreemapCell(NamedTuple):
    """A share and its rectangle in the frame."""

    share: WindowShare
    x: float
    y: float
    width: float
    height: float


def squarified(shares: Sequence[WindowShare], width: float = 1.0, height: float = 1.0) -> list[TreemapCell]:
    """Return cells that fill a frame, as square as possible: largest first, row by row along the shorter side."""
    rest = sorted((share for share in shares if share.tokens > 0), key=lambda share: (-share.tokens, share.kind, share.name))
    scale = width * height / max(1, sum(share.tokens for share in rest))
    x = y = 0.0
    cells: list[TreemapCell] = []
    while rest:
        side = min(width - x, height - y)
        row = _best_row(rest, side, scale)
        thick = sum(share.tokens for share in row) * scale / max(side, 1e-9)
        along = 0.0
        upright = width - x >= height - y
        for share in row:
            length = share.tokens * scale / max(thick, 1e-9)
            cells.append(TreemapCell(share, x, y + along, thick, length) if upright else TreemapCell(share, x + along, y, length, thick))
            along += length
        x, y = (x + thick, y) if upright else (x, y + thick)
        rest = rest[len(row) :]
    return cells


def _best_row(rest: Sequence[WindowShare], side: float, scale: float) -> Sequence[WindowShare]:
    """Return the largest shares for the next row: shares are added while the worst aspect ratio improves."""
    best, count = float("inf"), 0
    for number in range(1, len(rest) + 1):
        areas = [share.tokens * scale for share in rest[:number]]
        total = sum(areas)
        worst = max(max(side * side * area / total**2, total**2 / (side * side * area)) for area in areas)
        if worst > best:
            break
        best, count = worst, number
    return rest[:count]


def treemaps(run: CardRun, session: ReplayedSession, colours: dict[str, str]) -> str:
    """Return a treemap for each profile of a session."""
    censuses = {name: _merge_unseen(outcome.census) for name, outcome in session.profiles.items() if outcome.census}
    # If all profiles used little of the window, a smaller common frame keeps the cells visible.
    most = max((sum(share.tokens for share in census) for census in censuses.values()), default=0)
    frame = run.window if most > run.window / 4 else most
    groups = {_group_of(share) for census in censuses.values() for share in census}
    keys = legend((f"kind-{group}", title) for group, (title, _) in WINDOW_GROUPS.items() if group in groups)
    drawings = (
        (f"{profile_title(name, colours)} {_usage_text(census, run.window)}", _treemap(name, census, run.window, frame))
        for name, census in censuses.items()
    )
    return keys + panels(drawings) if censuses else ""


def _merge_unseen(census: Sequence[WindowShare]) -> list[WindowShare]:
    """Merge the shares of unrecorded content into one."""
    unseen = [share for share in census if share.name.startswith(UNSEEN_SOURCE)]
    rest = [share for share in census if not share.name.startswith(UNSEEN_SOURCE)]
    tokens = sum(share.tokens for share in unseen)
    return [*rest, WindowShare("head", "not recorded", tokens, len(unseen))] if unseen else rest


def _group_of(share: WindowShare) -> str:
    return _GROUPS.get(share.kind, "other")


def _usage_text(census: Sequence[WindowShare], window: int) -> str:
    used = sum(share.tokens for share in census)
    return f"{short_number(used)} of {short_number(window)}, {percent(used / window) if window else ''}"


def _treemap(name: str, census: Sequence[WindowShare], window: int, frame: int) -> str:
    used = sum(share.tokens for share in census)
    filled = min(1.0, used / frame) if frame else 1.0
    layout_width, layout_height = _LAYOUT_SIZE
    pieces = [_cell_svg(cell, used) for cell in squarified(census, filled * layout_width, layout_height)]
    if filled < 1:
        free = f"<title>free: {short_number(window - used)} tokens</title>"
        pieces.append(f'<rect class="free" x="{filled * 100:.2f}%" width="{(1 - filled) * 100:.2f}%" height="100%">{free}</rect>')
        if (1 - filled) * layout_width > 50:
            pieces.append(f'<text class="tick" x="{50 + filled * 50:.2f}%" y="{layout_height / 2:.0f}" text-anchor="middle">free</text>')
    if window and used > window:
        edge = f"{window * 100 / used:.2f}%"
        words = f"<title>the window ends here: {window:,} tokens</title>"
        pieces.append(f'<line class="window" x1="{edge}" x2="{edge}" y1="0" y2="100%">{words}</line>')
    label = f"{snippet(name, 40)}: " + ", ".join(f"{_label_of(share)} {short_number(share.tokens)}" for share in census[:8])
    return f'<svg class="map" width="100%" height="{layout_height:.0f}" role="img" aria-label="{label}">\n{"".join(pieces)}\n</svg>\n'


def _label_of(share: WindowShare) -> str:
    return snippet(share.name or share.kind, 40)


def _cell_svg(cell: TreemapCell, used: int) -> str:
    layout_width, layout_height = _LAYOUT_SIZE
    share = cell.share
    kind = snippet(share.kind.replace("_", " "), 40)
    title = f"{_label_of(share)} ({kind}): {share.tokens:,} tokens in {counted(share.items, 'item')}, {percent(share.tokens / used)}"
    place = (
        f'x="{cell.x * 100 / layout_width:.2f}%" y="{cell.y * 100 / layout_height:.2f}%" '
        f'width="{cell.width * 100 / layout_width:.2f}%" height="{cell.height * 100 / layout_height:.2f}%"'
    )
    labels = {css_class: _cell_labels(cell, most / layout_width) for css_class, most in _LABEL_WIDTHS.items()}
    if labels["roomy"] == labels["tight"]:
        lines = labels["roomy"]
    else:
        lines = "".join(f'<g class="{css_class}">{inner}</g>' for css_class, inner in labels.items() if inner)
    frame = f'<rect class="kind-{_group_of(share)}" width="100%" height="100%"/>'
    return f"<svg {place}><title>{title}</title>{frame}{lines}</svg>\n"


def _cell_labels(cell: TreemapCell, narrowed: float) -> str:
    """Return the labels that fit into a cell when the drawing is scaled horizontally by `narrowed`."""
    width, share = cell.width * narrowed - 10, cell.share
    name, size = share.name or share.kind, short_number(share.tokens)
    most = int(width / _LETTER_WIDTH)
    if most < min(_FEWEST_LETTERS, len(name)) or cell.height <= _LINE_HEIGHT + 4:
        return ""
    labels = f'<text class="name" x="6" y="15">{snippet(name, most)}</text>'
    if cell.height > 2 * _LINE_HEIGHT + 4 and most >= len(size):
        labels += f'<text class="size" x="6" y="{15 + _LINE_HEIGHT:.0f}">{size}</text>'
    return labels
