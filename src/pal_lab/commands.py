"""The commands `pal bench`, `pal lab` and `pal memory eval`, their tables, and the benchmark of the live gateway."""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich.text import Text

import palimpsest
from pal.cli.command_line import FINDINGS, TableGroup
from pal.cli.output import emit, json_option
from pal.cli.report_files import document_option, insert_tables, require_placeholders
from pal.cli.tables import Columns, console, print_listing
from pal.replay.recording import load_all
from pal_lab.bench.bars import GOALS, Bar
from pal_lab.bench.bars import Report as BenchReport
from pal_lab.bench.gateway_table import gateway_markdown, gateway_report, law_markdown
from pal_lab.bench.live import MOST_ERROR, MOST_RATIO, LiveRow, live_rows, transcripts
from pal_lab.bench.peers import peer_rows, peers_markdown
from pal_lab.bench.processes import MOST_GROWTH, Soak, soak
from pal_lab.bench.suite import bars_named, run_bench
from pal_lab.bench.tables import format_value, placeholders_for, tables_of
from pal_lab.cost.growth import MOST_GROWTH as BENCH_MOST_RATIO
from pal_lab.cost.growth import measure_growth
from pal_lab.cost.tuning import fit, fit_markdown, tune, tuning_markdown
from pal_lab.recall.evaluation import CodingReport, Gate, MemoryReport, ScoreRow, eval_coding, eval_data, fit_data, gates
from pal_lab.recall.latency import P95_LIMIT_MS, UNITS, WORST_LIMIT_MS, Latency, TurnStart, measure_latency, measure_turn_start, quantile
from pal_lab.recall.levels import LevelsReport, eval_levels
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.memory.vectors import Embedder
from palimpsest.stores.home import Home
from palimpsest.stores.shadow_git import borrowed_git

_GOLDEN: Final = Path("tests/golden/foreign/claude")
_NUMBERS: Final = ("requests", "cost", "directly", "ratio", "worst", "said wrong")


def measure_live_gateway(
    recorded: Path | None, folder: Path, command: tuple[str, ...], announce: Callable[[str], None], *, load: int, quick: bool, as_json: bool
) -> None:
    """Measure all modes, print a row for each session, and exit with 1 if a bill or what the gateway says of it is beyond its limit."""
    source = recorded or _GOLDEN
    if not source.exists():
        raise BadInput("there are no recorded sessions here; name the folder of some of Claude Code with --sessions", where=str(source))
    rows = list(live_rows(transcripts(source), folder, command, load=load, most=40 if quick else None, announce=announce))
    if not rows:
        raise BadInput("there is no session of Claude Code with five requests or more", where=str(source))
    emit([msgspec.to_builtins(row) for row in rows]) if as_json else _print_rows(rows)
    if not all(row.ok for row in rows):
        click.get_current_context().exit(FINDINGS)


def _print_rows(rows: list[LiveRow]) -> None:
    table = Columns("session", "mode", "model", *_NUMBERS, "", right=_NUMBERS)
    for row in rows:
        figures = (
            f"{row.requests:,}",
            f"${row.usd:.2f}",
            f"${row.usd_direct:.2f}",
            f"{row.usd / row.usd_direct:.3f}x",
            f"{row.worst:.4f}x",
        )
        table.add_row(row.session[:24], row.mode, row.model, *figures, f"{row.error:.2%}", "ok" if row.ok else "MISSED")
    console().print(table)
    missed = sum(not row.ok for row in rows)
    click.echo(
        f"{missed} of {len(rows)} missed; limits: {MOST_RATIO}x of direct after any request, and {MOST_ERROR:.0%} off in what is said"
    )


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


def _show_report(report: BenchReport, into: tuple[Path, ...], *, as_json: bool, markdown: bool) -> None:
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
    from pal.cli.main import cli  # the table of commands names this module

    def run(home: Path, arguments: Sequence[str]) -> None:
        # Exports write bytes, which a buffer of text has no room for.
        output = TextIOWrapper(BytesIO(), encoding="utf-8")
        with redirect_stdout(output), redirect_stderr(StringIO()) as errors, suppress(click.exceptions.Exit):
            cli.invoke(cli.make_context("pal", list(arguments), obj=Home.at(home)))
        if errors.getvalue():
            raise BadInput(f"`pal {arguments[0]}` failed: {errors.getvalue().strip()}", where=str(home))

    with _working_folder(keep) as folder:
        found = measure_growth(folder, run, _announce)
    if as_json:
        emit([{**asdict(each), "ratio": round(each.ratio, 2), "limit": BENCH_MOST_RATIO, "ok": each.ok} for each in found])
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
    return (str(beside),) if beside.is_file() else (sys.executable, "-m", "pal.cli")


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


def _print(report: BenchReport) -> None:
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


