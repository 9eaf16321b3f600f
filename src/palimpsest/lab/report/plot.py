"""Bars and curves of a report as SVG: cost by part, cumulative cost, survival after folds, and probes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import floor, log10

from msgspec import Struct

from palimpsest.lab.outcome import Outcome, ProbeScores, ReplayedSession, SurvivalShares, ratio
from palimpsest.lab.report.markup import PARTS, SURVIVAL_WORDS, dollars, legend, panels, percent, profile_legend, ratio_text, snippet
from palimpsest.wire.models.prices import FREE

Point = tuple[float, float]

UNITS = 1000
"""Width of the view box of stretched shapes, in units."""


def axis_steps(top: float, most: int = 4) -> list[float]:
    """Return round axis values from 0 up to `top`, at most `most` above 0."""
    if top <= 0:
        return [0.0]
    rough = top / most
    size = 10.0 ** floor(log10(rough))
    step = next(size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough * 0.999)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def downsampled(points: Sequence[Point], most: int = 600) -> list[Point]:
    """Reduce points to about `most`: the lowest and the highest of each stretch, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    stretch = len(points) * 2 / most
    found: list[Point] = [points[0]]
    for number in range(most // 2):
        part = points[int(number * stretch) : max(int((number + 1) * stretch), int(number * stretch) + 1)]
        found += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return [*found, points[-1]]


class Plot:
    """Coordinate system of a chart: `across` and `up` are the largest values of its axes, `first` and `floor` the smallest.

    `head` and `foot` are margins in pixels.
    """

    def __init__(
        self, across: float, up: float, height: int = 170, *, first: float = 0.0, floor: float = 0.0, head: int = 14, foot: int = 18
    ) -> None:
        self.height = height
        self._first = first
        self._across = max(across - first, 1e-9)
        self._floor = floor
        self._up = max(up - floor, 1e-9)
        self._head = head
        self._room = height - head - foot

    def x(self, value: float) -> str:
        """Return the horizontal position of a value, in percent of the width."""
        return f"{(value - self._first) * 100 / self._across:.2f}%"

    def y(self, value: float) -> str:
        """Return the vertical position of a value, in pixels from the top."""
        return f"{self._head + self._room * (1 - (value - self._floor) / self._up):.1f}"

    def grid(self, levels: Iterable[tuple[float, str]]) -> Iterator[str]:
        """Yield horizontal lines, each with its label."""
        for level, words in levels:
            at = self.y(level)
            yield f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
            if words:
                yield f'<text class="tick" x="0" y="{float(at) - 3:.1f}">{words}</text>'

    def axis_labels(self, words: Sequence[tuple[float, str]], *, inside: bool = True) -> Iterator[str]:
        """Yield labels below the axis; the last one, and with `inside` the first one, stay within the chart."""
        for number, (value, text) in enumerate(words):
            last = number == len(words) - 1 and number > 0
            anchor = "start" if number == 0 and inside else "end" if last else "middle"
            yield f'<text class="tick" x="{self.x(value)}" y="{self.height - 4}" text-anchor="{anchor}">{text}</text>'

    def line(self, points: Sequence[Point], css_class: str, *, filled: bool = False, width: float = 1.6) -> str:
        """Return a line through points, stretched to the width; `filled` adds the area below it."""
        places = [f"{(x - self._first) * UNITS / self._across:.1f} {self.y(y)}" for x, y in points]
        if not places:
            return ""
        path = "M" + "L".join(places)
        ends = (places[-1].split()[0], self.y(self._floor), places[0].split()[0], self.y(self._floor))
        area = f'<path class="area" d="{path}L{ends[0]} {ends[1]}L{ends[2]} {ends[3]}Z"/>' if filled else ""
        return (
            f'<svg class="{css_class}" width="100%" height="{self.height}" viewBox="0 0 {UNITS} {self.height}" preserveAspectRatio="none">'
            f'{area}<path class="line" stroke-width="{width:.1f}" d="{path}"/></svg>'
        )

    def dot(self, x: float, y: float, css_class: str, title: str, size: float = 3.5) -> str:
        """Return a dot with a tooltip, which is markup."""
        return f'<circle class="{css_class}" cx="{self.x(x)}" cy="{self.y(y)}" r="{size}"><title>{title}</title></circle>'

    def svg(self, label: str, pieces: Iterable[str]) -> str:
        """Return the complete chart; the label is markup."""
        return f'<svg class="plot" width="100%" height="{self.height}" role="img" aria-label="{label}">\n{"".join(pieces)}\n</svg>\n'


def cost_parts(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return dollars by part of a cost bar; their sum is the whole bill."""
    calls = [call for outcome in outcomes for call in outcome.calls]
    own = sum((call.cost for call in calls if call.purpose == "turn"), FREE)
    return {
        "cache_read": own.cache_read,
        "cache_write": own.cache_write + own.cache_write_long,
        "input": own.input,
        "output": own.output,
        "summaries": sum(call.cost.total for call in calls if call.purpose == "summary"),
        "rereads": sum(call.cost.total for call in calls if call.purpose == "reread"),
        "keep_alive": sum(call.cost.total for call in calls if call.purpose == "keep_alive"),
    }


def cost_bars(by_profile: Mapping[str, dict[str, float]], against: str = "") -> str:
    """Return a cost bar for each profile, scaled to the most expensive one; the cost of `against` is marked in every bar."""
    highest_usd = max((sum(parts.values()) for parts in by_profile.values()), default=0.0)
    baseline_usd = sum(by_profile.get(against, {}).values())
    used = {name for parts in by_profile.values() for name, usd in parts.items() if usd > 0}
    keys = legend((f"part-{name}", words) for name, words in PARTS.items() if name in used)
    if baseline_usd:
        line = '<svg class="key yardstick" width="12" height="12" aria-hidden="true"><line x1="6" x2="6" y1="0" y2="12"/></svg>'
        keys = keys.replace("</ul>", f"<li>{line}what {snippet(against, 40)} costs</li></ul>")
    rows = "".join(_cost_bar(name, parts, highest_usd, baseline_usd) for name, parts in by_profile.items())
    return f'{keys}<div class="bars" role="table">\n{rows}</div>\n'


def _cost_bar(profile: str, parts: dict[str, float], highest_usd: float, baseline_usd: float) -> str:
    total = sum(parts.values())
    shapes, at = [], 0.0
    for name, words in PARTS.items():
        usd = parts[name]
        if usd <= 0:
            continue
        title = f"<title>{words}: {dollars(usd)}, {percent(usd / total)}</title>"
        place = f'x="{_percent_of(at, highest_usd)}" width="{_percent_of(usd, highest_usd)}"'
        shapes.append(f'<rect class="part-{name}" {place} height="100%">{title}</rect>')
        at += usd
    if baseline_usd:
        place = _percent_of(baseline_usd, highest_usd)
        shapes.append(f'<line class="yardstick" x1="{place}" x2="{place}" y1="0" y2="100%"/>')
    words = ", ".join(f"{PARTS[name]} {dollars(usd)}" for name, usd in parts.items() if usd > 0)
    times = f'<span class="times" role="cell">{ratio_text(ratio(total, baseline_usd))}</span>' if baseline_usd else ""
    return (
        f'<div class="bar" role="row"><span class="who" role="rowheader">{snippet(profile, 40)}</span>'
        f'<span class="drawn" role="cell"><svg width="100%" height="22" role="img" aria-label="{words}">{"".join(shapes)}</svg></span>'
        f'<span class="sum" role="cell">{dollars(total)}</span>{times}</div>\n'
    )


def _percent_of(usd: float, highest_usd: float) -> str:
    return f"{usd * 100 / highest_usd:.3f}%" if highest_usd else "0%"


Curve = Sequence[tuple[int, float]]

_SHARE_LEVELS = ((0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %"))
_MOST_FOLDS = 20


def survival_charts(by_profile: Mapping[str, Sequence[Outcome]], colours: Mapping[str, str]) -> str:
    """Return a chart for each kind of entity: its mean survival after each fold, over the sessions with that many folds."""
    after = {name: _mean_survival_by_fold(outcomes) for name, outcomes in by_profile.items()}
    folded = {name: found for name, found in after.items() if found}
    unfolded = [snippet(name, 40) for name, found in after.items() if not found]
    rest = f'<p class="note">Without a fold: {", ".join(unfolded)}.</p>\n' if unfolded else ""
    if not folded:
        return rest
    return profile_legend(folded, colours) + panels(_share_charts(folded, SURVIVAL_WORDS, colours, "fold"), "panels three") + rest


def probe_charts(by_profile: Mapping[str, Mapping[str, ProbeScores]], colours: Mapping[str, str]) -> str:
    """Return charts of answered probes over forced folds; empty if no probes were asked."""
    asked = {name: sorted((int(cycles), probed) for cycles, probed in found.items()) for name, found in by_profile.items() if found}
    if not asked:
        return ""
    kinds = {"visible": "answered from what shows", "with_recall": "answered with one recall"}
    folds_made = [
        f"{snippet(name, 40)} {last.folds:,} of {last.forced:,}" for name, found in asked.items() if (last := found[-1][1]).forced
    ]
    note = f"Folds that were made in the last of these, of all that were forced: {', '.join(folds_made)}."
    charts = panels(_share_charts(asked, kinds, colours, "cycle"))
    return profile_legend(asked, colours) + charts + (f'<p class="note">{note}</p>\n' if folds_made else "")


def _mean_survival_by_fold(outcomes: Sequence[Outcome]) -> list[tuple[int, SurvivalShares]]:
    """Return the mean survival after the nth fold, over the sessions that had an nth fold."""
    survivals_by_session = [[edit.survival for edit in outcome.edits if edit.survival is not None] for outcome in outcomes]
    found = []
    for nth in range(min(_MOST_FOLDS, max(map(len, survivals_by_session), default=0))):
        nth_folds = [folds[nth] for folds in survivals_by_session if nth < len(folds)]
        mean = SurvivalShares(**{kind: sum(float(getattr(one, kind)) for one in nth_folds) / len(nth_folds) for kind in SURVIVAL_WORDS})
        found.append((nth + 1, mean))
    return found


def _share_charts(
    by_profile: Mapping[str, Sequence[tuple[int, Struct]]], kinds: Mapping[str, str], colours: Mapping[str, str], unit: str
) -> Iterator[tuple[str, str]]:
    """Yield title and chart of each kind of share; `by_profile` has the shares after each `unit`, `kinds` the titles by field."""
    for kind, words in kinds.items():
        curves = {name: [(nth, getattr(shares, kind)) for nth, shares in found] for name, found in by_profile.items()}
        yield words, _share_chart(curves, colours, words, unit)


def _share_chart(by_profile: Mapping[str, Curve], colours: Mapping[str, str], words: str, unit: str) -> str:
    last = max((nth for curve in by_profile.values() for nth, _ in curve), default=1)
    # Space before the first fold keeps curves off the axis labels; a single fold is drawn in the middle.
    plot = Plot(last, 1.0, 130, first=1 - (last - 1) * 0.22) if last > 1 else Plot(2.0, 1.0, 130)
    pieces = [*plot.grid(_SHARE_LEVELS)]
    for number, (name, curve) in enumerate(by_profile.items()):
        # Later curves are thinner, so that overlapping ones stay visible.
        width = max(1.4, 5.4 - number * 0.9)
        pieces.append(plot.line(curve, f"trace {colours[name]}", width=width) if len(curve) > 1 else "")
        pieces += [
            plot.dot(nth, share, colours[name], f"{snippet(name, 40)}, {unit} {nth}: {percent(share)}", width / 2 + 1.6)
            for nth, share in curve
        ]
    marks = sorted({nth for curve in by_profile.values() for nth, _ in curve})
    pieces.append(f'<text class="tick" x="0" y="{plot.height - 4}">{unit}</text>')
    pieces += plot.axis_labels([(nth, str(nth)) for nth in (marks if len(marks) <= 10 else (1, last))], inside=False)
    ends = "; ".join(f"{snippet(name, 40)} {percent(curve[-1][1])}" for name, curve in by_profile.items() if curve)
    return plot.svg(f"{words} after the last {unit}: {ends}", pieces)


def spending_chart(session: ReplayedSession, colours: dict[str, str]) -> str:
    """Return a chart of the cumulative cost of all profiles of a session; empty without calls."""
    bills = {name: _cumulative_cost(outcome) for name, outcome in session.profiles.items() if outcome.calls}
    if not bills:
        return ""
    most = max(bill[-1][1] for bill in bills.values())
    last = max(bill[-1][0] for bill in bills.values())
    plot = Plot(last, most, 220)
    pieces = [*plot.grid([(0.0, ""), *((level, dollars(level)) for level in axis_steps(most, 5) if level)])]
    for name, bill in bills.items():
        pieces.append(plot.line(downsampled(bill), f"trace {colours[name]}", width=2))
        pieces.append(plot.dot(*bill[-1], colours[name], f"{snippet(name, 40)}: {dollars(bill[-1][1])}", 4))
    pieces += plot.axis_labels([(0, "call 1"), (last, f"call {last + 1:,.0f}")])
    ends = ", ".join(f"{snippet(name, 40)} {dollars(bill[-1][1])}" for name, bill in bills.items())
    return profile_legend(bills, colours) + plot.svg(f"The bill after the last call: {ends}", pieces)


def _cumulative_cost(outcome: Outcome) -> list[Point]:
    """Return points of step and dollars spent so far; summaries and re-reads belong to the step that caused them."""
    calls = sorted(outcome.calls, key=lambda call: call.step)
    spent = accumulate(call.cost.total for call in calls)
    return [(float(call.step), usd) for call, usd in zip(calls, spent, strict=True)]
