"""What commands print: JSON for programs, tables for people, progress for those who wait."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.columns import Columns

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")

# Control characters of a log must not command the terminal; those that only lay text out are kept.
_HARMLESS = {ord("\n"), ord("\t")}
_CONTROLS = {code: 0x2400 + code for code in range(0x20) if code not in _HARMLESS}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)

_ELLIPSIS = "…"
_PART_OF_NUMBER = re.compile(r"[-+$~(]*\d[\d,.:%-]*")


def emit(value: object) -> None:
    """One JSON value on standard output."""
    # Raw pieces of a damaged log may hold bytes that are no text; what is printed is text all the same.
    click.echo(msgspec.json.encode(value).decode(errors="replace"))


class _Screen(Console):
    """A console that leaves a reader who went away to whoever ends the program."""

    def on_broken_pipe(self) -> None:
        """Say so instead of exiting on the spot."""
        raise BrokenPipeError


def console(*, err: bool = False) -> Console:
    """A console of the width it has, 80 columns where nobody says; colour only on a terminal that wants it."""
    # A width of no columns is none: shells and containers set it where they do not know.
    settings = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"} or value.strip("0")}
    return _Screen(stderr=err, highlight=False, markup=False, emoji=False, soft_wrap=False, _environ=settings)


def plain(text: str) -> str:
    """Text from a log as it may go to a terminal: no control character gets through."""
    return text.translate(_CONTROLS)


def one_line(text: str, width: int) -> str:
    """The beginning of a text on one line, at most so many columns wide; a number shows whole or not at all."""
    whole = " ".join(plain(text[: width * 8]).split())
    line = Text(whole)
    line.truncate(width, overflow="ellipsis")
    if line.plain == whole:
        return whole
    kept = line.plain.removesuffix(_ELLIPSIS)
    last = kept.rpartition(" ")[2]
    if _PART_OF_NUMBER.fullmatch(last) and whole[len(kept) : len(kept) + 1] != " ":
        kept = kept[: -len(last)]
    return f"{kept}{_ELLIPSIS}"


def table(*columns: str, right: tuple[str, ...] = (), keep: tuple[str, ...] = ()) -> Columns:
    """A table without frame; `right` columns are numbers, which like those in `keep` are never cut."""
    return Columns(columns, right, keep)


def when(at: int) -> str:
    """A moment in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at / 1000))


def lately(at: int) -> str:
    """A moment in eleven columns: day and time of this year, the date alone of another."""
    moment = time.localtime(at / 1000)
    return time.strftime("%m-%d %H:%M" if moment.tm_year == time.localtime().tm_year else "%Y-%m-%d", moment)


def short(number: int) -> str:
    """A count in at most five characters: 950, 12k, 3.4M."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def dollars(cost: float | None) -> str:
    """A price for people."""
    if cost is None:
        return "?"
    return f"${cost:,.2f}" if cost >= 0.01 or cost == 0 else f"${cost:.4f}"


_BAR = 30


def _say_nothing(done: int, total: int) -> None:
    return


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tells a waiting person how far something is, after a second and only on a terminal."""
    if not sys.stderr.isatty():
        yield _say_nothing
        return
    begun = time.monotonic()
    shown = False

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - begun >= 1:
            shown = True
            share = min(100, done * 100 // max(1, total))
            click.echo(f"\r{what} {'━' * (share * _BAR // 100):─<{_BAR}} {share:3d} %", nl=False, err=True)

    try:
        yield tell
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)
