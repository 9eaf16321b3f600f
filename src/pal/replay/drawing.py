"""Drawings of a report: markup and CSS that its parts share, bars and curves as SVG, and treemaps of the fullest window."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from math import floor, log10
from typing import NamedTuple

from msgspec import Struct

from pal.replay.outcome import CardRun, Outcome, ProbeScores, ReplayedSession, SurvivalShares, WindowShare, ratio
from pal.replay.replay import UNSEEN_SOURCE
from palimpsest.core.text import counted
from palimpsest.exchange.pages import headline
from palimpsest.wire.models import FREE

PALETTE = 9
"""Number of distinct profile colours; further profiles reuse them."""

SURVIVAL_WORDS = {
    "user_messages": "what the user said",
    "edited_paths": "files that were edited",
    "read_paths": "files that were read",
    "commands": "commands",
    "numbers": "numbers",
}
"""Kinds of entities that can survive a fold, most important first."""

PARTS = {
    "cache_read": "cache reads",
    "cache_write": "cache writes",
    "input": "uncached input",
    "output": "output",
    "summaries": "summaries",
    "rereads": "re-reads",
    "keep_alive": "keep-alive",
}
"""Parts of a cost bar: turn calls by part of the bill, then summaries, re-reads, and requests that keep the cache alive."""

WINDOW_GROUPS = {
    "head": ("head and tools", "c5"),
    "user": ("the user", "c0"),
    "assistant": ("replies and calls", "c2"),
    "result": ("results of tools", "c4"),
    "summary": ("summaries", "c3"),
    "context": ("context and reminders", "c7"),
    "other": ("other", "c8"),
}
"""Groups of items in a window, with their titles and colours."""


def snippet(text: str, width: int = 160) -> str:
    """Return the beginning of a text on one line, escaped for HTML.

    Slashes of URLs are escaped too, so that a search of the file finds no URL.
    """
    return escape(headline(text, width)).replace("//", "&#47;&#47;")


def short_number(number: float) -> str:
    """Format a count in a few characters: 950, 9.5k, 163k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 9_950:
        return f"{number / 1_000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000:.0f}k" if number < 999_500 else f"{number / 1_000_000:.1f}M"


def dollars(usd: float | None) -> str:
    """Format dollars, with four decimals for small amounts; `unknown` for `None`."""
    if usd is None:
        return "unknown"
    sign, size = "−" if usd < 0 else "", abs(usd)
    return f"{sign}${size:,.2f}" if size >= 0.095 or size < 0.00005 else f"{sign}${size:.4f}"


def percent(share: float) -> str:
    """Format a share from 0 to 1, with a decimal near its ends, so that only 0 and 1 read as 0 % and 100 %."""
    if 0 < share < 0.0005:
        return "&lt;0.1 %"
    if 0.9995 <= share < 1:
        return "99.9 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0095 or 0.995 <= share < 1 else f"{share * 100:.0f} %"


def ratio_text(ratio: float | None) -> str:
    """Format a ratio; a dash for None."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def mean_survival(survival: SurvivalShares) -> float:
    """Return the mean over all kinds except numbers, most of which are never needed again."""
    kinds = [name for name in SURVIVAL_WORDS if name != "numbers"]
    return sum(float(getattr(survival, name)) for name in kinds) / len(kinds)


def colour_class(number: int) -> str:
    """Return the CSS class of the profile with this number."""
    return f"c{number % PALETTE}"


def profile_title(name: str, colours: Mapping[str, str]) -> str:
    """Return the name of a profile in its colour."""
    return f'<b class="{colours.get(name, colour_class(0))}">{snippet(name, 40)}</b>'


def panels(drawings: Iterable[tuple[str, str]], style: str = "panels") -> str:
    """Return drawings beside each other, from pairs of a title and a drawing; both are markup."""
    figures = "".join(f'<figure class="panel"><figcaption>{title}</figcaption>\n{inner}</figure>\n' for title, inner in drawings)
    return f'<div class="{style}">\n{figures}</div>\n'


def profile_legend(names: Iterable[str], colours: Mapping[str, str]) -> str:
    """Return the legend of some profiles."""
    return legend((colours[name], snippet(name, 40)) for name in names)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend from pairs of a CSS class and a label, which is markup."""
    keys = "".join(
        f'<li><svg class="key {style}" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2"/></svg>{words}</li>'
        for style, words in entries
    )
    return f'<ul class="legend">{keys}</ul>\n'


