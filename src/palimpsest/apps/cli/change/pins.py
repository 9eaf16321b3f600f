"""`pal pin` and `pal unpin`: what no policy may hide."""

from posixpath import normpath

import click
from msgspec.structs import replace

from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.opening import open_log, session_argument
from palimpsest.apps.cli.output import emit, json_option, plain
from palimpsest.audit.pins import pinned
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Pinned
from palimpsest.core.events.event_items import numbers_of
from palimpsest.core.log.log import Log

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
            ids, paths = _named(log, names, on=on)
            log.append(Pinned(ids, paths, on))
            log.sync()
            for path in paths if on else ():
                if not pinned(replace(log.view, pins=frozenset({path}))):
                    click.echo(plain(f"pal: {path} is pinned, but nothing in the view shows it yet"), err=True)
        pins = sorted(log.view.pins)
    if as_json:
        emit({"session": found.session, "pins": pins})
    elif pins:
        click.echo(f"pinned: {plain(', '.join(pins))}")
    else:
        click.echo("nothing is pinned")


def _named(log: Log, names: tuple[str, ...], *, on: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Items and files; an item that is not there cannot be pinned, nor a file without a name, and only what is pinned can be unpinned."""
    if on and not all(name.strip() for name in names):
        raise BadInput("a file has a name; this one is empty", where=log.session)
    ids = tuple(name for name in names if numbers_of(name) is not None)
    unknown = next((name for name in ids if on and log.find(name) is None), None)
    if unknown is not None:
        raise BadInput(f"there is no item {unknown} on this branch; `pal context {log.session}` lists them", where=log.session)
    paths = tuple(dict.fromkeys(_plain_path(name) for name in names if name not in ids))
    if on:
        return ids, paths
    # Older logs have files pinned as they were written, perhaps more than once.
    files = [pin for pin in sorted(log.view.pins) if numbers_of(pin) is None]
    loose = next((name for name in names if name not in log.view.pins and _plain_path(name) not in map(_plain_path, files)), None)
    if loose is not None:
        raise BadInput(f"{loose} is not pinned; `pal pin {log.session}` lists what is", where=log.session)
    return ids, tuple(pin for pin in files if _plain_path(pin) in paths)


def _plain_path(name: str) -> str:
    """A path without detours, so that a file has one pin however it is written."""
    return normpath(name) if name.strip() else name
