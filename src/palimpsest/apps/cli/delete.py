"""`pal delete`: a session's files are removed, unless a fork reads through them."""

import sys

import click

from palimpsest.apps.cli.arguments import session_argument
from palimpsest.apps.cli.ending import FINDINGS
from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.output import emit, json_option
from palimpsest.core.errors import BadInput
from palimpsest.stores.removal import remove


@click.command(epilog="\b\nExample:\n  pal delete 20310401-090000-aaaa")
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(*, session: str, yes: bool, as_json: bool) -> None:
    """Delete a session for good; this is the one command that cannot be taken back.

    A session that a fork reads through, or that somebody is writing, is not deleted. Blobs stay, for others may need them.
    """
    found = find_session(find_home(), session)
    if not yes:
        _ask(found.session, found.path.stat().st_size)
    remove(found.shelf, found.session)
    if as_json:
        emit({"session": found.session, "deleted": True})
    else:
        click.echo(f"deleted {found.session}")


def _ask(session: str, size: int) -> None:
    what = f"session {session} ({size:,} bytes) would be deleted for good"
    if not sys.stdin.isatty():
        raise BadInput(f"{what}; say --yes to do so")
    if not click.confirm(f"{what}. Go on?", err=True):
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)
