"""Options that every command which runs the agent has, and the session that they choose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import click

from pal.cli.opening import NEWEST, find_session, list_sessions, newest_row, not_empty
from palimpsest.agent.decision import Mode
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.log import Log
from palimpsest.core.text import whole_number
from palimpsest.stores.home import Home, remove
from palimpsest.wire.models import DEFAULT_MODEL

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MODES: Final = """\b
Modes, for calls that no rule decides:
  plan   nothing is changed, whatever rules allow
  ask    reads run, changes are asked about
  edits  also changes of files in the project run
  auto   also commands that a sandbox confines run"""
"""What the modes allow, for the end of a help."""

_SESSION: Final[tuple[Decorator, ...]] = (
    click.option("--continue", "-c", "continues", is_flag=True, help="Go on with the newest session of this folder."),
    click.option("--resume", "-r", default="", callback=not_empty, metavar="ID", help="Go on with this session, or with `last`."),
    click.option(
        "--fork", default="", callback=not_empty, metavar="ID[@EVENT]", help="Start a new session from this one, or from one of its events."
    ),
    click.option(
        "--model", default="", metavar="NAME", help=f"Model; default: that of PAL_MODEL, the session, the config, or {DEFAULT_MODEL}."
    ),
    click.option(
        "--profile",
        "profile_name",
        default="",
        metavar="NAME|MODULE:FUNCTION",
        help="Profile; default: that of PAL_PROFILE, the session, the config, or palimpsest.",
    ),
)
_PERMISSION: Final[tuple[Decorator, ...]] = (
    click.option(
        "--mode", type=click.Choice(get_args(Mode)), default=None, help="What may run, see below; default: the setting, else ask."
    ),
    click.option("--allow", multiple=True, metavar="RULE", help="Allow calls in this run: 'bash(pytest:*)', 'edit(src/**)'; repeatable."),
    click.option(
        "--deny", multiple=True, metavar="RULE", help="Deny calls in this run; the more specific rule wins, then deny; repeatable."
    ),
    click.option(
        "--add-dir",
        "folders",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="One more folder to work in; repeatable.",
    ),
)


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the session: `continues`, `resume`, `fork`, `model` and `profile_name`."""
    return _with(command, _SESSION)


def permission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what the agent may do: `mode`, `allow`, `deny` and `folders`."""
    return _with(command, _PERMISSION)


def _with(command: Callable[..., Any], options: tuple[Decorator, ...]) -> Callable[..., Any]:
    # Decorators apply from the last to the first, so that the help lists them in order.
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)


@contextmanager
def chosen_session(home: Home, *, continues: bool = False, resume: str = "", fork: str = "") -> Iterator[str]:
    """The id of the session to go on with; empty for a new one. A fork is made here, and removed if it cannot be used."""
    if sum((continues, bool(resume), bool(fork))) > 1:
        raise BadInput("--continue, --resume and --fork exclude each other", where="pal")
    if not fork:
        yield newest_here(home) if continues else find_session(home, resume).session if resume else ""
        return
    made = _forked(home, fork)
    try:
        yield made
    except BaseException:
        with suppress(PalimpsestError, OSError):
            remove(home.store, made)
        raise


def newest_here(home: Home) -> str:
    """The newest session of the working directory. Raises `BadInput` if there is none."""
    here = Path.cwd()
    row = newest_row(home, list_sessions(home), here)
    if row is None:
        raise BadInput(f"there is no session of this folder; `pal sessions` lists all, --resume {NEWEST} takes the newest", where=str(here))
    return row.id


def _forked(home: Home, fork: str) -> str:
    word, _, event = fork.partition("@")
    number = whole_number(event)
    if event and number is None:
        raise BadInput(f"the event of --fork must be a number, not {event!r}", where="--fork")
    found = find_session(home, word)
    with Log.open(found.store, found.session, found.clock) as log:
        forked = home.fork(log, number)
    with forked:
        return forked.session
