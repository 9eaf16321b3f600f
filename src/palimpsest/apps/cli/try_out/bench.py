"""`pal bench`: runs the benchmarks and checks their limits."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import TypeAlias

import click
from msgspec import Struct
from msgspec.structs import asdict
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output.tables import Columns, console, print_listing
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.cli.try_out.live_gateway import measure_live_gateway
from palimpsest.apps.cli.try_out.report_files import document_option, insert_tables, require_placeholders
from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.agent import MOST_GROWTH, Soak, soak
from palimpsest.lab.bench.bars import GOALS, Bar, Report
from palimpsest.lab.bench.suite import bars_named, run_bench
from palimpsest.lab.bench.tables import format_value, placeholders_for, tables_of
from palimpsest.lab.bench.tuning import fit, fit_markdown, tune, tuning_markdown
from palimpsest.lab.growth.measuring import MOST_GROWTH as MOST_RATIO
from palimpsest.lab.growth.measuring import measure_growth
from palimpsest.lab.simulation.gateway_peers.table import peer_rows, peers_markdown
from palimpsest.lab.simulation.gateway_table import gateway_markdown, gateway_report, law_markdown
from palimpsest.lab.simulation.loading import load_all
from palimpsest.stores.home import Home

_EXAMPLES = """\b
Examples:
  pal bench --quick
  pal bench --only turn --only decide
  pal bench --only cost,rereads --sessions ~/.claude/projects
  pal bench --live gateway --sessions ~/.claude/projects --load 4
  pal bench --peers gateway --sessions ~/.claude/projects --peers-python peers/bin/python"""

# Makes a table from the sessions below a folder, and the values behind it.
_MakeTables: TypeAlias = Callable[[Path], tuple[tuple[str, ...], Struct | Sequence[Struct]]]
_folder_option = partial(click.option, type=click.Path(exists=True, path_type=Path), metavar="DIR")


@click.command(epilog=_EXAMPLES)
@click.option("--quick", is_flag=True, help="Use smaller sizes; results are marked as such.")
@click.option("--only", multiple=True, metavar="NAME", help="Measure only these bars, and those whose names begin so. Repeatable.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Work in this new folder and keep it.")
@_folder_option(
    "--sessions", "recorded", help="Replay the sessions of any agent below this folder for the cost bars, instead of synthetic ones."
)
@_folder_option("--fit", "fitted", help="Instead, compare synthetic sessions with the recorded ones below this folder.")
@_folder_option(
    "--choose",
    "chosen_from",
    help="Instead, tune our profile on half of the sessions below this folder, and measure it on the other half.",
)
@click.option(
    "--soak",
    "turns",
    type=click.IntRange(10),
    metavar="N",
    help="Instead, run N turns of the agent in one session, and check that memory stays flat.",
)
@click.option(
    "--growth", is_flag=True, help="Instead, double sessions of ten shapes, and check that no command takes over 2.3 times as long."
)
@_folder_option(
    "--gateway",
    "behind_gateway",
    help="Instead, replay the sessions below this folder as those of Claude Code behind `pal gateway`, in each mode.",
)
@click.option(
    "--peers",
    type=click.Choice(["gateway"]),
    help="Instead, measure other tools that shrink requests, and our modes, on the long sessions below the folder of --sessions.",
)
@click.option(
    "--peers-python",
    default=sys.executable,
    metavar="FILE",
    help="Python of the environment that has the peers (headroom-ai, llmtrim, litellm); default: this one.",
)
@click.option(
    "--live",
    type=click.Choice(["gateway"]),
    help="Instead, send the sessions below the folder of --sessions through a real `pal gateway`, and check its bills after each request.",
)
@click.option("--load", type=click.IntRange(0), default=0, metavar="N", help="With --live: keep the machine busy with N other processes.")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown, as in docs/benchmark.md.")
@document_option(help="Insert the tables into a document, each at its placeholder.")
@json_option
def bench(
    *,
    quick: bool,
    only: tuple[str, ...],
    keep: Path | None,
    recorded: Path | None,
    fitted: Path | None,
    chosen_from: Path | None,
    turns: int | None,
    growth: bool,
    behind_gateway: Path | None,
    peers: str | None,
    peers_python: str,
    live: str | None,
    load: int,
    markdown: bool,
    into: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Run the benchmarks, compare with other libraries, and check the limits of the bars.

    Takes a few minutes and a gigabyte of disk. The unit u is the time to decode 1,000 typical events. Exit code 1 if a limit is missed.
    """
    other = {"--peers": peers or None, "--soak": turns, "--growth": growth or None, "--live": live}
    chosen = {"--fit": fitted, "--choose": chosen_from, "--gateway": behind_gateway} | other
    if len(given := [name for name, value in chosen.items() if value is not None]) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    instead: tuple[tuple[tuple[str, ...], Path | None, _MakeTables], ...] = (
        (("fit",), fitted, _fit_table),
        (("choice",), chosen_from, _choice_table),
        (("gateway", "gateway_law"), behind_gateway, _gateway_tables),
        (("peers",), _peer_sessions(recorded) if peers else None, partial(_peers_table, python=peers_python)),
    )
    for places, folder, made in instead:
        if folder is not None:
            _make_tables(places, folder, made, into, as_json=as_json)
            return
    if turns is not None:
        _soak(turns, keep, as_json=as_json)
    elif growth:
        _measure_growth(keep, as_json=as_json)
    elif live:
        with _working_folder(keep) as folder:
            measure_live_gateway(recorded, folder, _pal_command(), _announce, load=load, quick=quick, as_json=as_json)
    else:
        wanted = bars_named(name for names in only for name in names.replace(",", " ").split())
        require_placeholders(into, placeholders_for(wanted))
        with _working_folder(keep) as folder:
            report = run_bench(folder, wanted=wanted, quick=quick, pal_command=_pal_command(), recorded=recorded, announce=_announce)
        _show_report(report, into, as_json=as_json, markdown=markdown)