def scrollable_table(heads: Iterable[str], rows: Iterable[str], style: str) -> str:
    """Return a table in a box that scrolls, also by keyboard, if it is wider than the screen; a head is a label or a whole cell."""
    head = "".join(cell if cell.startswith("<th") else f"<th>{cell}</th>" for cell in heads)
    table = f'<table class="{style}">\n<thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table>'
    return f'<div class="wide" tabindex="0" role="region" aria-label="table">{table}</div>\n'


PAGE_STYLE = """
:root{--c0:#12805c;--c1:#c24e16;--c2:#2f6fd0;--c3:#8a4fc7;--c4:#8f6a00;--c5:#6b7280;--c6:#c4326f;--c7:#0b7a8c;--c8:#8b5e3c;
--cache-read:#4c83d6;--cache-write:#e0a32e;--input:#8f8a80;--output:#3c9a73;--summaries:#8a4fc7;--rereads:#cf3f36;--keep-alive:#2f9fb3}
@media (prefers-color-scheme:dark){:root{--c0:#57c99b;--c1:#f08a57;--c2:#78a9f5;--c3:#bf94ee;--c4:#dcb340;--c5:#a3aab5;--c6:#f07fae;
--c7:#4fc3d6;--c8:#c79b77;--cache-read:#6d9fe8;--cache-write:#d9a440;--input:#8a857a;--output:#55b78d;--summaries:#b387e6;--rereads:#f0746b;--keep-alive:#4fc3d6}}
body{max-width:76rem}
.kicker{margin:0;color:var(--faint);font-size:.85rem}
header h1{margin-bottom:.25rem}
.facts{margin:0 0 1rem;color:var(--faint);font-size:.9rem}
.answer{font-size:1.15rem;line-height:1.45;margin:1rem 0;max-width:52rem}
.answer b{font-size:1.5rem;color:var(--user)}.answer .worse{color:var(--bad)}.answer span{white-space:nowrap}
h3{font-size:1.05rem;margin:2.25rem 0 .6rem}
h4{font-size:.9rem;margin:1rem 0 .3rem}
.bad{color:var(--bad)}
.note{color:var(--faint);font-size:.85rem}
figcaption{overflow-wrap:anywhere}
svg{display:block;overflow:visible}
.wide{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{font-weight:500;color:var(--faint);white-space:nowrap}
.compared td,.compared thead th:not(:first-child){text-align:right;white-space:nowrap}
.compared tbody th{font-weight:600;white-space:nowrap;position:sticky;left:0;background:var(--page)}
.each tbody th{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
.compared tr:last-child>*{border-bottom:0}
td small{display:block;color:var(--faint);font-size:.92em;overflow-wrap:anywhere}
.compared td small{display:inline;margin-left:.35rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.3rem 0 .7rem;font-size:.82rem;color:var(--faint)}
.legend li{display:flex;align-items:center;gap:.35rem}
.key{display:inline-block;flex:none}
.bars{display:grid;gap:.35rem}
.bar{display:grid;grid-template-columns:11rem 1fr 4.5rem 3.5rem;gap:.75rem;align-items:center;font-size:.88rem}
.bar .who{overflow-wrap:anywhere;font-weight:600}
.bar .sum,.bar .times{text-align:right;font-variant-numeric:tabular-nums}
.bar .sum{margin:0;color:var(--ink);font-size:inherit}
.bar .times{color:var(--faint)}
.yardstick,.key.yardstick{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1.25rem 1.75rem}
.three{grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}
.panel{margin:0;min-width:0}
.panel figcaption{font-size:.82rem;color:var(--faint);margin-bottom:.25rem}
.panel figcaption b{font-size:.9rem}
.plot .grid{stroke:var(--line);stroke-width:1}
.tick{fill:var(--faint);font-size:11px}
.trace .line{fill:none;stroke:currentColor;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.plot .trace{overflow:hidden}
.trace .area{fill:currentColor;fill-opacity:.14;stroke:none}
.window{stroke:var(--bad);stroke-width:1;stroke-dasharray:5 4;opacity:.8}
.fold{fill:var(--edit);stroke:var(--page);stroke-width:1}
.fall{stroke:var(--edit);stroke-width:1.2;stroke-dasharray:2 2}
.mask{fill:var(--page);stroke:var(--edit);stroke-width:1.2}
.mask.small{fill:var(--edit);stroke:none}
.mark.reread,.mark.reread line{stroke:var(--rereads);stroke-width:2}
.mark.pause,.mark.pause line{stroke:var(--faint);stroke-width:1.2}
svg.mark.fold,svg.mark.mask{stroke:none;fill:none}
svg.mark.fold circle{fill:var(--edit)}
svg.mark.mask circle{fill:var(--page);stroke:var(--edit);stroke-width:1.2}
.map{border-radius:4px;overflow:hidden}
.map svg{overflow:hidden}
.map rect{fill-opacity:.28;stroke:var(--page);stroke-width:2}
.map .free{fill:none;stroke:var(--line);stroke-width:1;stroke-dasharray:4 3}
.map .name{font-size:12px;font-weight:600;fill:var(--ink)}
.map .tight{display:none}
.map .size{font-size:11px;fill:var(--ink);opacity:.8}
.losses .number{white-space:nowrap;text-align:right;width:1%}
.losses .number[data-word=event],.losses .number[data-word=call]{text-align:left}
.losses td:last-child{width:60%}
.losses details{margin:0;padding:0;border:0;background:none;font-size:inherit}
.losses p{margin:.3rem 0}
.losses code,footer code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
background:var(--code);border-radius:3px;padding:0 .25rem;overflow-wrap:anywhere}
.events tr{scroll-margin-top:3rem}.events td:last-child{width:50%}
.events td b{margin-right:.15rem;cursor:default}
.session{background:none;border:0;border-top:1px solid var(--line);border-radius:0;padding:.75rem 0;margin:1.5rem 0 0;font-size:inherit}
.session>summary{font-size:1.1rem}
.events tr:target>*{background:color-mix(in srgb,var(--edit) 18%,transparent)}
footer p{max-width:52rem}
"""
PAGE_STYLE += "".join(f".part-{name}{{fill:var(--{name.replace('_', '-')})}}" for name in PARTS)
PAGE_STYLE += "".join(f".kind-{name}{{fill:var(--{colour})}}" for name, (_, colour) in WINDOW_GROUPS.items())
PAGE_STYLE += "".join(
    f".c{number}{{color:var(--c{number})}}circle.c{number},.key.c{number}{{fill:var(--c{number})}}" for number in range(PALETTE)
)
PAGE_STYLE += """
@media (max-width:40rem){main{overflow-x:clip}.compared tbody th{white-space:normal;min-width:6.5rem}
.map .tight{display:inline}.map .roomy{display:none}
.bar{grid-template-columns:1fr auto auto;gap:.1rem .75rem}.bar .drawn{grid-row:2;grid-column:1/-1}
.three{grid-template-columns:1fr 1fr;gap:.9rem}
.losses thead{display:none}.losses tr{display:flex;flex-wrap:wrap;gap:0 .9rem;padding:.5rem 0;border-bottom:1px solid var(--line)}
.losses td{display:block;border:0;padding:0}.losses td:empty{display:none}.losses td:last-child{flex-basis:100%}
.losses td small{display:inline;margin-left:.4rem}
.losses td:last-child small{display:block;margin:0}.losses td[data-word]::before{content:attr(data-word) " ";color:var(--faint)}}
@media print{.map .tight{display:inline}.map .roomy{display:none}.panels{padding-right:6px}
.wide{overflow:visible}figure,tr,.bar{break-inside:avoid}h3,h4,figcaption,.legend{break-after:avoid}
.compared tbody th{position:static}
.panels{grid-template-columns:1fr 1fr}.three{grid-template-columns:1fr 1fr 1fr}table{font-size:7.5pt}th,td{padding:.15rem .3rem}
details{border:0;padding:0}footer{margin-top:.6rem;font-size:7.5pt}footer p{margin:.2rem 0;max-width:none}
details:not([open])::details-content{content-visibility:hidden;block-size:0}}
@page{margin:14mm}
"""


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
