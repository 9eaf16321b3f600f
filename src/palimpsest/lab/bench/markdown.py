"""Converts a benchmark report to the Markdown tables of docs/benchmark.md."""

from collections.abc import Iterable, Sequence

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.bars import GOALS, Bar, Report
from palimpsest.lab.bench.tables import cost_table, kinds_table, probes_table, sessions_table, survival_table


def tables_of(report: Report) -> dict[str, str]:
    """Return all tables of a report by placeholder name; empty tables are left out."""
    found = {}
    if any(GOALS[bar.name].table == "bench" for bar in report.bars):
        found["bench"] = as_markdown(report)
    costs = [bar for bar in report.bars if GOALS[bar.name].table == "cost"]
    if costs:
        found["cost"] = "\n".join([*_rows(costs), "", f"{len(report.sessions)} {report.replayed}.{_halves(costs)}"])
    if report.profiles:
        found["profiles"] = cost_table(report.profiles)
        found["survival"] = survival_table(report.profiles)
        found["sessions"] = sessions_table(report.sessions)
    if report.profiles and report.profiles[0].probes:
        found["probes"] = probes_table(report.profiles)
        # The first two profiles are ours and the baseline.
        found["kinds"] = kinds_table(report.profiles[:2])
    return found


def placeholders_for(wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the placeholder names of the tables that a run with these bars may write."""
    tables = {GOALS[name].table for name in wanted}
    replayed = ("cost", "profiles", "survival", "sessions", "probes", "kinds")
    return (*(("bench",) if "bench" in tables else ()), *(replayed if tables - {"bench"} else ()))


def as_markdown(report: Report) -> str:
    """Return the table of speed bars, followed by a line about the machine."""
    rows = _rows([bar for bar in report.bars if GOALS[bar.name].table == "bench"])
    machine = "{system}, Python {python}, {processors} processors".format(**report.machine)
    size = " Smaller sizes (`--quick`)." if report.quick else ""
    return "\n".join([*rows, "", f"u = {report.unit_ms:.2f} ms. {machine}. {report.took_s:.0f} s in all.{size}"])


def replace_table(text: str, table: str, where: str, place: str = "bench") -> str:
    """Return a document with the table inserted at its placeholder. Raises `BadInput` if the document has no such placeholder."""
    first, last = f"<!-- {place} begins -->", f"<!-- {place} ends -->"
    before, begins, rest = text.partition(first)
    _, ends, after = rest.partition(last)
    if not begins or not ends:
        raise BadInput(f"the document has no placeholder for the table, which is two lines {first} and {last}", where=where)
    return f"{before}{first}\n{table}\n{last}{after}"


def _halves(bars: Sequence[Bar]) -> str:
    """Return a sentence with the ratios of both halves of the sessions, for bars that have them."""
    ratios = [f"`{bar.name}` {bar.detail['even']:.3f} / {bar.detail['odd']:.3f}" for bar in bars if {"even", "odd"} <= bar.detail.keys()]
    return f" Their even and odd halves: {', '.join(ratios)}." if ratios else ""


def _rows(bars: Sequence[Bar]) -> list[str]:
    return ["| bar | what | value | limit | peer |", "|---|---|---:|---:|---|", *(_row(bar) for bar in bars)]


def _row(bar: Bar) -> str:
    sign = "≤" if bar.better == "lower" else "≥"
    limit = "" if bar.limit is None else f"{sign} {format_value(bar.limit, bar.unit)}"
    peer = "" if bar.peer is None else f"{bar.peer.name} {format_value(bar.peer.value, bar.unit)}"
    value = format_value(bar.value, bar.unit) + (" (missed)" if bar.ok is False else "")
    return f"| `{bar.name}` | {GOALS[bar.name].about} | {value} | {limit} | {peer} |"


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit; a dash for None."""
    if value is None:
        return "-"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number}{unit}" if unit in ("u", "x", "") else f"{number} {unit}"
