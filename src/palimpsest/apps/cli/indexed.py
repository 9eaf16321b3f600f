"""The index as commands use it: brought up to date where it can be, with a line on standard error for all that is missing."""

from collections.abc import Sequence

import click

from palimpsest.apps.cli.output import plain, progress
from palimpsest.core.errors import Locked
from palimpsest.core.ports import Index

_NAMED = 5


def catch_up(index: Index, only: str = "") -> bool:
    """Read what is new in the logs, and say what could not be read, now or before; whether the index knows everything.

    `only` is the name of the one log that matters, where one does.
    """
    behind = False
    try:
        with progress("reading new events") as tell:
            index.refresh(tell)
    except Locked as error:
        behind = True
        click.echo(f"pal: {error.where}: another process is writing the index; this is what it knew before", err=True)
    if index.note:
        click.echo(f"pal: {index.note}", err=True)
    faults = [fault for fault in index.faults() if only in {"", fault[0]}]
    tell_faults(faults)
    return not (behind or faults)


def tell_faults(faults: Sequence[tuple[str, str]]) -> None:
    """One line for each log that could not be read whole, up to five; the others are counted."""
    for path, why in faults[:_NAMED]:
        click.echo(plain(f"pal: {path}: {why}"), err=True)
    more = len(faults) - _NAMED
    if more > 0:
        click.echo(f"pal: {more:,} more logs cannot be read whole; `pal index --json` names them all", err=True)
