"""Tables and JSON values of `pal memory eval`: rankings, latency, levels, coding questions and gates."""

from collections.abc import Sequence
from typing import Any

import msgspec

from palimpsest.lab.memory.coding_eval import CodingReport
from palimpsest.lab.memory.evaluation import MemoryReport, ScoreRow
from palimpsest.lab.memory.gates import Gate
from palimpsest.lab.memory.latency import P95_LIMIT_MS, WORST_LIMIT_MS, Latency
from palimpsest.lab.memory.levels import LevelsReport

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
