"""Prints the results of a replay as tables in which no number is cut."""

import re
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.output.tables import Columns, one_line
from palimpsest.apps.shown_text import dollars, plain, short
from palimpsest.lab.outcome import CardRun, Comparison, Figures, Outcome, figures, ratio

_NAME_WIDTH, _NARROWEST_NAME, _WIDE_SCREEN = 40, 12, 100
_COLUMNS = ("cost", "ratio", "worst", "calls", "peak", "mean", "folds", "masks", "re-reads", "kept", "invalid", "long", "failed", "plan ms")
_WIDE_COLUMNS = frozenset({"calls", "peak", "mean"})
_VERSION = re.compile(r"-\d[\d.]*$")


def cut_start(name: str, width: int) -> str:
    """Cut the beginning of a name, because ids of other programs begin alike."""
    return name if cell_len(name) <= width else f"…{name[1 - width :]}"


def print_rows(
    screen: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    shorten: Callable[[str, int], str] = cut_start,
) -> None:
    """Print a table of names and numbers; only the first column is cut to fit."""
    rest = [max(cell_len(cells[place]) for cells in (header, *rows)) + 2 for place in range(1, len(header))]
    room = screen.width - sum(rest)
    # If even a short name does not fit beside the numbers, each row becomes a block with the name on its own line.
    width = room if room >= _NARROWEST_NAME else screen.width - cell_len(header[0]) - 2
    rows_table = Columns(*header, right=tuple(header[left:]), keep=tuple(header[:left]))
    for name, *cells in rows:
        rows_table.add_row(shorten(name, width), *cells)
    screen.print(rows_table)


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """Print a table for each card: costs by session if there are several, totals by profile, probes and findings."""
    for run in comparison.runs:
        cache = f", cache entries last {run.ttl}" if run.ttl else ""
        screen.print(Text(plain(f"{run.card}, window {run.window:,}{cache}"), style="bold"))
        figures_by_profile = {name: figures(_outcomes(run, name)) for name in comparison.profiles}
        if len(run.sessions) > 1:
            _print_sessions(screen, run, comparison)
        _print_total(screen, run, comparison, figures_by_profile)
        _print_probes(screen, figures_by_profile)
        _print_findings(screen, run, figures_by_profile)


def _print_sessions(screen: Console, run: CardRun, comparison: Comparison) -> None:
    """Print the cost of each session under the baseline, and the ratios of the other profiles."""
    against = comparison.against
    others = [name for name in comparison.profiles if name != against]
    rows = []
    for session in run.sessions:
        costs = {name: figures([outcome]).usd for name, outcome in session.profiles.items()}
        base = costs.get(against, 0.0)
        cells = [_times(costs[name], base) if against else dollars(costs[name]) for name in others]
        name = one_line(session.title, _NAME_WIDTH) or cut_start(plain(session.id), _NAME_WIDTH)
        rows.append((name, short(session.tokens), *([dollars(base)] if against else []), *cells))
    titles = {one_line(session.title, _NAME_WIDTH) for session in run.sessions}
    header = ("session", "tokens", *(("cost",) if against else ()), *_column_titles(others))
    print_rows(screen, header, rows, shorten=lambda name, width: (one_line if name in titles else cut_start)(name, width))
    screen.print()


def _column_titles(names: list[str]) -> list[str]:
    """Return profile names without versions, unless two would be equal."""
    plain_names = [_VERSION.sub("", name) for name in names]
    return [short if plain_names.count(short) == 1 else name for name, short in zip(names, plain_names, strict=True)]


def _print_total(screen: Console, run: CardRun, comparison: Comparison, figures_by_profile: dict[str, Figures]) -> None:
    against = comparison.against
    columns = [name for name in _COLUMNS if screen.width >= _WIDE_SCREEN or name not in _WIDE_COLUMNS]
    visible_columns = {
        "worst": len(run.sessions) > 1 and bool(against),
        "ratio": bool(against),
        "invalid": any(one.invalid for one in figures_by_profile.values()),
        "long": any(one.too_long for one in figures_by_profile.values()),
        "failed": any(one.failed for one in figures_by_profile.values()),
        "plan ms": any(one.plan_ms is not None for one in figures_by_profile.values()),
    }
    columns = [name for name in columns if visible_columns.get(name, True)]
    rows = []
    for name, one in figures_by_profile.items():
        ratios = [_ratio(session.profiles[name], session.profiles[against]) for session in run.sessions] if against else []
        cells = _cells(one, figures_by_profile.get(against), max((each for each in ratios if each is not None), default=None))
        rows.append((name, *(cells[column] for column in columns)))
    print_rows(screen, ("profile", *columns), rows)
    for line in _notes(comparison, columns):
        screen.print(Text(line, style="dim"))


