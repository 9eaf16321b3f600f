"""Bars and curves of a report as SVG: what each profile costs, how its bill grows, and what is left after each fold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import floor, log10

from palimpsest.lab.outcome import Outcome, Probed, Replayed, Survival, ratio
from palimpsest.lab.report.markup import SURVIVAL_WORDS, figure, legend, money, percent, said, times
from palimpsest.wire.models.prices import FREE

Point = tuple[float, float]

WIDE = 1000
"""How many units a stretched shape is wide."""


def steps_to(top: float, most: int = 4) -> list[float]:
    """Round numbers from nothing up to `top`, at most so many above nothing."""
    if top <= 0:
        return [0.0]
    rough = top / most
    size = 10.0 ** floor(log10(rough))
    step = next(size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough * 0.999)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def thinned(points: Sequence[Point], most: int = 600) -> list[Point]:
    """As many points as a screen can show: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    stretch = len(points) * 2 / most
    found: list[Point] = [points[0]]
    for number in range(most // 2):
        part = points[int(number * stretch) : max(int((number + 1) * stretch), int(number * stretch) + 1)]
        found += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return [*found, points[-1]]


class Plane:
    """A drawing of some height: `across` and `up` are the largest values of its axes, `head` and `foot` the room left for words."""

    def __init__(self, across: float, up: float, height: int = 170, *, first: float = 0.0, head: int = 14, foot: int = 18) -> None:
        self.height = height
        self._first = first
        self._across = max(across - first, 1e-9)
        self._up = max(up, 1e-9)
        self._head = head
        self._room = height - head - foot

    def x(self, value: float) -> str:
        """A place across, as a share of the width."""
        return f"{(value - self._first) * 100 / self._across:.2f}%"

    def y(self, value: float) -> str:
        """A place up, in pixels from the top."""
        return f"{self._head + self._room * (1 - value / self._up):.1f}"

    def grid(self, levels: Iterable[tuple[float, str]]) -> Iterator[str]:
        """Level lines, each with its words above its beginning."""
        for level, words in levels:
            at = self.y(level)
            yield f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
            if words:
                yield f'<text class="tick" x="0" y="{float(at) - 3:.1f}">{words}</text>'

    def feet(self, words: Sequence[tuple[float, str]], *, inside: bool = True) -> Iterator[str]:
        """Words below the axis; the last, and the first unless there is room before it, stay within the drawing."""
        for number, (value, text) in enumerate(words):
            last = number == len(words) - 1 and number > 0
            anchor = "start" if number == 0 and inside else "end" if last else "middle"
            yield f'<text class="tick" x="{self.x(value)}" y="{self.height - 4}" text-anchor="{anchor}">{text}</text>'

    def line(self, points: Sequence[Point], look: str, *, filled: bool = False, width: float = 1.6) -> str:
        """A line through points, stretched to the width; with the area under it if it is filled."""
        places = [f"{(x - self._first) * WIDE / self._across:.1f} {self.y(y)}" for x, y in points]
        if not places:
            return ""
        path = "M" + "L".join(places)
        ends = (places[-1].split()[0], self.y(0), places[0].split()[0], self.y(0))
        area = f'<path class="area" d="{path}L{ends[0]} {ends[1]}L{ends[2]} {ends[3]}Z"/>' if filled else ""
        return (
            f'<svg class="{look}" width="100%" height="{self.height}" viewBox="0 0 {WIDE} {self.height}" preserveAspectRatio="none">'
            f'{area}<path class="line" stroke-width="{width:.1f}" d="{path}"/></svg>'
        )

    def dot(self, x: float, y: float, look: str, title: str, size: float = 3.5) -> str:
        """A dot with the words that show when one points at it; the words are markup already."""
        return f'<circle class="{look}" cx="{self.x(x)}" cy="{self.y(y)}" r="{size}"><title>{title}</title></circle>'

    def drawn(self, label: str, pieces: Iterable[str]) -> str:
        """The whole drawing; the label is markup already."""
        return f'<svg class="plot" width="100%" height="{self.height}" role="img" aria-label="{label}">\n{"".join(pieces)}\n</svg>\n'


PARTS = {
    "cache_read": "cache reads",
    "cache_write": "cache writes",
    "input": "uncached input",
    "output": "output",
    "summaries": "summaries",
    "rereads": "re-reads",
}
"""What a bar is made of: the calls of the conversation by part, then what was asked for summaries, then what had to be fetched again."""


def parts_of(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Dollars by the parts of a bar; together they are the whole bill."""
    calls = [call for outcome in outcomes for call in outcome.calls]
    own = sum((call.cost for call in calls if call.purpose == "turn"), FREE)
    return {
        "cache_read": own.cache_read,
        "cache_write": own.cache_write + own.cache_write_long,
        "input": own.input,
        "output": own.output,
        "summaries": sum(call.cost.total for call in calls if call.purpose == "summary"),
        "rereads": sum(call.cost.total for call in calls if call.purpose == "reread"),
    }


def bars(by_profile: Mapping[str, dict[str, float]], against: str = "") -> str:
    """The bars, the cheapest scale being the dearest profile; `against` is the profile whose end is marked in every bar."""
    dearest = max((sum(parts.values()) for parts in by_profile.values()), default=0.0)
    yardstick = sum(by_profile.get(against, {}).values())
    used = {name for parts in by_profile.values() for name, usd in parts.items() if usd > 0}
    keys = legend([(f"part-{name}", words) for name, words in PARTS.items() if name in used])
    if yardstick:
        line = '<svg class="key yardstick" width="12" height="12" aria-hidden="true"><line x1="6" x2="6" y1="0" y2="12"/></svg>'
        keys = keys.replace("</ul>", f"<li>{line}what {said(against, 40)} costs</li></ul>")
    rows = "".join(_row(name, parts, dearest, yardstick) for name, parts in by_profile.items())
    return f'{keys}<div class="bars" role="table">\n{rows}</div>\n'


def _row(profile: str, parts: dict[str, float], dearest: float, yardstick: float) -> str:
    total = sum(parts.values())
    drawn, at = [], 0.0
    for name, words in PARTS.items():
        usd = parts[name]
        if usd <= 0:
            continue
        title = f"<title>{words}: {money(usd)}, {percent(usd / total)}</title>"
        place = f'x="{_share(at, dearest)}" width="{_share(usd, dearest)}"'
        drawn.append(f'<rect class="part-{name}" {place} height="100%">{title}</rect>')
        at += usd
    if yardstick:
        place = _share(yardstick, dearest)
        drawn.append(f'<line class="yardstick" x1="{place}" x2="{place}" y1="0" y2="100%"/>')
    words = ", ".join(f"{PARTS[name]} {money(usd)}" for name, usd in parts.items() if usd > 0)
    compared = f'<span class="times" role="cell">{times(ratio(total, yardstick))}</span>' if yardstick else ""
    return (
        f'<div class="bar" role="row"><span class="who" role="rowheader">{said(profile, 40)}</span>'
        f'<span class="drawn" role="cell"><svg width="100%" height="22" role="img" aria-label="{words}">{"".join(drawn)}</svg></span>'
        f'<span class="sum" role="cell">{money(total)}</span>{compared}</div>\n'
    )


def _share(usd: float, dearest: float) -> str:
    return f"{usd * 100 / dearest:.3f}%" if dearest else "0%"


Curve = Sequence[tuple[int, float]]

_LEVELS = ((0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %"))
_FOLDS = 20


def survivals(by_profile: Mapping[str, Sequence[Outcome]], colours: Mapping[str, str]) -> str:
    """Curves of each kind of thing over folds: the mean over the sessions that had so many."""
    after = {name: _after_folds(outcomes) for name, outcomes in by_profile.items()}
    folded = {name: found for name, found in after.items() if found}
    unfolded = [said(name, 40) for name, found in after.items() if not found]
    rest = f'<p class="note">Without a fold, so that nothing was lost by one: {", ".join(unfolded)}.</p>\n' if unfolded else ""
    if not folded:
        return rest
    panels = "".join(
        figure(
            words,
            _curves({name: [(nth, getattr(mean, kind)) for nth, mean in found] for name, found in folded.items()}, colours, words, "fold"),
        )
        for kind, words in SURVIVAL_WORDS.items()
    )
    keys = legend([(colours[name], said(name, 40)) for name in folded])
    return f'{keys}<div class="panels three">\n{panels}</div>\n{rest}'


def probes(by_profile: Mapping[str, Mapping[str, Probed]], colours: Mapping[str, str]) -> str:
    """Curves of answered probes over forced compactions; nothing when no probes were asked for."""
    asked = {name: sorted((int(cycles), probed) for cycles, probed in found.items()) for name, found in by_profile.items() if found}
    if not asked:
        return ""
    kinds = (("visible", "answered from what shows"), ("with_recall", "answered with one recall"))
    panels = "".join(
        figure(
            words,
            _curves(
                {name: [(cycle, getattr(one, kind)) for cycle, one in found] for name, found in asked.items()}, colours, words, "cycle"
            ),
        )
        for kind, words in kinds
    )
    made = [f"{said(name, 40)} {last.folds:,} of {last.forced:,}" for name, found in asked.items() if (last := found[-1][1]).forced]
    note = f'<p class="note">Folds that were made in the last of these, of all that were forced: {", ".join(made)}.</p>\n' if made else ""
    return f'{legend([(colours[name], said(name, 40)) for name in asked])}<div class="panels">\n{panels}</div>\n{note}'


def _after_folds(outcomes: Sequence[Outcome]) -> list[tuple[int, Survival]]:
    """The mean survival after the nth fold, of the sessions that had an nth."""
    of_each = [[edit.survival for edit in outcome.edits if edit.survival is not None] for outcome in outcomes]
    found = []
    for nth in range(min(_FOLDS, max(map(len, of_each), default=0))):
        there = [folds[nth] for folds in of_each if nth < len(folds)]
        mean = Survival(**{kind: sum(float(getattr(one, kind)) for one in there) / len(there) for kind in SURVIVAL_WORDS})
        found.append((nth + 1, mean))
    return found


def _curves(by_profile: Mapping[str, Curve], colours: Mapping[str, str], words: str, unit: str) -> str:
    last = max((nth for curve in by_profile.values() for nth, _ in curve), default=1)
    # Room before the first fold, so that no curve runs through the words of the axis; a single fold stands in the middle.
    plane = Plane(last, 1.0, 130, first=1 - (last - 1) * 0.22) if last > 1 else Plane(2.0, 1.0, 130)
    pieces = [*plane.grid(_LEVELS)]
    for number, (name, curve) in enumerate(by_profile.items()):
        # Where curves lie upon each other the later ones are thinner, so that all of them can be seen.
        width = max(1.4, 5.4 - number * 0.9)
        pieces.append(plane.line(curve, f"trace {colours[name]}", width=width) if len(curve) > 1 else "")
        pieces += [
            plane.dot(nth, share, colours[name], f"{said(name, 40)}, {unit} {nth}: {percent(share)}", width / 2 + 1.6)
            for nth, share in curve
        ]
    marks = sorted({nth for curve in by_profile.values() for nth, _ in curve})
    pieces.append(f'<text class="tick" x="0" y="{plane.height - 4}">{unit}</text>')
    pieces += plane.feet([(nth, str(nth)) for nth in (marks if len(marks) <= 10 else (1, last))], inside=False)
    ends = "; ".join(f"{said(name, 40)} {percent(curve[-1][1])}" for name, curve in by_profile.items() if curve)
    return plane.drawn(f"{words} after the last {unit}: {ends}", pieces)


def spending(session: Replayed, colours: dict[str, str]) -> str:
    """All profiles of a session in one drawing."""
    bills = {name: _grown(outcome) for name, outcome in session.profiles.items() if outcome.calls}
    if not bills:
        return ""
    most = max(bill[-1][1] for bill in bills.values())
    last = max(bill[-1][0] for bill in bills.values())
    plane = Plane(last, most, 220)
    pieces = [*plane.grid([(0.0, ""), *((level, money(level)) for level in steps_to(most, 5) if level)])]
    for name, bill in bills.items():
        pieces.append(plane.line(thinned(bill), f"trace {colours[name]}", width=2))
        pieces.append(plane.dot(*bill[-1], colours[name], f"{said(name, 40)}: {money(bill[-1][1])}", 4))
    pieces += plane.feet([(0, "call 1"), (last, f"call {last + 1:,.0f}")])
    ends = ", ".join(f"{said(name, 40)} {money(bill[-1][1])}" for name, bill in bills.items())
    return legend([(colours[name], said(name, 40)) for name in bills]) + plane.drawn(f"The bill after the last call: {ends}", pieces)


def _grown(outcome: Outcome) -> list[Point]:
    """Steps and what had been spent by then; summaries and re-reads belong to the step that asked for them."""
    calls = sorted(outcome.calls, key=lambda call: call.step)
    spent = accumulate(call.cost.total for call in calls)
    return [(float(call.step), usd) for call, usd in zip(calls, spent, strict=True)]
