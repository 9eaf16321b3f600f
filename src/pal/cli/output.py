"""Output of commands: progress bars, JSON values and questions."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import msgspec

from pal.cli.command_line import FINDINGS
from pal.text import escaped_json, unfiltered
from palimpsest.core.errors import BadInput
from palimpsest.core.text import is_date, iso_time

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")


def confirm(what: str, where: str) -> None:
    """Ask whether to do what cannot simply be taken back; exit if the user declines. Raises `BadInput` without a terminal."""
    if not sys.stdin.isatty():
        raise BadInput(f"{what}; use --yes to confirm", where=where)
    if not click.confirm(f"{what}. Continue?", err=True):
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)


def emit(value: object) -> None:
    """Print one JSON value to standard output."""
    # Raw parts of a damaged log may not be valid UTF-8; invalid bytes are replaced.
    click.echo(escaped_json(msgspec.json.encode(value).decode(errors="replace")))


def with_iso_times(shape: Mapping[str, object], *names: str) -> dict[str, object]:
    """Return a JSON object with the named times as ISO 8601 instead of milliseconds; 0 and `None`, which are no time, become null."""
    times = {name: at for name in names if isinstance(at := shape[name], int)}
    return {**shape, **{name: iso_time(at) if at else None for name, at in times.items()}}


def local_time(at: int) -> str:
    """Format a time in milliseconds as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at / 1000)) if is_date(at) else f"{at} ms"


def short_time(at: int) -> str:
    """Format a time in milliseconds in at most eleven columns: day and time in this year, else the date."""
    if not is_date(at):
        return f"{at} ms"
    moment = time.localtime(at / 1000)
    return time.strftime("%m-%d %H:%M" if moment.tm_year == time.localtime().tm_year else "%Y-%m-%d", moment)


_BAR = 30


def _no_progress(done: int, total: int) -> None:
    return


@contextmanager
def progress(what: str, after_s: float = 1.0) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes done and total, 0 if unknown, and shows a bar or a count, after some seconds and only on a terminal."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    started = time.monotonic()
    is_shown = False

    def show(done: int, total: int) -> None:
        nonlocal is_shown
        if time.monotonic() - started >= after_s:
            is_shown = True
            share = min(100, done * 100 // max(1, total))
            shown = f"{'━' * (share * _BAR // 100):─<{_BAR}} {share:3d} %" if total else f"{done:,} files and folders"
            click.echo(f"\r{what} {shown}", nl=False, file=unfiltered(sys.stderr))

    try:
        yield show
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, file=unfiltered(sys.stderr))
