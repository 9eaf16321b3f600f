"""Tables of `pal replay` in which no number is cut, and the sessions that it replays, found by id, file or folder."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pal.cli.logs import open_log
from pal.cli.opening import expand_path, find_session
from pal.cli.tables import Columns, one_line
from pal.replay.drawing import mean_survival
from pal.replay.outcome import NO_MODEL, OWN_CARDS, RECORDED, CardRun, Comparison, Figures, Outcome, ReplayedSession, figures, ratio
from pal.replay.recording import OWN_FORMAT, LoadedSession, load_foreign, load_log
from pal.replay.rereads import DEFINITION_NAMES
from pal.text import plain, short
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.text import counted, dollars
from palimpsest.exchange.finding import OwnLogs, find_sources
from palimpsest.exchange.formats import FORMATS
from palimpsest.exchange.transcript import ReadProblem
from palimpsest.stores.home import Home
from palimpsest.stores.sessions import transcript_of

_NAME_WIDTH, _NARROWEST_NAME, _WIDE_SCREEN = 40, 12, 100
_COLUMNS = (
    *("cost", "ratio", "worst", "folds/100", "mean", "peak", "calls", "folds", "masks", "re-reads"),
    *("kept", "thinking", "invalid", "long", "failed", "plan ms"),
)
_WIDE_COLUMNS = frozenset({"calls", "peak", "folds", "masks", "kept"})
_MOST_COLUMNS = 9
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


class Footnotes:
    """Numbers the notes of a table; the mark of a note stands beside the value that it is about."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, *notes: str) -> str:
        """Return the marks of some notes; an equal note has the same mark, and an empty one has none."""
        numbers = [self._numbers.setdefault(note, len(self._numbers) + 1) for note in notes if note]
        return " ".join(f"[{number}]" for number in numbers)

    def print(self, screen: Console) -> None:
        """Print the notes, numbered as their marks are."""
        for note, number in self._numbers.items():
            screen.print(Text(plain(f"[{number}] {note}"), style="yellow"), soft_wrap=True)


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """Print a table for each card: costs by session if there are several, totals by profile, probes and failed requests."""
    for run in comparison.runs:
        screen.print(Text(plain(_title(run)), style="bold"))
        figures_by_profile = {name: figures(outcomes) for name, outcomes in run.outcomes.items()}
        # A column for each of many profiles would fit no screen.
        if len(run.sessions) > 1 and len(comparison.profiles) <= _MOST_COLUMNS:
            _print_sessions(screen, run, comparison)
        _print_total(screen, run, comparison, figures_by_profile)
        _print_probes(screen, {name: one for name, one in figures_by_profile.items() if name != RECORDED})
        _print_failures(screen, figures_by_profile)


def _title(run: CardRun) -> str:
    card = "each session by the card of its own model" if run.card == OWN_CARDS else run.card
    window = f", window {run.window:,}" if run.window else ""
    return f"{card}{window}{f', cache entries last {run.ttl}' if run.ttl else ''}"


def _print_sessions(screen: Console, run: CardRun, comparison: Comparison) -> None:
    """Print the cost of each session under the baseline, the ratios of the other profiles, and what its file reports."""
    against, footnotes = comparison.against, Footnotes()
    others = [name for name in comparison.profiles if name != against]
    recorded = any(session.recorded is not None for session in run.sessions)
    with_tokens = not recorded or screen.width >= _WIDE_SCREEN
    rows = []
    for session in run.sessions:
        marks = {name: footnotes.mark(*_findings(outcome)) for name, outcome in session.profiles.items()}
        costs = {name: figures([outcome]).usd for name, outcome in session.outcomes.items()}
        base = costs.get(against, 0.0)
        cells = [_joined(_times(costs[name], base) if against else dollars(costs[name]), marks[name]) for name in others]
        base_cell = _joined(dollars(base), marks.get(against, ""), footnotes.mark(_stand_in_note(session)))
        name = one_line(session.title, _NAME_WIDTH) or cut_start(plain(session.id), _NAME_WIDTH)
        tokens = [short(session.tokens)] if with_tokens else []
        spent = [dollars(costs[RECORDED]) if RECORDED in costs else ""] if recorded else []
        rows.append((name, *tokens, *([base_cell] if against else []), *cells, *spent))
    titles = {one_line(session.title, _NAME_WIDTH) for session in run.sessions}
    columns = (*(("tokens",) if with_tokens else ()), *(("cost",) if against else ()))
    header = ("session", *columns, *_column_titles(others), *((RECORDED,) if recorded else ()))
    print_rows(screen, header, rows, shorten=lambda name, width: (one_line if name in titles else cut_start)(name, width))
    if against:
        screen.print(Text(f"cost: under {against}; the other profiles as a multiple of it", style="dim"))
    footnotes.print(screen)
    screen.print()


