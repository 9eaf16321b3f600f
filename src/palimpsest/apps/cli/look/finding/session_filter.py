"""Options that choose sessions by folder, time, program and model, for the commands that take many of them."""

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import reduce, wraps
from typing import Any, Final

import click
from msgspec import Struct

from palimpsest.apps.cli.opening.home import expand_path, find_home, not_empty
from palimpsest.core.format.texts import whole_number
from palimpsest.core.ports import SessionRow

_UNITS_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class SessionFilter(Struct, frozen=True):
    """Conditions that a session must meet; an empty one is always met. `since` and `before` are milliseconds since 1970."""

    cwd: str = ""
    since: int = 0
    before: int = 0
    origin: str = ""
    model: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it lets every session pass."""
        return self == SessionFilter()

    def matching(self, rows: Iterable[SessionRow]) -> list[SessionRow]:
        """Return the rows that meet all conditions, in their order."""
        path = expand_path(self.cwd)
        folders = (self.cwd, str(path.absolute()), str(path.resolve())) if self.cwd else ()
        origin, model = self.origin.casefold(), self.model.casefold()
        return [
            row
            for row in rows
            if (not folders or _is_within(row.cwd, folders))
            and row.updated >= self.since
            and (not self.before or row.updated < self.before)
            and (not origin or row.origin.casefold() == origin)
            and row.model.casefold().startswith(model)
        ]


def _is_within(cwd: str, folders: tuple[str, ...]) -> bool:
    return any(cwd == folder or cwd.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


class _When(click.ParamType[int]):
    """A date or time as ISO 8601 writes it, local if it names no zone, or an age: 90m, 12h, 7d, 2w."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970."""
        if isinstance(value, int):
            return value
        count, unit = whole_number(value[:-1]), value[-1:]
        if count is not None and unit in _UNITS_MS:
            return find_home().clock.now() - count * _UNITS_MS[unit]
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is neither a date such as 2026-03-31 nor an age such as 12h, 7d or 2w", param, ctx)


_OPTIONS: Final = (
    click.option("--cwd", default="", callback=not_empty, metavar="DIR", help="Only sessions of this folder and of those below it."),
    click.option("--since", type=_When(), default=0, metavar="WHEN", help="Only with events since a date, or an age: 12h, 7d, 2w."),
    click.option("--before", type=_When(), default=0, metavar="WHEN", help="Only with no event since a date, or for an age: 12h, 7d, 2w."),
    click.option(
        "--origin", default="", callback=not_empty, metavar="NAME", help="Only sessions of this program: palimpsest, claude-code, codex, …"
    ),
    click.option("--model", default="", callback=not_empty, metavar="NAME", help="Only sessions whose model has this name or begins so."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `cwd`, `since`, `before`, `origin` and `model`, as one argument `chosen` of type `SessionFilter`."""

    @wraps(command)
    def with_filter(*, cwd: str, since: int, before: int, origin: str, model: str, **others: Any) -> Any:
        return command(chosen=SessionFilter(cwd, since, before, origin, model), **others)

    # Decorators apply from the last to the first, so that the help lists them in order.
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), with_filter)
