"""The tables of a comparison, and the chart of dollars against re-reads for profiles with several settings."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Final

from pal.replay.drawing import (
    PALETTE,
    Plot,
    axis_steps,
    colour_class,
    dollars,
    mean_survival,
    percent,
    profile_legend,
    ratio_text,
    scrollable_table,
    short_number,
    snippet,
)
from pal.replay.outcome import RECORDED, CardRun, Comparison, Figures, Outcome, ReplayedSession, figures, ratio
from palimpsest.core.items import Value
from palimpsest.peers.claude_code import CLAUDE_MARGIN, CLAUDE_REPLY_CAP
from palimpsest.policies.named import parse_name

TRIGGER_SETTING: Final = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
RESERVE: Final = CLAUDE_REPLY_CAP + CLAUDE_MARGIN
# What a user chooses between; other settings of ours take a part away or add one, to show what it is worth.
CHOSEN_SETTINGS: Final = frozenset({"PAL_THRIFT", "PAL_COMPACT_AT"})


class CurvePoint(Value, frozen=True):
    """One profile over all sessions: its dollars and re-reads, and what no replay can price, folds per 100 calls and mean context.

    `rereads` are those that were billed, `rereads_by` those by each definition.
    """

    name: str
    usd: float
    rereads: int
    folds_per_100: float
    mean: int
    rereads_by: Mapping[str, int] = {}

    @property
    def program(self) -> str:
        """The name of the profile without its settings."""
        return self.name.partition("@")[0]

    @property
    def label(self) -> str:
        """What its settings say, in a few characters; the size at which Claude Code compacts instead of its window."""
        return ", ".join(_setting_label(key, value) for key, value in parse_name(self.name)[1].items()) or "default"


def _setting_label(key: str, value: str) -> str:
    if key == TRIGGER_SETTING and value.isdecimal():
        return f"{(int(value) - RESERVE) // 1_000}k"
    if key in CHOSEN_SETTINGS or key == "model_auto_compact_token_limit":
        return f"{int(value) // 1_000}k" if value.isdecimal() else value
    short_key = key.rpartition(".")[2]
    return short_key if value == "on" else f"{short_key}={value}"


def curve_points(sessions: Iterable[ReplayedSession]) -> tuple[CurvePoint, ...]:
    """Return the point of each profile over some sessions, in the order of the profiles."""
    outcomes: dict[str, list[Outcome]] = {}
    for session in sessions:
        for name, outcome in session.profiles.items():
            outcomes.setdefault(name, []).append(outcome)
    found = {name: figures(many) for name, many in outcomes.items()}
    return tuple(CurvePoint(name, one.usd, one.rereads, one.folds_per_100, one.mean, one.rereads_by) for name, one in found.items())


def has_curve(names: Iterable[str]) -> bool:
    """Whether some program was replayed with several settings."""
    programs = [name.partition("@")[0] for name in names]
    return len(set(programs)) < len(programs)


def by_program(points: Iterable[CurvePoint]) -> dict[str, tuple[CurvePoint, ...]]:
    """Group points by program, in the order in which the programs come first."""
    found: dict[str, tuple[CurvePoint, ...]] = {}
    for point in points:
        found[point.program] = (*found.get(point.program, ()), point)
    return found


def best_points(points: Iterable[CurvePoint]) -> tuple[CurvePoint, ...]:
    """Return the points that no other one beats in both dollars and re-reads, cheapest first."""
    best: list[CurvePoint] = []
    for point in sorted(points, key=lambda each: (each.usd, each.rereads)):
        if not best or point.rereads < best[-1].rereads:
            best.append(point)
    return tuple(best)


_COLUMNS = ("cost", "folds/100", "mean", "re-reads", "calls", "tokens in", "peak", "cached", "folds", "masks", "kept", "invalid")
_KEPT_NOTE = """<p class="note">kept: of the user messages, edited files, read files and commands in what was folded, the mean share that
still shows</p>
"""
# Programs in the order of their colours, which no choice of profiles changes.
_PROGRAMS = ("palimpsest", "claude-code", "codex", "opencode", "classroom", "none", "context-editing")
_VERSION = re.compile(r"-\d[\d.]*$")
# Columns that appear only if a value is not zero.
_FAILURE_COLUMNS: Mapping[str, Callable[[Figures], int]] = {"too long": lambda total: total.too_long, "failed": lambda total: total.failed}


def profile_colours(profiles: Sequence[str]) -> dict[str, str]:
    """Return the CSS colour class of each profile: that of its program on every page, or the next free one if another profile has it."""
    found: dict[str, str] = {}
    for name in profiles:
        program = _VERSION.sub("", name.partition("@")[0])
        first = _PROGRAMS.index(program) if program in _PROGRAMS else len(_PROGRAMS)
        wanted = [colour_class(first + step) for step in range(PALETTE)]
        found[name] = next((each for each in wanted if each not in found.values()), wanted[0])
    return found


def profiles_table(outcomes: Mapping[str, Sequence[Outcome]], against: str) -> str:
    """Return a table with one row for each profile."""
    figures_by_profile = {name: figures(many) for name, many in outcomes.items()}
    baseline_usd = figures_by_profile[against].usd if against in figures_by_profile else 0.0
    ratios = (f'<th title="cost against {snippet(against, 40)}">ratio</th>',) if baseline_usd else ()
    failures = {word: count for word, count in _FAILURE_COLUMNS.items() if any(count(total) for total in figures_by_profile.values())}
    rows = (
        _profile_row(name, total, baseline_usd, [count(total) for count in failures.values()]) for name, total in figures_by_profile.items()
    )
    table = scrollable_table(("profile", *ratios, *_COLUMNS, *failures), rows, "compared") + _KEPT_NOTE
    return table + "".join(_failure_note(name, total) for name, total in figures_by_profile.items() if total.failed)


def _failure_note(name: str, total: Figures) -> str:
    failed = f"{total.failed:,} of {total.asked:,} requests to the model failed, and the profile continued without it"
    return f'<p class="bad">{snippet(name, 40)}: {failed}; the first: {snippet(total.failure, 300)}</p>\n'


def _profile_row(name: str, total: Figures, baseline_usd: float, failures: Sequence[int]) -> str:
    cached = percent(total.cache_read / total.tokens_in) if total.tokens_in else "–"
    invalid = f'<b class="bad">{total.invalid}</b>' if total.invalid else "0"
    survives = percent(mean_survival(total.survival)) if total.folds else "–"
    cells = (
        *((ratio_text(ratio(total.usd, baseline_usd)),) if baseline_usd else ()),
        dollars(total.usd),
        f"{total.folds_per_100:.1f}",
        short_number(total.mean),
        "–" if name == RECORDED else f"{total.rereads:,}",
        f"{total.calls:,}",
        short_number(total.tokens_in),
        short_number(total.peak),
        cached,
        f"{total.folds:,}",
        f"{total.masks:,}",
        survives,
        invalid,
        *(f'<b class="bad">{count:,}</b>' if count else "0" for count in failures),
    )
    return f'<tr><th scope="row">{snippet(name, 90)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'


def sessions_table(run: CardRun, profiles: Sequence[str], against: str, anchors: Mapping[int, str]) -> str:
    """Return a table of the cost of each session under each profile; `anchors` link sessions, by number, to their sections."""
    rows = (_session_row(session, profiles, against, anchors.get(number, "")) for number, session in enumerate(run.sessions))
    return scrollable_table(("session", "tokens", *(snippet(name, 24) for name in profiles)), rows, "compared each")


def cards_table(comparison: Comparison) -> str:
    """Return a table of the cost of all sessions under each profile, card by card."""
    rows = []
    for run in comparison.runs:
        costs = {name: sum(outcome.cost.total for outcome in outcomes) for name, outcomes in run.outcomes.items()}
        cells = _cost_cells(costs, comparison.profiles, comparison.against)
        rows.append(f'<tr><th scope="row">{snippet(run.card, 60)}</th><td>{snippet(run.ttl, 10)}</td>{cells}</tr>\n')
    return scrollable_table(("card", "cache", *(snippet(name, 24) for name in comparison.profiles)), rows, "compared")


def _cost_cells(costs: Mapping[str, float], profiles: Sequence[str], against: str) -> str:
    baseline_usd = costs.get(against, 0.0)
    return "".join(f"<td>{_cost_cell(costs.get(profile), baseline_usd, own=profile == against)}</td>" for profile in profiles)


def _session_row(session: ReplayedSession, profiles: Sequence[str], against: str, anchor: str) -> str:
    name = snippet(session.title or session.id, 60)
    linked = f'<a href="#{anchor}">{name}</a>' if anchor else name
    costs = {profile: session.outcomes[profile].cost.total for profile in profiles if profile in session.outcomes}
    cells = _cost_cells(costs, profiles, against)
    return f'<tr><th scope="row" dir="auto">{linked}</th><td>{short_number(session.tokens)}</td>{cells}</tr>\n'


def _cost_cell(usd: float | None, baseline_usd: float, *, own: bool) -> str:
    if usd is None:
        return "–"
    return dollars(usd) if own or not baseline_usd else f"{dollars(usd)}<small>{ratio_text(usd / baseline_usd)}</small>"


_HEIGHT = 340
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
    return profile_legend(colours, colours) + curve_drawing(points, colours, _HEIGHT) + note


def curve_drawing(points: Sequence[CurvePoint], colours: Mapping[str, str], height: int) -> str:
    """Return the SVG of the chart, `height` pixels high."""
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
