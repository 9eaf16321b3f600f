"""The command `pal delete`, which removes sessions for good."""

from collections.abc import Sequence

import click
from msgspec import Struct

from pal.cli.command_line import FINDINGS
from pal.cli.logs import complete_session
from pal.cli.opening import SessionLocation, find_home, find_session, list_sessions
from pal.cli.output import confirm, emit, json_option
from pal.cli.sessions import SessionFilter, filter_options
from pal.text import plain
from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.stores.home import Home, deletion_order
from palimpsest.stores.shadow_git import forget_session

_MOST_NAMED = 5
_EXAMPLES = """\b
Examples:
  pal delete 20310401-090000-aaaa
  pal delete x7ab 3fqz
  pal delete --origin codex --cwd ~/old-project
  pal delete --before 26w           nothing happened in them for half a year"""


class Deleted(Struct, frozen=True):
    """A session that was to be deleted: whether it is, and the bytes of its log and side files that this freed."""

    session: str
    deleted: bool
    freed: int


@click.command(epilog=_EXAMPLES)
@click.argument("sessions", nargs=-1, metavar="[ID…]", shell_complete=complete_session)
@filter_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(*, sessions: tuple[str, ...], chosen: SessionFilter, yes: bool, as_json: bool) -> None:
    """Delete sessions for good; this is the one command that cannot be undone.

    Without IDs, all sessions that the options choose, also those of sub-agents; with IDs, those of them that the options choose.
    Nothing is deleted if a fork that stays depends on one of them. A session that another process is writing stays (exit code 1).
    Deleted sessions leave the search index. Blobs stay, because other sessions may need them. Snapshots of files that only
    these sessions need are removed too.
    """
    if not sessions and chosen.is_empty:
        raise click.UsageError("name sessions, or choose them by --cwd, --since, --before, --origin or --model")
    home = find_home()
    locations = _locations(home, sessions, chosen)
    if not locations:
        emit({"sessions": [], "freed": 0}) if as_json else click.echo("no session matches", err=True)
        click.get_current_context().exit(FINDINGS)
    ordered = _in_order(locations)
    sizes = {location.session: location.store.disk_bytes(location.session) for location in ordered}
    if not yes:
        confirm(_question(sizes), locations[0].name)
    done = [_delete(location, sizes[location.session]) for location in ordered]
    gone = [location for location, each in zip(ordered, done, strict=True) if each.deleted]
    is_clean = all([_remove_from_index(home, gone), *(_remove_snapshots(home, location) for location in gone)])
    freed = sum(each.freed for each in done)
    if as_json:
        emit(done[0] if len(sessions) == len(done) == 1 else {"sessions": done, "freed": freed})
    elif gone:
        names = gone[0].session if len(gone) == 1 else f"{len(gone):,} sessions"
        click.echo(f"deleted {names}, {freed:,} bytes freed")
    if not (is_clean and len(gone) == len(done)):
        click.get_current_context().exit(FINDINGS)


def _locations(home: Home, sessions: Sequence[str], chosen: SessionFilter) -> list[SessionLocation]:
    """Return the sessions that are named and chosen, each once."""
    named = {location.session: location for location in (find_session(home, word) for word in sessions)}
    if chosen.is_empty:
        return list(named.values())
    matching = [row.id for row in chosen.matching(list_sessions(home))]
    if sessions:
        return [named[session] for session in matching if session in named]
    return [find_session(home, session) for session in matching]


def _in_order(locations: Sequence[SessionLocation]) -> list[SessionLocation]:
    """Return the sessions with forks before what they were forked from. Raises `BadInput` if a fork that stays needs one of them."""
    ordered: list[SessionLocation] = []
    for store in {id(location.store): location.store for location in locations}.values():
        of_store = {location.session: location for location in locations if location.store is store}
        ordered += [of_store[session] for session in deletion_order(store, of_store)]
    return ordered


def _question(sizes: dict[str, int]) -> str:
    total = sum(sizes.values())
    if len(sizes) == 1:
        return f"session {next(iter(sizes))} ({total:,} bytes) would be deleted for good"
    some = ", ".join(list(sizes)[:_MOST_NAMED]) + (", …" if len(sizes) > _MOST_NAMED else "")
    return f"{len(sizes):,} sessions ({total:,} bytes) would be deleted for good: {some}"


def _delete(location: SessionLocation, size: int) -> Deleted:
    try:
        location.store.remove(location.session)
    except PalimpsestError as error:
        click.echo(plain(f"pal: {error}"), err=True)
        return Deleted(location.session, deleted=False, freed=0)
    return Deleted(location.session, deleted=True, freed=size)


def _remove_snapshots(home: Home, location: SessionLocation) -> bool:
    """Remove the snapshots of files that only this session needs. Returns false, after printing the reason, if that failed."""
    if location.store is not home.store or home.local_folder is None:
        return True
    try:
        forget_session(home.local_folder, location.session)
    except StoreError as error:
        click.echo(f"pal: {error}; its snapshots of files stay", err=True)
        return False
    return True


def _remove_from_index(home: Home, gone: Sequence[SessionLocation]) -> bool:
    """Remove sessions from the search index. Returns false, after printing the reason, if that failed."""
    indexed = [location.session for location in gone if location.store is home.store]
    if not indexed or not home.has_index:
        return True
    try:
        with home.index() as index:
            index.forget(*indexed)
            # The file still has the words if only a copy of it in memory could be changed.
            failure = index.note
    except StoreError as error:
        failure = str(error)
    if failure:
        what = "the deleted session" if len(indexed) == 1 else "the deleted sessions"
        click.echo(f"pal: {failure}; `pal index` removes {what} from it", err=True)
    return not failure
