"""`pal bench`: this machine against the bars."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec import Struct
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output import console, emit, json_option, print_listing
from palimpsest.apps.cli.try_out.documents import put, require_placeholders
from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.bars import GOALS, Bar, Report
from palimpsest.lab.bench.markdown import places_for, shown, tables_of
from palimpsest.lab.bench.suite import choose, run_bench
from palimpsest.lab.bench.tuning import fit, fit_markdown, tune, tuning_markdown

_EXAMPLES = """\b
Examples:
  pal bench --quick
  pal bench --only turn --only decide
  pal bench --only cost,rereads --sessions ~/.claude/projects"""


@click.command(epilog=_EXAMPLES)
@click.option("--quick", is_flag=True, help="Smaller sizes; the values are marked as such.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Measure these bars only: a name, or the beginning of several. May be repeated."
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Work in this new folder, and leave what was made there.")
@click.option(
    "--sessions",
    "recorded",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Replay the sessions of any agent below this folder for the cost bars, and not made-up ones.",
)
@click.option(
    "--fit",
    "fitted",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Instead, hold made-up sessions against the recorded ones below this folder.",
)
@click.option(
    "--choose",
    "chosen_from",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR",
    help="Instead, choose the numbers of our profile on half of the sessions below this folder, and tell what they do on the other half.",
)
@click.option("--markdown", is_flag=True, help="Print the tables as docs/benchmark.md has them.")
@click.option(
    "--into",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Put the tables into a document, each between its two marks.",
)
@json_option
def bench(
    *,
    quick: bool,
    only: tuple[str, ...],
    keep: Path | None,
    recorded: Path | None,
    fitted: Path | None,
    chosen_from: Path | None,
    markdown: bool,
    into: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure this machine against the bars and the peers.

    Takes a few minutes and a gigabyte of disk. All values are ratios within this run; u is the time to decode 1,000 typical events.
    """
    if fitted is not None:
        require_placeholders(into, ("fit",))
        found = fit(fitted, tell=_tell)
        _tell_table("fit", fit_markdown(found), found, into, as_json=as_json)
        return
    if chosen_from is not None:
        require_placeholders(into, ("choice",))
        choosing = tune(chosen_from, tell=_tell)
        _tell_table("choice", tuning_markdown(choosing), choosing, into, as_json=as_json)
        return
    wanted = choose(name for names in only for name in names.replace(",", " ").split())
    require_placeholders(into, places_for(wanted))
    with _folder(keep) as folder:
        report = run_bench(folder, wanted=wanted, quick=quick, help_command=_pal("--help"), recorded=recorded, tell=_tell)
    tables = tables_of(report)
    put(into, tables)
    if as_json:
        emit(report)
    elif markdown:
        click.echo("\n\n".join(tables.values()))
    else:
        _print(report)
    if report.missed:
        click.get_current_context().exit(FINDINGS)


def _tell_table(place: str, table: str, found: Struct, into: tuple[Path, ...], *, as_json: bool) -> None:
    put(into, {place: table})
    if as_json:
        emit(found)
    else:
        click.echo(table)


def _tell(what: str) -> None:
    click.echo(f"bench: {what}", err=True)


def _pal(*words: str) -> tuple[str, ...]:
    """This very `pal`, as a person starts it."""
    beside = Path(sys.executable).parent / "pal"
    return (str(beside), *words) if beside.is_file() else (sys.executable, "-m", "palimpsest.apps.cli", *words)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise BadInput("the folder to work in must be new or empty", where=str(keep))
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="pal-bench-", dir=_disk()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk() -> Path:
    """A folder that is on a disk, for a temporary one may be in memory, where a sync means nothing."""
    from platformdirs import user_cache_path  # noqa: PLC0415 - needed only without --keep

    folder = user_cache_path("palimpsest")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _print(report: Report) -> None:
    rows = [
        ((bar.name, shown(bar.value, bar.unit), _limit(bar), _verdict(bar), _peer(bar)), Text(GOALS[bar.name].about, style="dim"))
        for bar in report.bars
    ]
    print_listing(console(), ("bar", "value", "limit", "", "peer"), rows, frozenset({"value", "limit"}))
    size = ", smaller sizes (--quick)" if report.quick else ""
    unit = f"u = {report.unit_ms:.2f} ms; " if report.unit_ms else ""
    click.echo(f"{unit}{len(report.missed)} missed; {report.took_s:.0f} s{size}")


def _limit(bar: Bar) -> str:
    if bar.limit is None:
        return "-"
    return f"{'≤' if bar.better == 'lower' else '≥'} {bar.limit:g}"


def _peer(bar: Bar) -> str:
    return "-" if bar.peer is None else f"{bar.peer.name} {shown(bar.peer.value, bar.unit)}"


def _verdict(bar: Bar) -> str:
    return "not measured" if bar.ok is None else "ok" if bar.ok else "MISSED"
