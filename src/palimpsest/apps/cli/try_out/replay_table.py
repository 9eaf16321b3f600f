"""What a replay found, as tables for people, in which no number is ever cut."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.output import console, dollars, emit, one_line, plain, progress_bar, short, table
from palimpsest.apps.cli.try_out.documents import put
from palimpsest.apps.cli.try_out.replay_sources import Sources
from palimpsest.core.errors import BadInput
from palimpsest.lab.agreement import Agreement, SessionAgreement, agreement_markdown, agreement_of, compare_cache
from palimpsest.lab.outcome import CardRun, Comparison, Figures, Outcome, figures, ratio

PLACE = "agreement"
_HEADER = ("session", "format", "calls", "read", "simulated", "error")


def tell_agreement(sources: Sources, into: tuple[Path, ...], *, as_json: bool) -> None:
    """All sessions side by side, and what could not be read."""
    found: list[SessionAgreement] = []
    silent = 0
    with progress_bar("comparing", len(sources.takes)) as tell:
        for number, take in enumerate(sources.takes, 1):
            taken = sources.next(take)
            one = compare_cache(taken.id, taken.format, taken.events) if taken is not None else None
            found += [one] if one is not None else []
            silent += taken is not None and one is None
            tell(number)
    for bad in sources.skipped:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if not found:
        raise BadInput("none of these sessions says what was read from a cache", where=PLACE)
    told = agreement_of(found, silent)
    put(into, {PLACE: agreement_markdown(told)})
    if as_json:
        emit(told)
    else:
        _print(told)
    if sources.skipped:
        click.get_current_context().exit(FINDINGS)


def _print(told: Agreement) -> None:
    screen = console()
    rows = [
        (plain(one.session), one.format, f"{one.calls:,}", f"{one.reported:,}", f"{one.simulated:,}", f"{one.error:.2%}")
        for one in told.sessions
    ]
    print_rows(screen, _HEADER, rows, left=2)
    for name, error in told.median.items():
        screen.print(f"median error of {name}: {error:.2%}")
    if told.silent:
        screen.print(f"sessions that report no cache reads: {told.silent}")


_NAME, _NARROWEST, _WIDE = 40, 12, 100
_COLUMNS = ("cost", "ratio", "worst", "calls", "peak", "mean", "folds", "masks", "re-reads", "kept", "invalid", "long", "failed", "plan ms")
_FOR_WIDE = frozenset({"calls", "peak", "mean"})
_VERSION = re.compile(r"-\d[\d.]*$")


def end_of(name: str, width: int) -> str:
    """The end of a name, for ids of other programs begin alike."""
    return name if cell_len(name) <= width else f"…{name[1 - width :]}"


def print_rows(
    screen: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    shorten: Callable[[str, int], str] = end_of,
) -> None:
    """A table of names and numbers; where there is no room the first name is shortened, and numbers never are."""
    rest = [max(cell_len(cells[place]) for cells in (header, *rows)) + 2 for place in range(1, len(header))]
    room = screen.width - sum(rest)
    # Where even a short name has no room beside its numbers each row becomes a block, and the name has a line to itself.
    width = room if room >= _NARROWEST else screen.width - cell_len(header[0]) - 2
    made = table(*header, right=tuple(header[left:]), keep=tuple(header[:left]))
    for name, *cells in rows:
        made.add_row(shorten(name, width), *cells)
    screen.print(made)


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """A table per card: sessions, if there are several, what they come to, and what they still knew after forced folds."""
    for run in comparison.runs:
        cache = f", cache entries last {run.ttl}" if run.ttl else ""
        screen.print(Text(plain(f"{run.card}, window {run.window:,}{cache}"), style="bold"))
        found = {name: figures(_outcomes(run, name)) for name in comparison.profiles}
        if len(run.sessions) > 1:
            _print_sessions(screen, run, comparison)
        _print_total(screen, run, comparison, found)
        _print_probes(screen, found)
        _print_findings(screen, run, found)


def _print_sessions(screen: Console, run: CardRun, comparison: Comparison) -> None:
    """Dollars of the profile that others are compared with, and how many times that the others are."""
    against = comparison.against
    others = [name for name in comparison.profiles if name != against]
    rows = []
    for session in run.sessions:
        found = {name: figures([outcome]).usd for name, outcome in session.profiles.items()}
        base = found.get(against, 0.0)
        cells = [_times(found[name], base) if against else dollars(found[name]) for name in others]
        name = one_line(session.title, _NAME) or end_of(plain(session.id), _NAME)
        rows.append((name, short(session.tokens), *([dollars(base)] if against else []), *cells))
    titles = {one_line(session.title, _NAME) for session in run.sessions}
    header = ("session", "tokens", *(("cost",) if against else ()), *_heads(others))
    print_rows(screen, header, rows, shorten=lambda name, width: (one_line if name in titles else end_of)(name, width))
    screen.print()


def _heads(names: list[str]) -> list[str]:
    """Names without their versions, where that still tells them apart."""
    plain_names = [_VERSION.sub("", name) for name in names]
    return [short if plain_names.count(short) == 1 else name for name, short in zip(names, plain_names, strict=True)]


def _print_total(screen: Console, run: CardRun, comparison: Comparison, found: dict[str, Figures]) -> None:
    against = comparison.against
    columns = [name for name in _COLUMNS if screen.width >= _WIDE or name not in _FOR_WIDE]
    told = {
        "worst": len(run.sessions) > 1 and bool(against),
        "ratio": bool(against),
        "invalid": any(one.invalid for one in found.values()),
        "long": any(one.too_long for one in found.values()),
        "failed": any(one.failed for one in found.values()),
        "plan ms": any(one.plan_ms is not None for one in found.values()),
    }
    columns = [name for name in columns if told.get(name, True)]
    rows = []
    for name, one in found.items():
        ratios = [_ratio(session.profiles[name], session.profiles[against]) for session in run.sessions] if against else []
        cells = _cells(one, found.get(against), max((each for each in ratios if each is not None), default=None))
        rows.append((name, *(cells[column] for column in columns)))
    print_rows(screen, ("profile", *columns), rows)
    for line in _notes(comparison, columns):
        screen.print(Text(line, style="dim"))


def _cells(found: Figures, base: Figures | None, worst: float | None) -> dict[str, str]:
    kept = found.survival
    shares = (kept.user_messages, kept.edited_paths, kept.read_paths, kept.commands)
    return {
        "cost": dollars(found.usd),
        "ratio": _times(found.usd, base.usd) if base is not None else "",
        "worst": "" if worst is None else f"{worst:.2f}x",
        "calls": f"{found.calls:,}",
        "peak": short(found.peak),
        "mean": short(found.mean),
        "folds": f"{found.folds:,}",
        "masks": f"{found.masks:,}",
        "re-reads": f"{found.rereads:,}",
        "kept": f"{sum(shares) / len(shares):.0%}" if found.folds else "",
        "invalid": f"{found.invalid:,}",
        "long": f"{found.too_long:,}",
        "failed": f"{found.failed:,}",
        "plan ms": f"{found.plan_ms or 0:,.0f}",
    }


def _notes(comparison: Comparison, columns: Sequence[str]) -> list[str]:
    told = ["re-reads: what was hidden and a later recorded call used; each is billed as one more call and its text"]
    if comparison.against:
        worst = "; worst: that of the session for which it is highest" if "worst" in columns else ""
        told.insert(0, f"ratio: cost against {comparison.against}{worst}")
    told.append("kept: of messages, paths and commands in what was folded, the share that still shows")
    if "long" in columns:
        told.append("long: requests of more tokens than the window, which a provider would refuse; they are billed all the same")
    return told


def _print_probes(screen: Console, found: dict[str, Figures]) -> None:
    """How many probes can be answered after so many forced folds, if they were asked."""
    asked = {name: one.probes["cycles"] for name, one in found.items()}
    cycles = sorted({int(cycle) for one in asked.values() for cycle in one})
    if not cycles:
        return
    screen.print()
    screen.print(Text("probes answered after so many forced folds: from what shows / with one recall", style="bold"))
    heads = [f"{cycle} fold{'s' if cycle > 1 else ''}" for cycle in cycles]
    rows = []
    for name, one in asked.items():
        shares = [one[str(cycle)] for cycle in cycles]
        rows.append((name, *(f"{each.visible * 100:.0f} / {each.with_recall * 100:.0f} %" for each in shares)))
    print_rows(screen, ("profile", *heads), rows)


def _print_findings(screen: Console, run: CardRun, found: dict[str, Figures]) -> None:
    """Malformed requests, sessions that a profile could not go on with, and a model that did not answer."""
    for session in run.sessions:
        for name, outcome in session.profiles.items():
            if outcome.invalid:
                line = f"{session.id}, {name}: {outcome.invalid} malformed requests: {'; '.join(outcome.faults)}"
                screen.print(Text(plain(line), style="bold red"), soft_wrap=True)
            if outcome.stopped:
                screen.print(Text(plain(f"{session.id}, {name}: {outcome.stopped}"), style="yellow"), soft_wrap=True)
    for name, one in found.items():
        if one.failed:
            failed = f"{name}: {one.failed:,} of {one.asked:,} requests to the model failed, and it went on without"
            screen.print(Text(plain(f"{failed}; the first: {one.failure}"), style="bold red"), soft_wrap=True)


def _outcomes(run: CardRun, name: str) -> list[Outcome]:
    return [session.profiles[name] for session in run.sessions]


def _ratio(one: Outcome, other: Outcome) -> float | None:
    return ratio(figures([one]).usd, figures([other]).usd)


def _times(one: float, other: float) -> str:
    found = ratio(one, other)
    return "" if found is None else f"{found:.2f}x"