def _show_report(report: Report, into: tuple[Path, ...], *, as_json: bool, markdown: bool) -> None:
    tables = tables_of(report)
    insert_tables(into, tables)
    if as_json:
        emit(report)
    elif markdown:
        click.echo("\n\n".join(tables.values()))
    else:
        _print(report)
    if report.missed:
        click.get_current_context().exit(FINDINGS)


def _make_tables(places: tuple[str, ...], folder: Path, made: _MakeTables, into: tuple[Path, ...], *, as_json: bool) -> None:
    require_placeholders(into, places)
    tables, found = made(folder)
    by_place = dict(zip(places, tables, strict=True))
    insert_tables(into, by_place)
    emit(found) if as_json else click.echo("\n\n".join(by_place.values()))


def _soak(turns: int, keep: Path | None, *, as_json: bool) -> None:
    with _working_folder(keep) as folder:
        soaked = soak(folder, turns, _announce)
    emit(soaked) if as_json else _print_soak(soaked)
    if not soaked.memory_is_flat:
        click.get_current_context().exit(FINDINGS)


def _fit_table(folder: Path) -> tuple[tuple[str], Struct]:
    found = fit(folder, announce=_announce)
    return (fit_markdown(found),), found


def _choice_table(folder: Path) -> tuple[tuple[str], Struct]:
    tuning = tune(folder, announce=_announce)
    return (tuning_markdown(tuning),), tuning


def _gateway_tables(folder: Path) -> tuple[tuple[str, str], Struct]:
    replayed = gateway_report(load_all([folder]), announce=_announce)
    return (gateway_markdown(replayed), law_markdown(replayed)), replayed


def _peers_table(folder: Path, *, python: str) -> tuple[tuple[str], Sequence[Struct]]:
    rows = list(peer_rows(tuple(load_all([folder])), python, _announce))
    if not rows:
        raise BadInput("no session here is long enough to come near a compaction", where=str(folder))
    return (peers_markdown(rows),), rows


def _peer_sessions(recorded: Path | None) -> Path:
    if recorded is None:
        raise click.UsageError("--peers needs recorded sessions; name their folder with --sessions")
    return recorded