_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "continue": (
        "pal_lab.cost.continuation:continue_",
        "Let a model go on from a fold under several profiles, and compare its first calls.",
    ),
}


@click.group(cls=TableGroup, table=_COMMANDS, epilog="\b\nExamples:\n  pal lab continue last --model claude-sonnet-4-5")
def lab() -> None:
    """Experiments with a model of yours on recorded sessions; what they cost is shown before they start."""


RANKING_COLUMNS = ("ranking", "questions", "nDCG@10", "R@10", "± s.e.", "R@1", "all@10", "any@10", "sR@5")
_SIGNS = {"at least": "≥", "at most": "≤", "below": "<", "about": "="}


def ranking_cells(row: ScoreRow) -> list[str]:
    """Return the cells of a ranking, in the order of `RANKING_COLUMNS`."""
    main = row.main
    values = (main.ndcg_10, main.recall_10, main.recall_10_error, main.recall_1, main.all_10, main.any_10, main.session_recall_5)
    return [row.name + (f" ({row.note})" if row.note else ""), str(main.questions), *(f"{value:.3f}" for value in values)]


def rankings_markdown(report: MemoryReport, footer: Sequence[str]) -> str:
    """Return the scores of all rankings and their recall by category as two tables, with what made them below."""
    rows = [_row(ranking_cells(row)) for row in report.rows]
    categories = [
        _row([row.name, *(f"{scores.recall_10:.3f}" for scores in row.categories.values()), f"{row.adversarial.recall_10:.3f}"])
        for row in report.rows
    ]
    names = [f"{name} ({scores.questions})" for name, scores in report.rows[0].categories.items()]
    second = ["R@10 by category", *names, f"adversarial ({report.adversarial_questions})"]
    return "\n".join([*_head(RANKING_COLUMNS), *rows, "", *_head(second), *categories, "", *footer])


def latency_markdown(measured: Latency) -> str:
    """Return the latency as a Markdown table."""
    names = ("units", "queries", "p50 ms", "p95 ms", "worst ms", "p95 ms of processor time", "worst", "limits")
    limits = f"p95 < {P95_LIMIT_MS:g}, worst ≤ {WORST_LIMIT_MS:g}: {'kept' if measured.ok else 'MISSED'}"
    values = (measured.p50_ms, measured.p95_ms, measured.worst_ms, measured.p95_cpu_ms, measured.worst_cpu_ms)
    return "\n".join([*_head(names), _row([f"{measured.units:,}", f"{measured.queries:,}", *(f"{value:.1f}" for value in values), limits])])


def levels_markdown(report: LevelsReport) -> str:
    """Return the scores by level as a Markdown table."""
    measured = ("level", "cases", "facts", "recalled", "in all messages", "of the ceiling", "second half")
    names = (*measured, "links", "stale", "passed", "most tokens")
    rows = [
        _row(
            [
                level,
                str(row.cases),
                str(row.facts),
                f"{row.score:.2f}",
                f"{row.ceiling:.2f}",
                f"{row.ratio:.2f}",
                f"{row.second_half:.2f}",
                f"{row.links:.2f}",
                str(row.stale),
                str(row.passed),
                str(row.tokens),
            ]
        )
        for level, row in report.levels.items()
    ]
    return "\n".join([*_head(names), *rows])


def coding_markdown(report: CodingReport, made: str) -> str:
    """Return the scores over coding sessions as a Markdown table, with what made it below."""
    rows: list[str] = []
    for row in report.rows:
        ranking = f"{row.ranking} ({row.setting})" if row.setting else row.ranking
        values = (row.recall_1, row.recall_5, row.recall_10, row.ndcg_10)
        rows.append(_row([row.rule, row.variant, ranking, str(row.questions), *(f"{value:.3f}" for value in values)]))
    size = f"{report.sessions} sessions of {report.projects} projects, {report.units:,} units"
    failed = f"{report.failures} failures with error lines, {report.repairs} repaired"
    found = f"{failed}, {report.elsewhere} questions answered by another session"
    names = ("question", "query", "ranking", "n", "R@1", "R@5", "R@10", "nDCG@10")
    return "\n".join([*_head(names), *rows, "", f"{report.data}: {size}; {found}; {made}"])


def gates_markdown(gates: Sequence[Gate]) -> str:
    """Return the gates as a Markdown table."""
    rows = [
        _row(
            [
                gate.statement,
                gate.name,
                f"{_SIGNS[gate.comparison]} {gate.limit:g}",
                "" if gate.value is None else f"{gate.value:.4g}",
                f"{gate.state}: {gate.why}" if gate.why else gate.state,
            ]
        )
        for gate in gates
    ]
    return "\n".join([*_head(("statement", "measured", "limit", "value", "state")), *rows])


