"""`pal pin` and `pal unpin`: items and files that no policy may hide."""

from posixpath import normpath

import click
from msgspec.structs import replace

from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import open_log, session_argument
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
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
    """Pin items or files so that no policy hides them; without names, list the pins.

    `pal show` prints item ids: 87.0 is part 0 of event 87. Write a file as the session writes it.
    """
    _change(session, names, on=True, as_json=as_json)


@click.command(epilog="\b\nExample:\n  pal unpin last 87.0")
@session_argument
@click.argument("names", nargs=-1, required=True, metavar="ITEM|FILE...")
@json_option
def unpin(*, session: str, names: tuple[str, ...], as_json: bool) -> None:
    """Remove pins, so that policies may hide these items or files."""
    _change(session, names, on=False, as_json=as_json)


def _change(session: str, names: tuple[str, ...], *, on: bool, as_json: bool) -> None:
    location = find_session(find_home(), session)
    with open_log(location, write=bool(names)) as log:
        if names:
            ids, paths = _items_and_paths(log, names, on=on)
            log.append(Pinned(ids, paths, on))
            log.sync()
            for path in paths if on else ():
                if not pinned(replace(log.view, pins=frozenset({path}))):
                    click.echo(plain(f"pal: {path} is pinned, but nothing in the view shows it yet"), err=True)
        pins = sorted(log.view.pins)
    if as_json:
        emit({"session": location.session, "pins": pins})
    elif pins:
        click.echo(f"pinned: {plain(', '.join(pins))}")
    else:
        click.echo("nothing is pinned")


def _items_and_paths(log: Log, names: tuple[str, ...], *, on: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return items and paths to change. Raises `BadInput` for an unknown item, an empty path, and an unpin of what is not pinned."""
    if on and not all(name.strip() for name in names):
        raise BadInput("a file name must not be empty", where=log.session)
    ids = tuple(name for name in names if numbers_of(name) is not None)
    unknown = next((name for name in ids if on and log.find(name) is None), None)
    if unknown is not None:
        raise BadInput(f"there is no item {unknown} on this branch; `pal show {log.session}` lists them", where=log.session)
    paths = tuple(dict.fromkeys(_plain_path(name) for name in names if name not in ids))
    if on:
        return ids, paths
    # Older logs pin files as written, so one file may have several pins.
    files = [pin for pin in sorted(log.view.pins) if numbers_of(pin) is None]
    unpinned = next((name for name in names if name not in log.view.pins and _plain_path(name) not in map(_plain_path, files)), None)
    if unpinned is not None:
        raise BadInput(f"{unpinned} is not pinned; `pal pin {log.session}` lists the pins", where=log.session)
    return ids, tuple(pin for pin in files if _plain_path(pin) in paths)


def _plain_path(name: str) -> str:
    """Normalise a path, so that a file has one pin however it is written."""
    return normpath(name) if name.strip() else name
