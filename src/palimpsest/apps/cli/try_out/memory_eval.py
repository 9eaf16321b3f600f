"""`pal memory eval`: recall measured on data with known evidence, its weights fitted, or its latency."""

import shlex
import subprocess
import sys
from pathlib import Path

import click
from msgspec import Struct

import palimpsest
from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output.tables import Columns, console
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.cli.try_out.report_files import document_option, insert_tables, require_placeholders
from palimpsest.lab.memory.evaluation import MemoryReport, ScoreRow, eval_data, fit_data
from palimpsest.lab.memory.latency import P95_LIMIT_MS, UNITS, WORST_LIMIT_MS, Latency, measure_latency
from palimpsest.lab.memory.levels import LevelsReport, eval_levels
from palimpsest.providers.embedding import Embedder

_GIT_SECONDS = 5
_LATENCY_TABLE, _LEVELS_TABLE = "latency", "levels"
_NAMES = ("ranking", "questions", "nDCG@10", "R@10", "± s.e.", "R@1", "all@10", "any@10", "sR@5")


class EvaluationRun(Struct, frozen=True):
    """A report with the command line and the commit that made it; the commit is empty outside of a checkout."""

    report: MemoryReport
    command: str
    commit: str


_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("eval", epilog="\b\nExample:\n  pal memory eval locomo.json --audit errors.json")
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--audit", type=_file, metavar="FILE", help="Score with the evidence that this audit corrected, too.")
@click.option("--fit", "fitting", is_flag=True, help="Instead, fit weights on all of the data and print them.")
@click.option("--latency", is_flag=True, help="Instead, measure queries in an index of many long units made of the data.")
@click.option("--embed", "embedding", is_flag=True, help="Measure, or fit, with embeddings too; needs the extra `embed`.")
@click.option("--units", type=click.IntRange(100), default=UNITS, show_default=True, metavar="N", help="Units of that index.")
@document_option(help="Insert the table into a document, at the placeholder with the name of the data, or `latency`.")
@json_option
def evaluate(
    *, data: Path, audit: Path | None, fitting: bool, latency: bool, embedding: bool, units: int, into: tuple[Path, ...], as_json: bool
) -> None:
    """Measure recall on DATA, a file of conversations with questions and evidence in the format of LoCoMo, or a folder of cases.

    Weights are fitted without the conversation that is scored; the shipped ones are measured beside them. Needs no model and no network.
    With --latency the exit code is 1 if a limit is missed.
    """
    if data.is_dir():
        _evaluate_levels(data, into, as_json=as_json)
        return
    embedder = Embedder() if embedding else None
    if fitting:
        weights = fit_data(data, embedder=embedder, announce=_announce)
        emit(weights) if as_json else click.echo("\n".join(f'    "{name}": {weight},' for name, weight in weights.items()))
        return
    if latency:
        require_placeholders(into, (_LATENCY_TABLE,))
        measured = measure_latency(data, units=units, announce=_announce)
        insert_tables(into, {_LATENCY_TABLE: latency_markdown(measured)})
        emit(measured) if as_json else click.echo(latency_markdown(measured))
        if not measured.ok:
            click.get_current_context().exit(FINDINGS)
        return
    require_placeholders(into, (data.stem,))
    run = EvaluationRun(eval_data(data, audit=audit, embedder=embedder, announce=_announce), _command_line(), _commit())
    insert_tables(into, {data.stem: report_markdown(run)})
    if as_json:
        emit(run)
    else:
        _print(run)


def _evaluate_levels(folder: Path, into: tuple[Path, ...], *, as_json: bool) -> None:
    require_placeholders(into, (_LEVELS_TABLE,))
    report = eval_levels(folder, announce=_announce)
    insert_tables(into, {_LEVELS_TABLE: levels_markdown(report)})
    emit(report) if as_json else click.echo(levels_markdown(report))


def levels_markdown(report: LevelsReport) -> str:
    """Return the scores by level as a Markdown table."""
    rows = [f"| {row.level} | {row.cases} | {row.score:.2f} | {row.ceiling:.2f} | {row.passed} |" for row in report.rows]
    return "\n".join(["| level | cases | facts recalled | facts in all messages | passed |", "|---" * 5 + "|", *rows])


def report_markdown(run: EvaluationRun) -> str:
    """Return the report as a Markdown table, with what made it below."""
    rows = [f"| {' | '.join(_cells(row))} |" for row in run.report.rows]
    categories = [
        f"| {row.name} | {' | '.join(f'{scores.recall_10:.3f}' for scores in row.categories.values())} | {row.adversarial.recall_10:.3f} |"
        for row in run.report.rows
    ]
    names = [f"{name} ({scores.questions})" for name, scores in run.report.rows[0].categories.items()]
    second = f"| R@10 by category | {' | '.join(names)} | adversarial ({run.report.adversarial_questions}) |"
    rule = "|---" * len(_NAMES) + "|"
    return "\n".join(
        [f"| {' | '.join(_NAMES)} |", rule, *rows, "", second, "|---" * (len(names) + 2) + "|", *categories, "", *_footer(run)]
    )


def latency_markdown(measured: Latency) -> str:
    """Return the latency as a Markdown table."""
    head = "| units | queries | p50 ms | p95 ms | worst ms | p95 ms of processor time | worst | limits |"
    limits = f"p95 < {P95_LIMIT_MS:g}, worst ≤ {WORST_LIMIT_MS:g}: {'kept' if measured.ok else 'MISSED'}"
    values = (measured.p50_ms, measured.p95_ms, measured.worst_ms, measured.p95_cpu_ms, measured.worst_cpu_ms)
    cells = [f"{measured.units:,}", f"{measured.queries:,}", *(f"{value:.1f}" for value in values), limits]
    return f"{head}\n{'|---' * 8}|\n| {' | '.join(cells)} |"


def _print(run: EvaluationRun) -> None:
    table = Columns(*_NAMES, right=_NAMES[1:], keep=("ranking",))
    for row in run.report.rows:
        table.add_row(*_cells(row))
    console().print(table)
    for line in _footer(run):
        click.echo(line)


def _cells(row: ScoreRow) -> list[str]:
    main = row.main
    values = (main.ndcg_10, main.recall_10, main.recall_10_error, main.recall_1, main.all_10, main.any_10, main.session_recall_5)
    return [row.name + (f" ({row.note})" if row.note else ""), str(main.questions), *(f"{value:.3f}" for value in values)]


def _footer(run: EvaluationRun) -> list[str]:
    report = run.report
    questions = f"{report.main_questions} main and {report.adversarial_questions} adversarial questions"
    size = f"{report.conversations} conversations, {report.units:,} units, {questions}"
    return [f"{report.data} (sha256 {report.digest[:12]}): {size}; seed {report.seed}; commit {run.commit or 'unknown'}; `{run.command}`"]


def _command_line() -> str:
    """Return the command line without the folders of files, which say nothing to other readers."""
    return shlex.join(("pal", *(Path(word).name if "/" in word else word for word in sys.argv[1:])))


def _commit() -> str:
    """Return the commit of the checkout that the package is part of; empty if there is none."""
    folder = Path(palimpsest.__file__).parent
    command = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)  # noqa: S603 - the user's own git
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _announce(what: str) -> None:
    click.echo(f"memory eval: {what}", err=True)
