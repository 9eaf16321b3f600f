"""`pal delete`: a session's files are removed, unless a fork reads through them."""

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
    """Delete a session for good; this is the one command that cannot be taken back.

    A session that a fork reads through, or that somebody is writing, is not deleted. Its words leave the search index too.
    Blobs stay, for others may need them.
    """
    home = find_home()
    found = find_session(home, session)
    if not yes:
        _ask(found)
    remove(found.store, found.session)
    forgotten = _forget(home, found)
    if as_json:
        emit({"session": found.session, "deleted": True})
    else:
        click.echo(f"deleted {found.session}")
    if not forgotten:
        click.get_current_context().exit(FINDINGS)


def _forget(home: AnyHome, found: SessionLocation) -> bool:
    """Take its words out of the search index; false, with a line that says why, when they are still there."""
    if found.store is not home.store or not home.has_index:
        return True
    try:
        with home.index() as index:
            index.forget(found.session)
    except StoreError as error:
        click.echo(f"pal: {error}; `pal index` takes the words of the deleted session out of it", err=True)
        return False
    return True


def _ask(found: SessionLocation) -> None:
    stat = found.store.stat(found.session)
    what = f"session {found.session} ({stat.size:,} bytes) would be deleted for good"
    if not sys.stdin.isatty():
        raise BadInput(f"{what}; say --yes to do so", where=stat.name)
    if not click.confirm(f"{what}. Go on?", err=True):
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)