def _findings(outcome: Outcome) -> tuple[str, ...]:
    """Return the notes about malformed requests, and about a view that a profile could not make fit."""
    malformed = f"{counted(outcome.invalid, 'malformed request')}: {'; '.join(outcome.faults)}" if outcome.invalid else ""
    return malformed, outcome.stopped and f"{outcome.profile} would have stopped here, and is billed on: {outcome.stopped}"


def _stand_in_note(session: ReplayedSession) -> str:
    missing = session.stand_in_for
    reason = "its file names no model" if missing == NO_MODEL else f"no price is known for {missing}"
    return missing and f"{reason}, so it is billed as {session.card}; --card names another"


def _joined(*cells: str) -> str:
    return " ".join(cell for cell in cells if cell)


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
        "thinking": any(one.reasoning_kept is not None for one in figures_by_profile.values()),
        "invalid": any(one.invalid for one in figures_by_profile.values()),
        "long": any(one.too_long for one in figures_by_profile.values()),
        "failed": any(one.failed for one in figures_by_profile.values()),
        "plan ms": any(one.plan_ms is not None for one in figures_by_profile.values()),
    }
    columns = [name for name in columns if visible_columns.get(name, True)]
    rows, footnotes = [], Footnotes()
    single = run.sessions[0] if len(run.sessions) == 1 else None
    for name, one in figures_by_profile.items():
        compared = [session for session in run.sessions if name in session.outcomes and against in session.profiles]
        ratios = [_ratio(session.outcomes[name], session.profiles[against]) for session in compared]
        # The files of some sessions do not tell what they cost, so this row is compared with the same sessions only.
        base = figures(session.profiles[against] for session in compared) if against else None
        cells = _cells(one, base, max((each for each in ratios if each is not None), default=None))
        if single is not None:
            notes = _findings(single.outcomes[name]) if name in single.profiles else ()
            cells["cost"] = _joined(cells["cost"], footnotes.mark(*notes, _stand_in_note(single)))
        if name == RECORDED:
            cells |= {"re-reads": "", "kept": "", "thinking": "", "invalid": "", "long": "", "failed": "", "plan ms": ""}
        rows.append((name, *(cells[column] for column in columns)))
    print_rows(screen, ("profile", *columns), rows)
    footnotes.print(screen)
    for line in _notes(comparison, columns, run):
        screen.print(Text(line, style="dim"))


def _cells(total: Figures, base: Figures | None, worst: float | None) -> dict[str, str]:
    return {
        "cost": dollars(total.usd),
        "ratio": _times(total.usd, base.usd) if base is not None else "",
        "worst": "" if worst is None else f"{worst:.2f}x",
        "calls": f"{total.calls:,}",
        "peak": short(total.peak),
        "mean": short(total.mean),
        "folds": f"{total.folds:,}",
        "folds/100": f"{total.folds_per_100:.1f}",
        "masks": f"{total.masks:,}",
        "re-reads": " / ".join(f"{number:,}" for number in total.rereads_by.values()),
        "kept": f"{mean_survival(total.survival):.0%}" if total.folds else "",
        "thinking": "" if total.reasoning_kept is None else f"{total.reasoning_kept:.0%}",
        "invalid": f"{total.invalid:,}",
        "long": f"{total.too_long:,}",
        "failed": f"{total.failed:,}",
        "plan ms": f"{total.plan_ms or 0:,.0f}",
    }


