"""A report as the table that stands in docs/benchmark.md."""

from palimpsest.core.errors import BadInput
from palimpsest.lab.bench.bars import GOALS, Bar, Report

BEGINS = "<!-- bench begins -->"
ENDS = "<!-- bench ends -->"


def as_markdown(report: Report) -> str:
    """The table, and one line about the machine."""
    rows = ["| bar | what | value | limit | peer |", "|---|---|---:|---:|---|", *(_row(bar) for bar in report.bars)]
    machine = "{system}, Python {python}, {processors} processors".format(**report.machine)
    size = " Smaller sizes (`--quick`)." if report.quick else ""
    return "\n".join([*rows, "", f"u = {report.unit_ms:.2f} ms. {machine}. {report.took_s:.0f} s in all.{size}"])


def put_into(text: str, table: str, where: str) -> str:
    """A document with the table between its two marks."""
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise BadInput(f"the document has no place for the table: two lines {BEGINS} and {ENDS}", where=where)
    return f"{before}{BEGINS}\n{table}\n{ENDS}{after}"


def _row(bar: Bar) -> str:
    sign = "≤" if bar.better == "lower" else "≥"
    limit = "" if bar.limit is None else f"{sign} {shown(bar.limit, bar.unit)}"
    peer = "" if bar.peer is None else f"{bar.peer.name} {shown(bar.peer.value, bar.unit)}"
    value = shown(bar.value, bar.unit) + (" (missed)" if bar.ok is False else "")
    return f"| `{bar.name}` | {GOALS[bar.name].about} | {value} | {limit} | {peer} |"


def shown(value: float | None, unit: str) -> str:
    """A value with its unit, for people."""
    if value is None:
        return "-"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number}{unit}" if unit in ("u", "x") else f"{number} {unit}"