def _measure_growth(keep: Path | None, *, as_json: bool) -> None:
    from palimpsest.apps.cli.main import cli  # the table of commands names this module

    def run(home: Path, arguments: Sequence[str]) -> None:
        # Exports write bytes, which a buffer of text has no room for.
        output = TextIOWrapper(BytesIO(), encoding="utf-8")
        with redirect_stdout(output), redirect_stderr(StringIO()) as errors, suppress(click.exceptions.Exit):
            cli.invoke(cli.make_context("pal", list(arguments), obj=Home(home)))
        if errors.getvalue():
            raise BadInput(f"`pal {arguments[0]}` failed: {errors.getvalue().strip()}", where=str(home))

    with _working_folder(keep) as folder:
        found = measure_growth(folder, run, _announce)
    if as_json:
        emit([{**asdict(each), "ratio": round(each.ratio, 2), "limit": MOST_RATIO, "ok": each.ok} for each in found])
    else:
        rows = Columns("shape", "command", "parts", "ms", "ms of twice", "ratio", "", right=("parts", "ms", "ms of twice", "ratio"))
        for each in found:
            verdict = "ok" if each.ok else "MISSED"
            rows.add_row(
                each.shape, each.command, f"{each.count:,}", f"{each.ms:,.0f}", f"{each.doubled_ms:,.0f}", f"{each.ratio:.2f}", verdict
            )
        console().print(rows)
    if not all(each.ok for each in found):
        click.get_current_context().exit(FINDINGS)


def _announce(what: str) -> None:
    click.echo(f"bench: {what}", err=True)


def _print_soak(soaked: Soak) -> None:
    listing = Columns("turns", "ms a turn", "memory kB", "items in view", right=("turns", "ms a turn", "memory kB", "items in view"))
    for row in soaked.rows:
        listing.add_row(f"{row.turns:,}", f"{row.turn_ms:.2f}", f"{row.memory_kb:,}", f"{row.view_items:,}")
    console().print(listing)
    verdict = "flat" if soaked.memory_is_flat else "NOT FLAT"
    click.echo(
        f"memory is {verdict}: {soaked.memory_growth:+.1%} from the first fifth to the end, limit {MOST_GROWTH:+.0%}; "
        f"time of a turn {soaked.time_growth:+.0%} from the first fifth to the last"
    )


def _pal_command() -> tuple[str, ...]:
    """Return the command that starts this `pal`."""
    beside = Path(sys.executable).parent / "pal"
    return (str(beside),) if beside.is_file() else (sys.executable, "-m", "palimpsest.apps.cli")


@contextmanager
def _working_folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise BadInput("the working folder must be new or empty", where=str(keep))
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="pal-bench-", dir=_disk_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk_folder() -> Path:
    """Return a folder on a disk; temporary folders may be in memory, where a sync is free."""
    from platformdirs import user_cache_path  # needed only without --keep

    folder = user_cache_path("palimpsest")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _print(report: Report) -> None:
    rows = [
        (
            (bar.name, format_value(bar.value, bar.unit), _limit_cell(bar), _verdict_cell(bar), _peer_cell(bar)),
            Text(GOALS[bar.name].about, style="dim"),
        )
        for bar in report.bars
    ]
    print_listing(console(), ("bar", "value", "limit", "", "peer"), rows, frozenset({"value", "limit"}))
    size = ", smaller sizes (--quick)" if report.quick else ""
    unit = f"u = {report.unit_ms:.2f} ms; " if report.unit_ms else ""
    click.echo(f"{unit}{len(report.missed)} missed; {report.took_s:.0f} s{size}")


def _limit_cell(bar: Bar) -> str:
    if bar.limit is None:
        return "-"
    return f"{'≤' if bar.better == 'lower' else '≥'} {bar.limit:g}"


def _peer_cell(bar: Bar) -> str:
    return "-" if bar.peer is None else f"{bar.peer.name} {format_value(bar.peer.value, bar.unit)}"


def _verdict_cell(bar: Bar) -> str:
    return bar.why or ("not measured" if bar.ok is None else "ok" if bar.ok else "MISSED")