def _notes(comparison: Comparison, columns: Sequence[str], run: CardRun) -> list[str]:
    names, billed = " / ".join(DEFINITION_NAMES), comparison.rereads
    notes = [f"re-reads: hidden content that a later recorded call needs, by {names}; each by {billed} is billed as one more call"]
    if comparison.against:
        worst = "; worst: the highest ratio of a session" if "worst" in columns else ""
        notes.insert(0, f"ratio: cost against {comparison.against}{worst}")
    notes.append(
        "folds/100: folds per 100 recorded calls; mean: tokens of a usual request; no replay can price what they mean for the work"
    )
    if "kept" in columns:
        notes.append("kept: mean share of user messages, edited files, read files and commands of folded spans that is still visible")
    if "thinking" in columns:
        notes.append(
            "thinking: the share of the thinking blocks that no edit took away; this model binds them to all that stands before them"
        )
    if "long" in columns:
        notes.append("long: requests that exceed the window, which a provider would refuse; they are billed all the same")
    telling = sum(session.recorded is not None for session in run.sessions)
    if telling:
        some = f", {telling:,} of {counted(len(run.sessions), 'session')}" if telling < len(run.sessions) else ""
        notes.append(f"{RECORDED}: what really happened, by the usage in its file and the prices of the models that replied{some}")
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


def _print_failures(screen: Console, figures_by_profile: dict[str, Figures]) -> None:
    """Print the failed requests to the model."""
    for name, one in figures_by_profile.items():
        if one.failed:
            failed = f"{name}: {one.failed:,} of {counted(one.asked, 'request')} to the model failed, and the profile continued without it"
            screen.print(Text(plain(f"{failed}; the first: {one.failure}"), style="bold red"), soft_wrap=True)


def _ratio(one: Outcome, other: Outcome) -> float | None:
    return ratio(figures([one]).usd, figures([other]).usd)


def _times(one: float, other: float) -> str:
    times = ratio(one, other)
    return "" if times is None else f"{times:.2f}x"


Loader: TypeAlias = Callable[[], LoadedSession | ReadProblem]


class SessionLoaders(NamedTuple):
    """Loaders of the named sessions, and the files that were skipped with the reason."""

    loaders: list[Loader]
    skipped: list[ReadProblem]

    def next(self, load: Loader) -> LoadedSession | None:
        """Load a session; if it cannot be replayed, record the reason in `skipped` and return None."""
        loaded = load()
        if isinstance(loaded, ReadProblem):
            self.skipped.append(loaded)
        elif not loaded.recording.steps:
            self.skipped.append(ReadProblem(loaded.source, "it has no recorded reply of a model, so there is nothing to replay"))
        else:
            return loaded
        return None

    def error_without_sessions(self) -> BadInput:
        """Return the error for the case that no session could be loaded."""
        first = self.skipped[0]
        more = f" ({len(self.skipped) - 1} others cannot be replayed either)" if len(self.skipped) > 1 else ""
        return BadInput(first.why + more, where=first.where)


def find_sessions(home: Home, arguments: tuple[str, ...]) -> SessionLoaders:
    """Find the sessions for arguments: ids, files and folders. Raises `BadInput` if there are none."""
    found, skipped = list[Loader](), list[ReadProblem]()
    for argument in arguments:
        path = Path(os.path.abspath(expand_path(argument)))  # noqa: PTH100 - links are not resolved
        if not path.exists():
            found.append(_own_loader(home, argument))
            continue
        # Logs of this program hold lines of others, so they are recognised first.
        below = find_sources((OwnLogs(), *FORMATS), [path])
        own = [source for source in below.sources if source.format == OWN_FORMAT]
        found += [_own_loader(home, source.path) for source in own]
        found += [partial(load_foreign, source) for source in below.sources if source.format != OWN_FORMAT]
        skipped += below.skipped
    if not found:
        raise (
            SessionLoaders(found, skipped).error_without_sessions()
            if skipped
            else BadInput("there is no session to replay", where=", ".join(arguments))
        )
    return SessionLoaders(found, skipped)


def _own_loader(home: Home, argument: str) -> Loader:
    found = find_session(home, argument)
    name = found.name

    def load() -> LoadedSession | ReadProblem:
        try:
            with open_log(found, whole=True) as log:
                # Only a session that was worked on here named its log.
                own = log.opened.origin == "palimpsest"
                transcript = transcript_of(found.store.result_files(found.session)) if own else ""
                return load_log(log, found.blobs, name, transcript=transcript)
        except PalimpsestError as error:
            return ReadProblem(name, error.message)

    return load
