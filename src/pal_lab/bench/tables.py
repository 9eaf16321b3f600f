"""Markdown tables of docs/benchmark.md: bars, and replayed sessions by profile, by session, and by halves."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pal.replay.outcome import SURVIVALS, ProbeScores
from pal.replay.probes import KINDS
from pal_lab.bench.bars import GOALS, Bar, ProfileRow, Report, SessionCostRow
from pal_lab.halves import split_halves

_PRICING_TITLES: Final = {"cost_anthropic": "breakpoints, 5 min", "cost_anthropic_1h": "breakpoints, 1 h", "cost_openai": "automatic"}
# The setting that adds our evidence block to the summaries of the program that a profile imitates.
_WITH_EVIDENCE: Final = "PAL_EVIDENCE=on"
_EVIDENCE_NOTE: Final = "\\* With our evidence block beside its summaries, which the original does not have."

_SHORTEST_NAME: Final = 8
Kind = TypeVar("Kind")


REREADS_NOTE: Final = "\n\n† Hidden content that a recorded call needs, by *text*, which is billed"
_ALL_DEFINITIONS_NOTE: Final = ", then by *strings* and *names*. A list of names makes nothing known."


def cost_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the cost of each profile, as ratios to the baseline."""
    return (
        _table(
            ("profile", *_PRICING_TITLES.values(), "calls", "re-reads †", "folds a 100 calls", "mean context", "invalid"),
            rows,
            lambda row: (
                _profile_name(row),
                *(_ratio_cell(row.ratios.get(name)) for name in _PRICING_TITLES),
                f"{row.calls:,}",
                " / ".join(f"{number:,}" for number in row.rereads_by.values()),
                f"{row.folds_per_100:.1f}",
                f"{row.mean:,}",
                str(row.invalid),
            ),
        )
        + REREADS_NOTE
        + _ALL_DEFINITIONS_NOTE
        + _footnote(rows)
    )


def survival_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the survival after each profile's folds, in percent."""
    folded = [row for row in rows if row.folds]
    return _table(
        ("profile", *(name.replace("_", " ") for name in SURVIVALS)),
        folded,
        lambda row: (_profile_name(row), *(f"{100 * getattr(row.survival, name):.0f} %" for name in SURVIVALS)),
    ) + _footnote(folded)


def probes_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the probes answered after forced folds, from the view / with one recall, and the folds that were made."""
    cycles = tuple(rows[0].probes) if rows else ()
    table = _table(
        ("profile", *(f"{number} forced" for number in cycles)),
        rows,
        lambda row: (_profile_name(row), *(_scores_cell(row.probes[number]) for number in cycles)),
    )
    left_out = [f"`{row.profile}` {_unfolded_sessions(row)}" for row in rows if any(each.unfolded for each in row.probes.values())]
    legend = "After each score: folds made, of all that were forced."
    return (
        f"{table}\n\n{legend}"
        + (f" Sessions left out because nothing was folded: {', '.join(left_out)}." if left_out else "")
        + _footnote(rows)
    )


def _scores_cell(probed: ProbeScores) -> str:
    if not probed.sessions:
        return "-"
    return f"{100 * probed.visible:.0f} / {100 * probed.with_recall:.0f} %; {probed.folds:,} of {probed.forced:,}"


def _unfolded_sessions(row: ProfileRow) -> str:
    """Return the number of sessions without a fold, one for each number of forced folds unless all are equal."""
    numbers = [str(each.unfolded) for each in row.probes.values()]
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)


def kinds_table(rows: Sequence[ProfileRow]) -> str:
    """Return a table of the answered probes by kind, for some profiles."""
    columns = [(row, number) for row in rows for number in row.probes]
    kinds = dict.fromkeys(kind for row, number in columns for kind in row.probes[number].kinds)
    return _table(
        ("kind", *(f"`{row.profile}`, {number}" for row, number in columns)),
        [kind for kind in KINDS if kind in kinds],
        lambda kind: (f"`{kind}`", *(_kind_cell(row.probes[number], kind) for row, number in columns)),
    )


def _kind_cell(probed: ProbeScores, kind: str) -> str:
    scores = probed.kinds.get(kind) if probed.sessions else None
    return "-" if scores is None else f"{100 * scores.visible:.0f} / {100 * scores.with_recall:.0f} %"


def sessions_table(rows: Sequence[SessionCostRow]) -> str:
    """Return a table of our cost against the baseline by session, longest first."""
    ordered = sorted(rows, key=lambda row: (-row.tokens, row.session))
    names = short_names({row.session: row.format for row in rows})
    halves = {name: half for half, sessions in split_halves({row.session: row.tokens for row in rows}).items() for name in sessions}
    return (
        _table(
            ("session", "half", "tokens", *_PRICING_TITLES.values(), "re-reads †", "of the baseline"),
            ordered,
            lambda row: (
                f"{row.format} `{names[row.session]}`",
                halves[row.session],
                f"{row.tokens:,}",
                *(_ratio_cell(row.ratios.get(name)) for name in _PRICING_TITLES),
                str(row.rereads),
                str(row.theirs),
            ),
        )
        + REREADS_NOTE
        + "."
    )


def short_names(sessions: Mapping[str, str]) -> dict[str, str]:
    """Return a short unique name for each session: the beginning of its id, without the prefix of its format."""
    own = {session: re.split(r"__|\.", session.removeprefix(f"{form}-"))[-1] or session for session, form in sessions.items()}
    found = {}
    for session, name in own.items():
        others = [other for each, other in own.items() if each != session]
        lengths = (length for length in range(_SHORTEST_NAME, len(name)) if not any(other.startswith(name[:length]) for other in others))
        found[session] = name[: next(lengths, len(name))]
    return found


def _profile_name(row: ProfileRow) -> str:
    return f"`{row.profile}` \\*" if _WITH_EVIDENCE in row.profile else f"`{row.profile}`"


def _footnote(rows: Sequence[ProfileRow]) -> str:
    """Return the footnote for profiles that are marked with an asterisk, if there are any."""
    return f"\n\n{_EVIDENCE_NOTE}" if any(_WITH_EVIDENCE in row.profile for row in rows) else ""


def _ratio_cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _table(titles: Sequence[str], rows: Sequence[Kind], cells: Callable[[Kind], Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|---{'|---:' * (len(titles) - 1)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)])


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
    value = format_value(bar.value, bar.unit) + (f" ({bar.why or 'missed'})" if bar.ok is False else "")
    return f"| `{bar.name}` | {GOALS[bar.name].about} | {value} | {limit} | {peer} |"


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit; a dash for None."""
    if value is None:
        return "-"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number}{unit}" if unit in ("u", "x", "") else f"{number} {unit}"
