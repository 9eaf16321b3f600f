"""The curve of `pal replay --curve` and `--plot`: which profiles it has, ours against each trigger of the rival, tables and picture."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil, inf
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from pal.cli.replay_table import print_rows
from pal.replay.comparison import BASELINE
from pal.replay.curve import CHOSEN_SETTINGS, RESERVE, TRIGGER_SETTING, CurvePoint, by_program, curve_drawing, curve_points, profile_colours
from pal.replay.drawing import PAGE_STYLE, snippet
from pal.replay.outcome import OWN_CARDS, CardRun, Comparison, ratio
from pal_lab.halves import HALVES, split_halves
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.exchange.html import STYLE
from palimpsest.policies.named import DEFAULT, parse_name
from palimpsest.policies.profile import SETTINGS
from palimpsest.stores.files import write_atomically

TRIGGERS: Final = (80_000, 100_000, 120_000, 140_000, 150_000)
"""Sizes in tokens at which the rival compacts when it is set so, beside its default of 167,000 with a window of 200,000."""

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
    claude = (*(f"{BASELINE}@{TRIGGER_SETTING}={trigger + RESERVE}" for trigger in TRIGGERS), BASELINE)
    return (*ours, *claude, *_OTHERS)


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
    ours = [point for point in chosen_on if point.program == DEFAULT and CHOSEN_SETTINGS.issuperset(parse_name(point.name)[1])]
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
            f"{len(run.sessions)} sessions, {terms}. The rival is `{BASELINE}`; it compacts at {RESERVE:,} below its `{TRIGGER_SETTING}`.",
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
    window = parse_name(name)[1].get(TRIGGER_SETTING, "")
    return f"{int(window) - RESERVE:,}" if window.isdecimal() else "its default"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}x"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


CURVE_TABLES = ("curve", "curve-summary")


def print_judgements(screen: Console, comparison: Comparison) -> None:
    """Print ours against each trigger of the rival, for each card."""
    for run in comparison.runs:
        rows = [_judgement_cells(each) for each in judge(curve_points(run.sessions))]
        screen.print()
        screen.print(Text(f"ours against each trigger of {BASELINE}, by the setting that does best here", style="bold"))
        print_rows(screen, ("rival", "ours", "dollars", "re-reads", ""), rows, left=2)
        limits = f"at most {MOST_COST:g}x of its dollars at no more re-reads, or {MOST_REREADS:g}x of its re-reads at no more dollars"
        screen.print(Text(f"ok: {limits}", style="dim"))


def _judgement_cells(judged: Judgement) -> Sequence[str]:
    shares = ("-" if share is None else f"{share:.2f}x" for share in (judged.usd_ratio, judged.rereads_ratio))
    return (
        judged.rival.partition("@")[2] or "default",
        judged.ours.partition("@")[2] or "default",
        *shares,
        "ok" if judged.holds else "MISSED",
    )


def curve_json(comparison: Comparison) -> object:
    """Return ours against each trigger of the rival by card; without the card if there is one."""
    found = {run.card: judge(curve_points(run.sessions)) for run in comparison.runs}
    built: dict[str, object] = msgspec.to_builtins(found)
    return built if len(built) > 1 else next(iter(built.values()))


def curve_tables(comparison: Comparison) -> dict[str, str]:
    """Return the tables and the summary by placeholder. Raises `BadInput` for several cards, because a document has one place for each."""
    run = _only_run(comparison)
    return dict(zip(CURVE_TABLES, (curve_markdown(run, _terms(run)), curve_summary(run)), strict=True))


def write_plot(comparison: Comparison, path: Path) -> None:
    """Write dollars against re-reads as an SVG. Raises `BadInput` for several cards."""
    run = _only_run(comparison)
    write_atomically(path, (curve_picture(run, curve_points(run.sessions), _terms(run)).encode("utf-8", "replace"),), replace=True)
    click.echo(f"pal: wrote {path}", err=True)


def _only_run(comparison: Comparison) -> CardRun:
    if len(comparison.runs) != 1:
        raise BadInput("a curve is about one card; name one with --card, or none", where="--card")
    return comparison.runs[0]


def _terms(run: CardRun) -> str:
    card = "each by the card of its own model" if run.card == OWN_CARDS else run.card
    return f"{card}{f', cache entries of {run.ttl}' if run.ttl else ''}{f', window {run.window:,}' if run.window else ''}"


_PICTURE_WIDTH, _PICTURE_HEIGHT = 960, 460
_LEGEND_COLUMNS = 3


def curve_picture(run: CardRun, points: Sequence[CurvePoint], terms: str) -> str:
    """Return the chart as a self-contained SVG; `terms` are the card and the cache, in words."""
    colours = profile_colours(list(by_program(points)))
    legend = "".join(_legend_entry(number, name, colour) for number, (name, colour) in enumerate(colours.items()))
    rows = ceil(len(colours) / _LEGEND_COLUMNS)
    title = f"Dollars against re-reads of {len(run.sessions)} sessions under {len(points)} profiles, {terms}"
    top = 20 + 20 * rows
    drawing = curve_drawing(points, colours, _PICTURE_HEIGHT - top - 24)
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
