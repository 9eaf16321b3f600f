"""Draws dollars against re-reads as SVG, one line for each program: for a report, and as a picture of its own."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil
from statistics import median

from palimpsest.foreign.exporting.html import STYLE
from palimpsest.lab.curve import CurvePoint, best_points, by_program
from palimpsest.lab.outcome import CardRun
from palimpsest.lab.report.markup import PAGE_STYLE, dollars, profile_legend, short_number, snippet
from palimpsest.lab.report.plot import Plot, axis_steps
from palimpsest.lab.report.tables import profile_colours

_HEIGHT, _PICTURE_WIDTH, _PICTURE_HEIGHT = 340, 960, 460
_LEGEND_COLUMNS = 3
_MOST_TIMES = 1.6


def curve_chart(points: Sequence[CurvePoint]) -> str:
    """Return the chart for a report, with a legend; empty without points."""
    if not points:
        return ""
    colours = profile_colours(list(by_program(points)))
    note = (
        '<p class="note">Lower is cheaper, further left is read again less often. A line joins the settings of a program that no other '
        "setting of it beats in both; point at a dot for its settings, its folds per 100 calls and its mean context. Whether the work "
        "succeeds as often is not in it.</p>\n"
    )
    return profile_legend(colours, colours) + _drawing(points, colours, _HEIGHT) + note


def curve_picture(run: CardRun, points: Sequence[CurvePoint], terms: str) -> str:
    """Return the chart as a self-contained SVG; `terms` are the card and the cache, in words."""
    colours = profile_colours(list(by_program(points)))
    legend = "".join(_legend_entry(number, name, colour) for number, (name, colour) in enumerate(colours.items()))
    rows = ceil(len(colours) / _LEGEND_COLUMNS)
    title = f"Dollars against re-reads of {len(run.sessions)} sessions under {len(points)} profiles, {terms}"
    top = 20 + 20 * rows
    drawing = _drawing(points, colours, _PICTURE_HEIGHT - top - 24)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_PICTURE_WIDTH} {_PICTURE_HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">\n<style>{STYLE}{PAGE_STYLE}</style>\n{legend}'
        f'<svg x="20" y="{top}" width="{_PICTURE_WIDTH - 40}" height="{_PICTURE_HEIGHT - top - 24}">{drawing}</svg>\n'
        f'<text class="tick" x="20" y="{_PICTURE_HEIGHT - 6}">{escape(title)}</text>\n</svg>\n'
    )


def _legend_entry(number: int, name: str, colour: str) -> str:
    x, y = 20 + (number % _LEGEND_COLUMNS) * 300, 20 + (number // _LEGEND_COLUMNS) * 20
    dot = f'<circle class="{colour}" cx="{x + 5}" cy="{y - 4}" r="5"/>'
    return f'{dot}<text class="{colour}" fill="currentColor" x="{x + 16}" y="{y}">{snippet(name, 40)}</text>\n'


def _drawing(points: Sequence[CurvePoint], colours: Mapping[str, str], height: int) -> str:
    low = min(point.usd for point in points)
    # One program that costs many times as much would press all others into one line: it is drawn at the edge, with its dollars.
    high = max(point.usd for point in points if point.usd <= _MOST_TIMES * median(each.usd for each in points))
    margin = max(high - low, high * 0.05) * 0.12
    most = max(1, *(point.rereads for point in points))
    plot = Plot(most * 1.06, high + margin, height, first=-most * 0.08, floor=max(0.0, low - margin), head=10, foot=34)
    pieces = [*plot.grid(_levels(low - margin, high + margin))]
    for program, found in by_program(points).items():
        best = best_points(found)
        line = [(float(point.rereads), min(point.usd, high + margin)) for point in sorted(best, key=lambda each: each.rereads)]
        pieces.append(plot.line(line, f"trace {colours[program]}", width=2) if len(line) > 1 else "")
        for point in found:
            size = 4.5 if point in best else 3.0
            pieces.append(plot.dot(point.rereads, min(point.usd, high + margin), colours[program], _title(point), size))
            # Labels of points close to each other would cover each other, so only the best have one.
            pieces.append(_label(plot, point, high + margin, colours[program]) if point in best or point.usd > high + margin else "")
    pieces += plot.axis_labels([(level, short_number(level)) for level in axis_steps(most, 6)], inside=False)
    pieces.append(f'<text class="tick" x="100%" y="{height - 20}" text-anchor="end">re-reads →</text>')
    ends = "; ".join(f"{snippet(point.name, 90)}: {dollars(point.usd)}, {point.rereads:,} re-reads" for point in points)
    return plot.svg(f"dollars against re-reads: {ends}", pieces)


def _levels(low: float, high: float) -> Iterable[tuple[float, str]]:
    """Return round dollars between two values, with their labels."""
    steps = axis_steps(high - max(0.0, low), 5)
    step = steps[1] if len(steps) > 1 else high or 1.0
    first = ceil(max(0.0, low) / step)
    return [(number * step, dollars(number * step)) for number in range(first, int(high / step) + 1)]


def _title(point: CurvePoint) -> str:
    counts = f"{point.rereads:,} re-reads, {point.folds_per_100:.1f} folds per 100 calls, mean context {short_number(point.mean)}"
    return f"{snippet(point.name, 120)}: {dollars(point.usd)}, {counts}"


def _label(plot: Plot, point: CurvePoint, top: float, colour: str) -> str:
    words = f"{point.label} ({dollars(point.usd)})" if point.usd > top else point.label
    y = float(plot.y(min(point.usd, top))) + (15 if point.usd > top else -7)
    place = f'x="{plot.x(point.rereads)}" y="{y:.1f}" text-anchor="middle"'
    return f'<text class="tick {colour}" style="fill:currentColor" {place}>{snippet(words, 30)}</text>'
