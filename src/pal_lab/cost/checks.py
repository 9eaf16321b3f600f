"""`pal replay --agreement` and `--calibrate`: hold the simulation against what was recorded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from pal.cli.command_line import FINDINGS
from pal.cli.output import emit
from pal.cli.replay_table import SessionLoaders, print_rows
from pal.cli.report_files import insert_tables, require_placeholders
from pal.cli.tables import console, progress_bar
from pal.replay.recording import LoadedSession
from pal.replay.rereads import DEFINITION_NAMES
from pal.text import plain
from pal_lab.cost.calibration import (
    Agreement,
    CompactionCase,
    RereadCalibration,
    SessionAgreement,
    agreement_markdown,
    agreement_of,
    calibration_markdown,
    calibration_of,
    compaction_cases,
    compare_cache,
)
from palimpsest.core.errors import BadInput

_AGREEMENT_TABLE: Final = "agreement"
_CALIBRATION_TABLE: Final = "calibration"


def _loaded(sources: SessionLoaders, title: str) -> Iterator[LoadedSession]:
    """Yield the sessions that can be replayed, with a progress bar; then print why others cannot."""
    with progress_bar(title, len(sources.loaders)) as show_progress:
        for number, load in enumerate(sources.loaders, 1):
            loaded = sources.next(load)
            if loaded is not None:
                yield loaded
            show_progress(number)
    for bad in sources.skipped:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)


def report_agreement(sources: SessionLoaders, into: tuple[Path, ...], *, as_json: bool) -> None:
    """Compare the simulated cache with recorded usage for all sessions; print the result, or insert it into documents."""
    require_placeholders(into, (_AGREEMENT_TABLE,))
    sessions: list[SessionAgreement] = []
    silent = 0
    for loaded in _loaded(sources, "comparing"):
        one = compare_cache(loaded.id, loaded.format, loaded.events)
        sessions += [one] if one is not None else []
        silent += one is None
    if not sessions:
        raise BadInput("none of these sessions reports cache reads", where=_AGREEMENT_TABLE)
    agreement = agreement_of(sessions, silent)
    insert_tables(into, {_AGREEMENT_TABLE: agreement_markdown(agreement)})
    _finish(sources, agreement, lambda: _print_agreement(agreement), as_json=as_json)


def report_calibration(sources: SessionLoaders, into: tuple[Path, ...], *, as_json: bool) -> None:
    """Compare predicted re-reads with those after recorded compactions; print the result, or insert it into documents."""
    require_placeholders(into, (_CALIBRATION_TABLE,))
    cases: list[CompactionCase] = []
    for loaded in _loaded(sources, "comparing"):
        cases += compaction_cases(loaded)
    if not cases:
        raise BadInput("none of these sessions has a compaction with 20 calls behind it", where=_CALIBRATION_TABLE)
    calibration = calibration_of(cases)
    insert_tables(into, {_CALIBRATION_TABLE: calibration_markdown(calibration)})
    _finish(sources, calibration, lambda: _print_calibration(calibration), as_json=as_json)


def _finish(sources: SessionLoaders, found: Agreement | RereadCalibration, show: Callable[[], None], *, as_json: bool) -> None:
    if as_json:
        emit(found)
    else:
        show()
    if sources.skipped:
        click.get_current_context().exit(FINDINGS)


def _print_agreement(agreement: Agreement) -> None:
    screen = console()
    rows = [
        (plain(one.session), one.format, f"{one.calls:,}", f"{one.reported:,}", f"{one.simulated:,}", f"{one.error:.2%}")
        for one in agreement.sessions
    ]
    print_rows(screen, ("session", "format", "calls", "read", "simulated", "error"), rows, left=2)
    for name, error in agreement.median.items():
        screen.print(f"median error of {name}: {error:.2%}")
    if agreement.silent:
        screen.print(f"sessions that report no cache reads: {agreement.silent}")


def _print_calibration(found: RereadCalibration) -> None:
    screen = console()
    header = ("sessions", "compactions", "after", "before", "extra", *DEFINITION_NAMES)
    rows = [
        (
            fit.format,
            f"{fit.compactions:,}",
            *(f"{value:.2f}" for value in (fit.after, fit.control, fit.extra)),
            *(f"{fit.predicted[name]:.2f}" for name in DEFINITION_NAMES),
        )
        for fit in found.formats
    ]
    print_rows(screen, header, [*rows, ("error", "", "", "", "", *(f"{found.error[name]:.2f}" for name in DEFINITION_NAMES))])
    screen.print("re-reads in the 20 calls after and before a compaction, the extra ones, and what each definition predicts")
    screen.print(f"best fit: {found.best} (official: {found.official}); the same without a session: {found.stable} of {found.sessions}")