def _cells(total: Figures, base: Figures | None, worst: float | None) -> dict[str, str]:
    kept = total.survival
    shares = (kept.user_messages, kept.edited_paths, kept.read_paths, kept.commands)
    return {
        "cost": dollars(total.usd),
        "ratio": _times(total.usd, base.usd) if base is not None else "",
        "worst": "" if worst is None else f"{worst:.2f}x",
        "calls": f"{total.calls:,}",
        "peak": short(total.peak),
        "mean": short(total.mean),
        "folds": f"{total.folds:,}",
        "masks": f"{total.masks:,}",
        "re-reads": f"{total.rereads:,}",
        "kept": f"{sum(shares) / len(shares):.0%}" if total.folds else "",
        "invalid": f"{total.invalid:,}",
        "long": f"{total.too_long:,}",
        "failed": f"{total.failed:,}",
        "plan ms": f"{total.plan_ms or 0:,.0f}",
    }


def _notes(comparison: Comparison, columns: Sequence[str]) -> list[str]:
    notes = ["re-reads: hidden content that a later recorded call used, billed as one more call; a name that a fold lists counts as known"]
    if comparison.against:
        worst = "; worst: the highest ratio of a session" if "worst" in columns else ""
        notes.insert(0, f"ratio: cost against {comparison.against}{worst}")
    notes.append("kept: share of messages, paths and commands of folded spans that is still visible")
    if "long" in columns:
        notes.append("long: requests that exceed the window, which a provider would refuse; they are billed all the same")
    return notes


def _print_probes(screen: Console, figures_by_profile: dict[str, Figures]) -> None:
    """Print the share of probes answered after forced folds, if probes were asked."""
    asked = {name: one.probes["cycles"] for name, one in figures_by_profile.items()}
    cycles = sorted({int(cycle) for one in asked.values() for cycle in one})
    if not cycles:
        return
    screen.print()
    screen.print(Text("probes answered after forced folds: from the view / with one recall", style="bold"))
    heads = [f"{cycle} fold{'s' if cycle > 1 else ''}" for cycle in cycles]
    rows = []
    for name, one in asked.items():
        shares = [one[str(cycle)] for cycle in cycles]
        rows.append((name, *(f"{each.visible * 100:.0f} / {each.with_recall * 100:.0f} %" for each in shares)))
    print_rows(screen, ("profile", *heads), rows)


def _print_findings(screen: Console, run: CardRun, figures_by_profile: dict[str, Figures]) -> None:
    """Print malformed requests, sessions that a profile could not continue, and failed requests to the model."""
    for session in run.sessions:
        for name, outcome in session.profiles.items():
            if outcome.invalid:
                line = f"{session.id}, {name}: {outcome.invalid} malformed requests: {'; '.join(outcome.faults)}"
                screen.print(Text(plain(line), style="bold red"), soft_wrap=True)
            if outcome.stopped:
                screen.print(Text(plain(f"{session.id}, {name}: {outcome.stopped}"), style="yellow"), soft_wrap=True)
    for name, one in figures_by_profile.items():
        if one.failed:
            failed = f"{name}: {one.failed:,} of {one.asked:,} requests to the model failed, and the profile continued without it"
            screen.print(Text(plain(f"{failed}; the first: {one.failure}"), style="bold red"), soft_wrap=True)


def _outcomes(run: CardRun, name: str) -> list[Outcome]:
    return [session.profiles[name] for session in run.sessions]


def _ratio(one: Outcome, other: Outcome) -> float | None:
    return ratio(figures([one]).usd, figures([other]).usd)


def _times(one: float, other: float) -> str:
    times = ratio(one, other)
    return "" if times is None else f"{times:.2f}x"
