"""`pal pin` and `pal unpin`: what no policy may hide."""

import click

from palimpsest.apps.cli.arguments import session_argument
from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.opening import open_log
from palimpsest.apps.cli.output import emit, json_option, plain
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Pinned
from palimpsest.core.log import Log
from palimpsest.core.project import numbers_of

_EXAMPLES = """\b
Examples:
  pal pin last 87.0
  pal pin last src/app.py"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("names", nargs=-1, metavar="[ITEM|FILE]...")
@json_option
def pin(*, session: str, names: tuple[str, ...], as_json: bool) -> None:
    """Pin items or files, so that no policy hides them; without names, list what is pinned.

    Items are named as `pal show` prints them: 87.0 is part 0 of event 87. A file is named as the session names it.
    """
    _change(session, names, on=True, as_json=as_json)


@click.command(epilog="\b\nExample:\n  pal unpin last 87.0")
@session_argument
@click.argument("names", nargs=-1, required=True, metavar="ITEM|FILE...")
@json_option
def unpin(*, session: str, names: tuple[str, ...], as_json: bool) -> None:
    """Take pins off again, so that policies may hide these items or files."""
    _change(session, names, on=False, as_json=as_json)


def _change(session: str, names: tuple[str, ...], *, on: bool, as_json: bool) -> None:
    found = find_session(find_home(), session)
    with open_log(found, write=bool(names)) as log:
        if names:
            ids = tuple(name for name in names if numbers_of(name) is not None)
            paths = tuple(name for name in names if numbers_of(name) is None)
            _check(log, ids, names, on=on)
            log.append(Pinned(ids, paths, on))
            log.sync()
        pins = sorted(log.view.pins)
    if as_json:
        emit({"session": found.session, "pins": pins})
    elif pins:
        click.echo(f"pinned: {plain(', '.join(pins))}")
    else:
        click.echo("nothing is pinned")


def _check(log: Log, ids: tuple[str, ...], names: tuple[str, ...], *, on: bool) -> None:
    """An item that is not there cannot be pinned, nor a file without a name; what is not pinned cannot be unpinned."""
    if on and not all(name.strip() for name in names):
        raise BadInput("a file has a name; this one is empty", where=log.session)
    unknown = next((name for name in ids if on and log.find(name) is None), None)
    if unknown is not None:
        raise BadInput(f"there is no item {unknown} on this branch; `pal context {log.session}` lists them", where=log.session)
    loose = next((name for name in names if not on and name not in log.view.pins), None)
    if loose is not None:
        raise BadInput(f"{loose} is not pinned; `pal pin {log.session}` lists what is", where=log.session)
