"""`pal delete`: deletes the files of a session, unless a fork depends on them."""

import sys

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import AnyHome, SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening import session_argument
from palimpsest.apps.cli.output import emit, json_option
from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.home import remove


@click.command(epilog="\b\nExample:\n  pal delete 20310401-090000-aaaa")
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(*, session: str, yes: bool, as_json: bool) -> None:
    """Delete a session for good; this is the one command that cannot be undone.

    A session is not deleted if a fork depends on it or another process is writing it. It is removed from the search index.
    Blobs stay, because other sessions may need them.
    """
    home = find_home()
    location = find_session(home, session)
    if not yes:
        _confirm(location)
    remove(location.store, location.session)
    index_updated = _remove_from_index(home, location)
    if as_json:
        emit({"session": location.session, "deleted": True})
    else:
        click.echo(f"deleted {location.session}")
    if not index_updated:
        click.get_current_context().exit(FINDINGS)


def _remove_from_index(home: AnyHome, location: SessionLocation) -> bool:
    """Remove a session from the search index. Returns false, after printing the reason, if that failed."""
    if location.store is not home.store or not home.has_index:
        return True
    try:
        with home.index() as index:
            index.forget(location.session)
    except StoreError as error:
        click.echo(f"pal: {error}; `pal index` removes the deleted session from it", err=True)
        return False
    return True


def _confirm(location: SessionLocation) -> None:
    stat = location.store.stat(location.session)
    what = f"session {location.session} ({stat.size:,} bytes) would be deleted for good"
    if not sys.stdin.isatty():
        raise BadInput(f"{what}; use --yes to confirm", where=stat.name)
    if not click.confirm(f"{what}. Continue?", err=True):
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)
