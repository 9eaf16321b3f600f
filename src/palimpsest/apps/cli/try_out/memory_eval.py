"""`pal memory eval`: recall measured on data with known evidence, its weights fitted, or its latency."""

import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import click
import msgspec

import palimpsest
from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output.tables import Columns, console
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.cli.try_out.memory_tables import (
    RANKING_COLUMNS,
    coding_markdown,
    gates_json,
    gates_markdown,
    latency_markdown,
    levels_markdown,
    ranking_cells,
    rankings_json,
    rankings_markdown,
)
from palimpsest.apps.cli.try_out.report_files import document_option, insert_tables, require_placeholders
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.lab.memory.coding_eval import CodingReport, eval_coding
from palimpsest.lab.memory.evaluation import MemoryReport, eval_data, fit_data
from palimpsest.lab.memory.gates import Gate, gates
from palimpsest.lab.memory.latency import UNITS, Latency, measure_latency, quantile
from palimpsest.lab.memory.levels import LevelsReport, eval_levels
from palimpsest.lab.memory.turn_start import TurnStart, measure_turn_start
from palimpsest.providers.embedding import Embedder
from palimpsest.stores.snapshots.repository import borrowed_git

_GIT_SECONDS = 5.0
_LATENCY_TABLE, _LEVELS_TABLE, _CODING_TABLE, _GATES_TABLE, _TURN_START_TABLE = "latency", "levels", "coding", "gates", "turn-start"

Report: TypeAlias = MemoryReport | Latency | LevelsReport | CodingReport


class EvaluationOptions(msgspec.Struct, frozen=True):
    """How data is measured, beside what it is."""

    audit: Path | None
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
    options = EvaluationOptions(audit, facts, latency, coding, embedding, units)
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
        _print(reports, found)
    missed = gating and any(gate.state == "miss" for gate in found)
    if missed or any(isinstance(report, Latency) and not report.ok for report in reports):
        click.get_current_context().exit(FINDINGS)


def _evaluate_turn_start(data: Path, into: tuple[Path, ...], *, as_json: bool) -> None:
    require_placeholders(into, (_TURN_START_TABLE,))
    measured = measure_turn_start(data, announce=_announce)
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
    if len(data) != 1 or data[0].is_dir():
        raise BadInput("weights are fitted on one file of conversations", where="--fit")
    weights = fit_data(data[0], embedder=embedder, announce=_announce)
    emit(weights) if as_json else click.echo("\n".join(f'    "{name}": {weight},' for name, weight in weights.items()))


def _table_name(path: Path, options: EvaluationOptions) -> str:
    if options.coding:
        return _CODING_TABLE
    if path.is_dir():
        return _LEVELS_TABLE
    return _LATENCY_TABLE if options.latency else path.stem


def _measure(path: Path, options: EvaluationOptions, times: list[float]) -> Report:
    if options.coding:
        return eval_coding(path, announce=_announce)
    if path.is_dir():
        return eval_levels(path, facts=options.facts, announce=_announce)
    if options.latency:
        return measure_latency(path, units=options.units, announce=_announce)
    times.clear()
    embedder = Embedder() if options.embedding else None
    return eval_data(path, audit=options.audit, embedder=embedder, announce=_announce, times=times)


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


def _print(reports: Sequence[Report], found: Sequence[Gate]) -> None:
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


def _announce(what: str) -> None:
    click.echo(f"memory eval: {what}", err=True)
