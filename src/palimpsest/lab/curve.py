"""The curve of dollars against re-reads: the profiles that it compares, its points, and what ours saves at each trigger of the rival."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from palimpsest.core.items import Value
from palimpsest.lab.bench.tables import HALVES, split_halves
from palimpsest.lab.comparison import BASELINE
from palimpsest.lab.outcome import CardRun, Outcome, ReplayedSession, figures, ratio
from palimpsest.policies.budgets import CLAUDE_MARGIN, CLAUDE_REPLY_CAP
from palimpsest.profiles.named import DEFAULT, parse_name
from palimpsest.profiles.settings import SETTINGS

_WINDOW: Final = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
_RESERVE: Final = CLAUDE_REPLY_CAP + CLAUDE_MARGIN
TRIGGERS: Final = (80_000, 100_000, 120_000, 140_000, 150_000)
"""Sizes in tokens at which the rival compacts when it is set so, beside its default of 167,000 with a window of 200,000."""

# What a user chooses between; the other settings of ours take a part away or add one, to show what it is worth.
_CHOSEN: Final = frozenset({"PAL_THRIFT", "PAL_COMPACT_AT"})
_OURS: Final = (
    "PAL_THRIFT=careful",
    "PAL_THRIFT=thrifty",
    *(f"PAL_COMPACT_AT={level}" for level in (80_000, 100_000, 120_000, 140_000)),
    *(f"PAL_THRIFT=thrifty,PAL_COMPACT_AT={level}" for level in (80_000, 120_000)),
)
_ABLATIONS: Final = (
    *(f"PAL_WITHOUT={part}" for part in ("dialogue", "evidence", "work", "calls")),
    "PAL_NAMES=2400",
    "PAL_KEEP_ALIVE=on",
)
_OTHERS: Final = (
    "lossless",
    "lossless@PAL_KEEP_ALIVE=on",
    "claude-code",
    "claude-code@DISABLE_MICROCOMPACT=1",
    "context-editing",
    "context-editing@clear_tool_uses.sticky=on,clear_tool_uses.clear_at_least=20000",
    "codex-0.166@model_auto_compact_token_limit=120000",
    "codex-0.166",
    "codex-0.166@PAL_EVIDENCE=on",
    "opencode-1.18",
)
MOST_COST: Final = 0.95
"""Ours must cost at most this share of the rival at no more re-reads, …"""
MOST_REREADS: Final = 0.7
"""… or have at most this share of its re-reads at no more dollars."""


def curve_names() -> tuple[str, ...]:
    """Return the names of the profiles of the curve: ours with its settings and without its parts, the rival, and others."""
    ablations = (each for each in _ABLATIONS if each.partition("=")[0] in SETTINGS[DEFAULT])
    ours = (DEFAULT, *(f"{DEFAULT}@{settings}" for settings in (*_OURS, *ablations)))
    claude = (*(f"{BASELINE}@{_WINDOW}={trigger + _RESERVE}" for trigger in TRIGGERS), BASELINE)
    return (*ours, *claude, *_OTHERS)


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
    if key == _WINDOW and value.isdecimal():
        return f"{(int(value) - _RESERVE) // 1_000}k"
    if key in _CHOSEN or key == "model_auto_compact_token_limit":
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


class Judgement(Value, frozen=True, omit_defaults=False):
    """One of our profiles against one point of the rival: its shares of the rival's dollars and re-reads, and whether that suffices.

    `ours` is empty if none was replayed; a share of nothing is None.
    """

    rival: str
    ours: str = ""
    usd_ratio: float | None = None
    rereads_ratio: float | None = None
    holds: bool = False


def judge(chosen_on: Sequence[CurvePoint], measured_on: Sequence[CurvePoint] | None = None) -> tuple[Judgement, ...]:
    """Judge ours against every point of the rival, its earliest trigger first.

    The setting of ours is chosen for each by the points of some sessions, and measured by those of others; by default by the same.
    """
    measured = {point.name: point for point in (chosen_on if measured_on is None else measured_on)}
    ours = [point for point in chosen_on if point.program == DEFAULT and _CHOSEN.issuperset(parse_name(point.name)[1])]
    found = []
    for rival in (point for point in chosen_on if point.program == BASELINE):
        chosen = _choose(ours, rival)
        found.append(Judgement(rival.name) if chosen is None else _judgement(measured[chosen.name], measured[rival.name]))
    return tuple(found)


def _choose(ours: Sequence[CurvePoint], rival: CurvePoint) -> CurvePoint | None:
    """Return the one of ours that suffices with the largest margin, or comes closest to it; of equals the cheapest."""
    return max(ours, key=lambda point: (_margin(point, rival), -point.usd), default=None)


def _margin(ours: CurvePoint, rival: CurvePoint) -> float:
    """Return by how much dollars and re-reads may both grow until ours does not suffice any more, as a factor; below 1 it does not."""
    usd = rival.usd / ours.usd if ours.usd else inf
    rereads = rival.rereads / ours.rereads if ours.rereads else inf
    return max(min(MOST_COST * usd, rereads), min(usd, MOST_REREADS * rereads))


def _suffices(ours: CurvePoint, rival: CurvePoint) -> bool:
    cheaper = ours.usd <= MOST_COST * rival.usd and ours.rereads <= rival.rereads
    return cheaper or (ours.usd <= rival.usd and rival.rereads > 0 and ours.rereads <= MOST_REREADS * rival.rereads)


def _judgement(ours: CurvePoint, rival: CurvePoint) -> Judgement:
    return Judgement(rival.name, ours.name, ratio(ours.usd, rival.usd), ratio(ours.rereads, rival.rereads), _suffices(ours, rival))


def curve_markdown(run: CardRun, terms: str) -> str:
    """Return the tables of docs/benchmark.md: all points, and ours against each trigger of the rival. `terms` are card and cache."""
    points = curve_points(run.sessions)
    base = next((point.usd for point in points if point.name == BASELINE), 0.0)
    definitions = tuple(dict.fromkeys(name for point in points for name in point.rereads_by))
    titles = ("profile", "dollars", "of the rival's default", "re-reads billed", *definitions, "folds a 100 calls", "mean context")
    rows = [
        (
            f"`{point.name}`",
            f"{point.usd:,.2f}",
            _share(ratio(point.usd, base)),
            *(f"{count:,}" for count in (point.rereads, *(point.rereads_by.get(name, 0) for name in definitions))),
            f"{point.folds_per_100:.1f}",
            f"{point.mean:,}",
        )
        for point in points
    ]
    return "\n".join(
        [
            _line(titles),
            f"|---{'|---:' * (len(titles) - 1)}|",
            *map(_line, rows),
            "",
            f"{len(run.sessions)} sessions, {terms}. The rival is `{BASELINE}`; it compacts at {_RESERVE:,} below its `{_WINDOW}`.",
            "",
            *_judged_lines(run),
        ]
    )


def _judged_lines(run: CardRun) -> Iterator[str]:
    """Yield a table with what was chosen on each half of the sessions, measured on the other half; nothing for a single session."""
    if len(run.sessions) < len(HALVES):
        return
    halves = split_halves({session.id: session.tokens for session in run.sessions})
    points = [curve_points([session for session in run.sessions if session.id in names]) for names in halves.values()]
    titles = [f"chosen on the {chosen} half | dollars on the {other} | re-reads on the {other}" for chosen, other in (HALVES, HALVES[::-1])]
    yield f"| the rival compacts at | {' | | '.join(titles)} | |"
    yield f"|---:{'|---|---:|---:|---' * 2}|"
    for pair in zip(judge(points[0], points[1]), judge(points[1], points[0]), strict=True):
        cells = [
            f"`{each.ours}` | {_share(each.usd_ratio)} | {_share(each.rereads_ratio)} | {'kept' if each.holds else 'missed'}"
            for each in pair
        ]
        yield f"| {_rival_trigger(pair[0].rival)} | {' | '.join(cells)} |"
    yield ""
    yield f"Kept: at most {MOST_COST:g}x of its dollars at no more re-reads, or {MOST_REREADS:g}x of its re-reads at no more dollars."


def curve_summary(run: CardRun) -> str:
    """Return the result in a few sentences, with what speaks against ours; empty unless ours and the rival were both replayed."""
    points = {point.name: point for point in curve_points(run.sessions)}
    if DEFAULT not in points or BASELINE not in points:
        return ""
    ours, rival = points[DEFAULT], points[BASELINE]
    others = ", ".join(f"*{name}* {count:,} : {rival.rereads_by.get(name, 0):,}" for name, count in ours.rereads_by.items())
    judged = judge(tuple(points.values()))
    kept = [_rival_trigger(each.rival) for each in judged if each.holds]
    shares = "; ".join(
        f"at {_rival_trigger(each.rival)} {_share(each.usd_ratio)} of its dollars with {points[each.ours].rereads:,} : "
        f"{points[each.rival].rereads:,}"
        for each in judged
    )
    listed = f" ({', '.join(kept)})" if kept else ""
    return (
        f"On {len(run.sessions)} recorded sessions, replayed without a model, `{DEFAULT}` costs {_share(ratio(ours.usd, rival.usd))} "
        f"of what `{BASELINE}` costs at its default trigger, with {ours.rereads:,} re-reads against {rival.rereads:,} "
        f"(by each definition: {others}), {ours.folds_per_100:.1f} folds per 100 calls against {rival.folds_per_100:.1f}, "
        f"and a mean context of {ours.mean:,} tokens against {rival.mean:,}. A rival that compacts earlier costs less too; "
        f"the best of our settings for each trigger, chosen on the same sessions: {shares} re-reads. That is enough for our bar at "
        f"{len(kept)} of {len(judged)} triggers{listed}. Whether tasks succeed as often is not known: no replay can tell."
    )


def _rival_trigger(name: str) -> str:
    window = parse_name(name)[1].get(_WINDOW, "")
    return f"{int(window) - _RESERVE:,}" if window.isdecimal() else "its default"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}x"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
