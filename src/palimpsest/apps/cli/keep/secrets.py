"""`pal secrets`: keys, tokens and passwords in sessions, with their places, masked."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import click
from msgspec import Struct

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import AnyHome, SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import complete_session
from palimpsest.apps.cli.output.tables import console, one_line, print_listing
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import PalimpsestError
from palimpsest.foreign.reading.secrets import FoundSecret, secrets_of


class SecretRow(Struct, frozen=True, rename={"kind": "class"}):
    """A secret as `--json` prints it. `where` is the place in words; `item` is empty and `line` is 0 outside of items."""

    session: str
    event: int
    kind: str
    masked: str
    where: str
    item: str
    line: int
    certain: bool


@click.command(epilog="\b\nExamples:\n  pal secrets last\n  pal secrets --all --json")
@click.argument("sessions", nargs=-1, metavar="[ID]…", shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="Search all sessions, as without an ID.")
@json_option
def secrets(*, sessions: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """List what looks like a key, a token or a password in sessions: class, place, and the text masked.

    A secret is certain if its form proves it (a vendor's prefix, a private key), else its place suggests it. Texts are judged by their
    form, so some secrets are missed. Blobs are not searched. Exit code 0 if nothing was found, 1 if something was found or a log
    could not be read.
    """
    if sessions and everything:
        raise click.UsageError("give either IDs or --all")
    home = find_home()
    rows: list[SecretRow] = []
    unread = 0
    for found in _locations(home, sessions):
        try:
            rows += _rows(found)
        except PalimpsestError as error:
            click.echo(plain(f"pal: {error}"), err=True)
            unread += 1
    if as_json:
        emit(rows)
    elif rows:
        _print(rows)
    else:
        click.echo("no secrets found")
    if rows or unread:
        click.get_current_context().exit(FINDINGS)


def _locations(home: AnyHome, sessions: Sequence[str]) -> Iterator[SessionLocation]:
    if sessions:
        yield from (find_session(home, session) for session in sessions)
    else:
        yield from (SessionLocation(session, home.store, home.blobs, home.clock) for session in sorted(home.store.sessions()))


def _rows(found: SessionLocation) -> list[SecretRow]:
    with closing(found.store.open(found.session)) as lines:
        return [_row(found.session, secret) for secret in secrets_of(lines)]


def _row(session: str, secret: FoundSecret) -> SecretRow:
    where = f"item {secret.item}, line {secret.line}" if secret.item else f"event {secret.event}, outside of items"
    return SecretRow(session, secret.event, secret.kind, secret.masked, where, secret.item, secret.line, secret.certain)


def _print(rows: Sequence[SecretRow]) -> None:
    listing = [
        ((row.session, str(row.event), row.kind if row.certain else f"{row.kind} (guess)", one_line(row.masked, 40), row.where), None)
        for row in rows
    ]
    print_listing(console(), ("session", "event", "class", "text", "where"), listing, frozenset({"event"}))