def rankings_json(report: MemoryReport, p95_ms: float) -> dict[str, Any]:
    """Return the scores that count, with embeddings if they were measured, and the time of a query in milliseconds."""
    row = report.row(embeddings=report.embeddings)
    main = row.main
    return {
        "data": report.data,
        "questions": main.questions,
        "embeddings": report.embeddings,
        "ranking": row.name,
        "ndcg@10": main.ndcg_10,
        "recall@1": main.recall_1,
        "recall@5": main.recall_5,
        "recall@10": main.recall_10,
        "recall@20": main.recall_20,
        "p95_ms": p95_ms,
        "by_category": {
            name: {"questions": scores.questions, "ndcg@10": scores.ndcg_10, "recall@10": scores.recall_10}
            for name, scores in row.categories.items()
        },
    }


def gates_json(gates: Sequence[Gate]) -> list[dict[str, Any]]:
    """Return the gates with their state."""
    return [msgspec.to_builtins(gate) | {"state": gate.state} for gate in gates]


def _head(names: Sequence[str]) -> tuple[str, str]:
    return _row(names), "|---" * len(names) + "|"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_GIT_SECONDS = 5.0
_LATENCY_TABLE, _LEVELS_TABLE, _CODING_TABLE, _GATES_TABLE, _TURN_START_TABLE = "latency", "levels", "coding", "gates", "turn-start"

Report: TypeAlias = MemoryReport | Latency | LevelsReport | CodingReport


class EvaluationOptions(msgspec.Struct, frozen=True):
    """How data is measured, beside what it is."""

    audit: Path | None
    beside: tuple[Path, ...]
    facts: Path | None
    latency: bool
    coding: bool
    embedding: bool
    units: int


