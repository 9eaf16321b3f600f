"""What a replay found, as tables for people."""

import re

from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.output import dollars, one_line, plain, short, table
from palimpsest.lab.agreement import Agreement
from palimpsest.lab.outcome import CardRun, Comparison, Figures, Outcome, figures, ratio

_NAME, _NARROWEST, _WIDE = 40, 12, 100
_COLUMNS = ("cost", "ratio", "worst", "calls", "peak", "mean", "folds", "masks", "re-reads", "kept", "plan ms")
_FOR_WIDE = frozenset({"calls", "peak", "mean"})
_VERSION = re.compile(r"-\d[\d.]*$")


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """A table per card: sessions, if there are several, and what they come to."""
    for run in comparison.runs:
        cache = f", cache entries last {run.ttl}" if run.ttl else ""
        screen.print(Text(plain(f"{run.card}, window {run.window:,}{cache}"), style="bold"))
        if len(run.sessions) > 1:
            _print_sessions(screen, run, comparison)
        _print_total(screen, run, comparison)
        _print_findings(screen, run)


def _print_sessions(screen: Console, run: CardRun, comparison: Comparison) -> None:
    """Dollars of the profile that others are compared with, and how many times that the others are."""
    against = comparison.against
    others = [name for name in comparison.profiles if name != against]
    heads = _heads(others)
    first = ("cost",) if against else ()
    made = table("session", "tokens", *first, *heads, right=("tokens", *first, *heads))
    taken = sum(max(len(name), 6) + 2 for name in ("tokens", *first, *heads))
    width = max(_NARROWEST, min(_NAME, screen.width - taken - 2))
    for session in run.sessions:
        found = {name: figures([outcome]).usd for name, outcome in session.profiles.items()}
        base = found.get(against, 0.0)
        cells = [_times(found[name], base) if against else dollars(found[name]) for name in others]
        # Ids of other programs begin alike, so that their ends tell more.
        name = (
            one_line(session.title, width) if session.title else session.id if len(session.id) <= width else f"…{session.id[1 - width :]}"
        )
        made.add_row(name, short(session.tokens), *([dollars(base)] if against else []), *cells)
    screen.print(made)
    screen.print()


def _end(session: str, width: int) -> str:
    """The end of an id: those of other programs begin alike."""
    return session if len(session) <= width else f"…{session[1 - width :]}"


def _heads(names: list[str]) -> list[str]:
    """Names without their versions, where that still tells them apart."""
    plain_names = [_VERSION.sub("", name) for name in names]
    return [short if plain_names.count(short) == 1 else name for name, short in zip(names, plain_names, strict=True)]


def _print_total(screen: Console, run: CardRun, comparison: Comparison) -> None:
    timed = any(outcome.plan_ms is not None for session in run.sessions for outcome in session.profiles.values())
    columns = [name for name in _COLUMNS if screen.width >= _WIDE or name not in _FOR_WIDE]
    columns = [name for name in columns if (name != "plan ms" or timed) and (name != "worst" or len(run.sessions) > 1)]
    made = table("profile", *columns, right=tuple(columns), keep=("profile",))
    base = figures(_outcomes(run, comparison.against)) if comparison.against else None
    for name in comparison.profiles:
        found = figures(_outcomes(run, name))
        ratios = [_ratio(run, number, name, comparison.against) for number in range(len(run.sessions))]
        worst = max((each for each in ratios if each is not None), default=None)
        cells = _cells(found, base, worst)
        made.add_row(name, *(cells[column] for column in columns))
    screen.print(made)
    for line in _notes(comparison):
        screen.print(Text(line, style="dim"))


def _cells(found: Figures, base: Figures | None, worst: float | None) -> dict[str, str]:
    kept = found.survival
    shares = (kept.user_messages, kept.edited_paths, kept.read_paths, kept.commands, kept.constraints)
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
        "plan ms": f"{found.plan_ms or 0:,.0f}",
    }


def _notes(comparison: Comparison) -> list[str]:
    told = ["re-reads: what was hidden and a later recorded call used; each is billed as one more call and its text"]
    if comparison.against:
        many = any(len(run.sessions) > 1 for run in comparison.runs)
        worst = "; worst: that of the session for which it is highest" if many else ""
        told.insert(0, f"ratio: cost against {comparison.against}{worst}")
    told.append("kept: of messages, constraints, paths and commands in what was folded, the share that still shows")
    return told


def _print_findings(screen: Console, run: CardRun) -> None:
    """Requests that a provider would refuse, and sessions that a profile could not go on with."""
    for session in run.sessions:
        for name, outcome in session.profiles.items():
            if outcome.invalid:
                line = f"{session.id}, {name}: {outcome.invalid} requests would be refused: {'; '.join(outcome.faults)}"
                screen.print(Text(plain(line), style="bold red"), soft_wrap=True)
            if outcome.stopped:
                screen.print(Text(plain(f"{session.id}, {name}: {outcome.stopped}"), style="yellow"), soft_wrap=True)


def print_agreement(screen: Console, told: Agreement) -> None:
    """The simulated cache beside the reported one."""
    made = table("session", "format", "calls", "read", "simulated", "error", right=("calls", "read", "simulated", "error"))
    for one in told.sessions:
        made.add_row(one_line(one.session, 44), one.format, f"{one.calls:,}", f"{one.reported:,}", f"{one.simulated:,}", f"{one.error:.2%}")
    screen.print(made)
    for name, error in told.median.items():
        screen.print(f"median error of {name}: {error:.2%}")


def _outcomes(run: CardRun, name: str) -> list[Outcome]:
    return [session.profiles[name] for session in run.sessions]


def _ratio(run: CardRun, number: int, name: str, against: str) -> float | None:
    profiles = run.sessions[number].profiles
    return ratio(figures([profiles[name]]).usd, figures([profiles[against]]).usd) if against else None


def _times(one: float, other: float) -> str:
    found = ratio(one, other)
    return "" if found is None else f"{found:.2f}x"
