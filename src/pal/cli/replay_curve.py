"""Prints and writes the curve of `pal replay --curve`: ours against each trigger of the rival, the tables of a document, and the plot."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from pal.cli.replay_table import print_rows
from pal.replay.comparison import BASELINE
from pal.replay.curve import MOST_COST, MOST_REREADS, Judgement, curve_markdown, curve_picture, curve_points, curve_summary, judge
from pal.replay.outcome import OWN_CARDS, CardRun, Comparison
from palimpsest.core.errors import BadInput
from palimpsest.stores.files import write_atomically

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