_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("eval", epilog="\b\nExample:\n  pal memory eval locomo.json --audit errors.json")
@click.argument("data", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option("--audit", type=_file, metavar="FILE", help="Score with the evidence that this audit corrected, too.")
@click.option("--facts", type=_file, metavar="FILE", help="Facts of cases, instead of those that are annotated here.")
@click.option("--beside", type=_file, multiple=True, metavar="FILE", help="Fit the weights that are held out on this data, too.")
@click.option("--fit", "fitting", is_flag=True, help="Instead, fit weights on all of the data and print them.")
@click.option("--latency", is_flag=True, help="Instead, measure queries in an index of many long units made of the data.")
@click.option("--turn-start", is_flag=True, help="Instead, measure what recall of notes adds to the start of a turn.")
@click.option("--coding", is_flag=True, help="Instead, measure recall over the sessions of coding agents in a folder.")
@click.option("--embed", "embedding", is_flag=True, help="Measure, or fit, with embeddings too; needs the extra `embed`.")
@click.option("--units", type=click.IntRange(100), default=UNITS, show_default=True, metavar="N", help="Units of that index.")
@click.option("--gate", "gating", is_flag=True, help="Exit with 1 if a gate that was measured is missed.")
@document_option(
    help="Insert the tables into a document, at placeholders with the name of the data, `levels`, `latency` …; --gate adds `gates`."
)
@json_option
def evaluate(
    *,
    data: tuple[Path, ...],
    audit: Path | None,
    beside: tuple[Path, ...],
    facts: Path | None,
    fitting: bool,
    latency: bool,
    turn_start: bool,
    coding: bool,
    embedding: bool,
    units: int,
    gating: bool,
    into: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure recall on DATA: files of conversations with questions and evidence (LoCoMo, BEAM), or folders of cases.

    Weights are fitted without the conversation that is scored; the shipped ones are measured beside them. Needs no model and no network.
    Gates that the data cannot measure are shown as not measured. With --coding DATA is a folder of sessions of coding agents, and the
    questions are made of them by rules. With --latency the exit code is 1 if a limit is missed.
    """
    if fitting:
        _fit(data, Embedder() if embedding else None, as_json=as_json)
        return
    if turn_start:
        _evaluate_turn_start(data[0], into, as_json=as_json)
        return
    # Asked before anything is measured: the checkout may change while that goes on.
    _commit()
    options = EvaluationOptions(audit, beside, facts, latency, coding, embedding, units)
    names = [_table_name(path, options) for path in data]
    require_placeholders(into, (*names, _GATES_TABLE) if gating and not coding else names)
    times: list[float] = []
    reports = [_measure(path, options, times) for path in data]
    gated = [each for each in reports if not isinstance(each, CodingReport)]
    found = gates(gated) if gated else ()
    tables = {name: _markdown(report) for name, report in zip(names, reports, strict=True)}
    # Only if asked for: the table of one DATA would replace that of others in the same document.
    insert_tables(into, tables | ({_GATES_TABLE: gates_markdown(found)} if gating and found else {}))
    if as_json:
        values = [_value(report, times) for report in reports]
        whole = {"gates": gates_json(found), "command": _command_line(), "commit": _commit()}
        emit(values[0] | whole if len(values) == 1 else {"reports": values} | whole)
    else:
        _print_evaluation(reports, found)
    missed = gating and any(gate.state == "miss" for gate in found)
    if missed or any(isinstance(report, Latency) and not report.ok for report in reports):
        click.get_current_context().exit(FINDINGS)


def _evaluate_turn_start(data: Path, into: tuple[Path, ...], *, as_json: bool) -> None:
    require_placeholders(into, (_TURN_START_TABLE,))
    measured = measure_turn_start(data, announce=_announce_evaluation)
    insert_tables(into, {_TURN_START_TABLE: turn_start_markdown(measured)})
    emit(measured) if as_json else click.echo(turn_start_markdown(measured))
    if not measured.ok:
        click.get_current_context().exit(FINDINGS)


def turn_start_markdown(measured: TurnStart) -> str:
    """Return what recall adds to the start of a turn as a Markdown table."""
    rows = (
        (f"first prompt of a process, {measured.notes:,} notes", measured.first_ms),
        ("later prompts, median", measured.p50_ms),
        ("later prompts, 95th percentile", measured.p95_ms),
        ("processor time of one of them", measured.cpu_ms),
        (f"loading the index of {measured.notes:,} notes", measured.load_notes_ms),
        (f"loading an index of {measured.units:,} turns", measured.load_units_ms),
    )
    return "\n".join(("| | ms |", "|---|---|", *(f"| {name} | {value:.1f} |" for name, value in rows)))


def _fit(data: Sequence[Path], embedder: Embedder | None, *, as_json: bool) -> None:
    if any(path.is_dir() for path in data):
        raise BadInput("weights are fitted on files of conversations", where="--fit")
    weights = fit_data(data, embedder=embedder, announce=_announce_evaluation)
    emit(weights) if as_json else click.echo("\n".join(f'    "{name}": {weight},' for name, weight in weights.items()))


def _table_name(path: Path, options: EvaluationOptions) -> str:
    if options.coding:
        return _CODING_TABLE
    if path.is_dir():
        return _LEVELS_TABLE
    return _LATENCY_TABLE if options.latency else path.stem


def _measure(path: Path, options: EvaluationOptions, times: list[float]) -> Report:
    if options.coding:
        return eval_coding(path, announce=_announce_evaluation)
    if path.is_dir():
        return eval_levels(path, facts=options.facts, announce=_announce_evaluation)
    if options.latency:
        return measure_latency(path, units=options.units, announce=_announce_evaluation)
    times.clear()
    embedder = Embedder() if options.embedding else None
    return eval_data(path, audit=options.audit, beside=options.beside, embedder=embedder, announce=_announce_evaluation, times=times)


def _markdown(report: Report) -> str:
    match report:
        case MemoryReport():
            return rankings_markdown(report, _footer(report))
        case Latency():
            return latency_markdown(report)
        case LevelsReport():
            return levels_markdown(report)
        case CodingReport():
            return coding_markdown(report, f"commit {_commit() or 'unknown'}; `{_command_line()}`")


def _value(report: Report, times: Sequence[float]) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(report)
    return rankings_json(report, quantile(times, 0.95)) | {"report": whole} if isinstance(report, MemoryReport) else whole


def _print_evaluation(reports: Sequence[Report], found: Sequence[Gate]) -> None:
    for report in reports:
        if isinstance(report, MemoryReport):
            table = Columns(*RANKING_COLUMNS, right=RANKING_COLUMNS[1:], keep=("ranking",))
            for row in report.rows:
                table.add_row(*ranking_cells(row))
            console().print(table)
            for line in _footer(report):
                click.echo(line)
        else:
            click.echo(_markdown(report))
        if found:
            click.echo()
    if found:
        click.echo(gates_markdown(found))


def _footer(report: MemoryReport) -> list[str]:
    questions = f"{report.main_questions} main and {report.adversarial_questions} adversarial questions"
    size = f"{report.conversations} conversations, {report.units:,} units, {questions}"
    return [
        f"{report.data} (sha256 {report.digest[:12]}): {size}; seed {report.seed}; commit {_commit() or 'unknown'}; `{_command_line()}`"
    ]


def _command_line() -> str:
    """Return the command line without the folders of files, which say nothing to other readers."""
    return shlex.join(("pal", *(Path(word).name if "/" in word else word for word in sys.argv[1:])))


@cache
def _commit() -> str:
    """Return the commit of the checkout that the package is part of, as it was when first asked; empty if there is none."""
    try:
        with borrowed_git(Path(palimpsest.__file__).parent, seconds=_GIT_SECONDS) as git:
            return "" if git is None else git.run("describe", "--always", "--dirty", "--abbrev=12").decode().strip()
    except (OSError, StoreError):
        return ""


def _announce_evaluation(what: str) -> None:
    click.echo(f"memory eval: {what}", err=True)
