"""Opens the session that a command names, to read or to change it."""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from pal.cli.opening import SessionLocation, find_home
from pal.cli.output import progress
from pal.text import plain
from palimpsest.core.errors import BadInput, Locked, MissingBase, PalimpsestError, StoreError
from palimpsest.core.lines import lost_end
from palimpsest.core.log import Log, recover
from palimpsest.core.ports import Index
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.stores.home import Home
from palimpsest.wire.media import NotedFetch
from palimpsest.wire.models import CARDS, DEFAULT_MODEL, ModelCard, recorded_card, stand_in_note

_MOST_COMPLETIONS = 50


def complete_session(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return at most 50 session ids with this prefix, newest first; none if the home cannot be read."""
    try:
        stats = sorted(find_home().store.stats(), key=lambda stat: -stat.changed)
    except PalimpsestError:
        return []
    return [CompletionItem(stat.session) for stat in stats if stat.session.startswith(incomplete)][:_MOST_COMPLETIONS]


session_argument = click.argument("session", metavar="ID", shell_complete=complete_session)


def open_log(found: SessionLocation, *, write: bool = False, whole: bool = False) -> Log:
    """Open a session for reading or writing; `whole` verifies every line, for commands that show the log.

    For writing, a model call that a crash left open is closed first, because an open call blocks edits. A fork whose base is gone is
    read as far as it goes, with a warning, and is not written.
    """
    try:
        log = close_open_call(Log.open(found.store, found.session, found.clock, write=write, whole=whole), write=write)
    except MissingBase as error:
        if write:
            raise
        log = Log.open(found.store, found.session, found.clock, whole=whole, alone=True)
        click.echo(plain(f"pal: {error}; only its own events, from {log.reader.first} on, can be read"), err=True)
    if message := lost_end(log.reader.lines, log.tip):
        click.echo(plain(f"pal: {found.name}: {message}; see `pal verify`"), err=True)
    if log.opened.session != found.session:
        click.echo(plain(f"pal: {found.name}: this is the log of session {log.opened.session}; see `pal verify`"), err=True)
    return log


def close_open_call(log: Log, *, write: bool = True) -> Log:
    """Return the log; with `write`, a model call that a crash left open is closed first."""
    try:
        if write and log.open_call is not None:
            recover(log)
    except BaseException:
        log.close()
        raise
    return log


def cards_of(home: Home) -> tuple[ModelCard, ...]:
    """Return all cards of a home; if the user's own cannot be read, print a warning and return the built-in ones."""
    own = own_cards_of(home)
    return CARDS if own is None else home.cards()


def own_cards_of(home: Home) -> tuple[ModelCard, ...] | None:
    """Return the user's own cards; if they cannot be read, print a warning and return None."""
    try:
        return home.own_cards()
    except (BadInput, StoreError) as error:
        click.echo(plain(f"pal: {error}; until this is fixed, only the built-in cards are used"), err=True)
        return None


def window_of(model: str, cards: tuple[ModelCard, ...] = CARDS) -> int:
    """Return the window of a model under the default profile; one without a card has that of its stand-in."""
    found = recorded_card(model or DEFAULT_MODEL, cards)
    return palimpsest_budget(found.window, found.reply, input_limit=found.input_limit, working=found.working_window).window


def warn_of_stand_in(model: str, cards: tuple[ModelCard, ...]) -> None:
    """Print a warning if a session names a model that has no card: sizes, windows and prices are those of its stand-in."""
    note = stand_in_note(model, cards) if model else ""
    if note:
        click.echo(plain(f"pal: {note}; `pal cards` says how to add a card"), err=True)


def warn_of_blobs(fetch: NotedFetch) -> None:
    """Print a warning for each blob that a request should have shown and could not."""
    for reason in fetch.unreported():
        click.echo(plain(f"pal: {reason}"), err=True)


_MOST_FAULTS = 5


def refresh_index(index: Index, only: str = "") -> bool:
    """Update the index from the logs, and print logs that cannot be read. Returns whether the index is complete.

    `only` limits the printed faults to one log, by name.
    """
    behind = False
    try:
        with progress("reading new events") as show_progress:
            index.refresh(show_progress)
    except Locked as error:
        behind = True
        click.echo(f"pal: {error.where}: another process is writing the index; results may be out of date", err=True)
    if index.note:
        click.echo(f"pal: {index.note}", err=True)
    faults = [fault for fault in index.faults() if only in {"", fault[0]}]
    print_index_faults(faults)
    return not (behind or faults)


def print_index_faults(faults: Sequence[tuple[str, str]]) -> None:
    """Print a line for each log that cannot be read whole, at most five, and the number of the others."""
    for path, why in faults[:_MOST_FAULTS]:
        click.echo(plain(f"pal: {path}: {why}"), err=True)
    more = len(faults) - _MOST_FAULTS
    if more > 0:
        click.echo(f"pal: {more:,} more logs cannot be read whole; `pal index --json` names them all", err=True)
