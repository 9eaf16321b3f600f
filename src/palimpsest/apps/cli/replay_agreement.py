"""`pal replay --agreement`: the simulated cache beside what providers reported."""

from pathlib import Path

import click

from palimpsest.apps.cli.documents import put
from palimpsest.apps.cli.ending import FINDINGS
from palimpsest.apps.cli.output import console, emit, plain
from palimpsest.apps.cli.replay_sources import Sources
from palimpsest.apps.cli.replay_table import print_rows
from palimpsest.apps.cli.waiting import waiting
from palimpsest.core.errors import BadInput
from palimpsest.lab.agreement import Agreement, Compared, agreement_markdown, agreement_of, compare

PLACE = "agreement"
_HEADER = ("session", "format", "calls", "read", "simulated", "error")


def tell_agreement(sources: Sources, into: tuple[Path, ...], *, as_json: bool) -> None:
    """All sessions side by side, and what could not be read."""
    found: list[Compared] = []
    silent = 0
    with waiting("comparing", len(sources.takes)) as tell:
        for number, take in enumerate(sources.takes, 1):
            taken = sources.next(take)
            one = compare(taken.id, taken.format, taken.events) if taken is not None else None
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
