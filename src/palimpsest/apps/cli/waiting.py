"""How far a long piece of work is, for a person who waits at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from palimpsest.apps.cli.output import console


@contextmanager
def waiting(what: str, total: int) -> Iterator[Callable[[float], None]]:
    """Hears how many parts are done, and shows it with the time that is left; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to load, and for terminals only

    columns = (TextColumn(what), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
