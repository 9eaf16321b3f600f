"""`pal fork` and `pal rewind`: new branches from an earlier point of a session."""

import click
from rich.text import Text

from palimpsest.apps.cli.home import find_home, find_session, new_session_id
from palimpsest.apps.cli.opening import open_log, session_argument
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, HookRan, Recalled, UserSaid, UserTyped
from palimpsest.core.format.path import Path
from palimpsest.core.items import text_of
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import rewind as go_back

_MOST_MESSAGES = 8


@click.command(epilog="\b\nExample:\n  pal fork last --at 120")
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="Fork after event SEQ instead of the newest event.")
@json_option
def fork(*, session: str, at: int | None, as_json: bool) -> None:
    """Start a new session from a point of another, and print its id.

    Nothing is copied: the new session reads the earlier events from the old one.
    """
    location = find_session(find_home(), session)
    with open_log(location, whole=True) as log:
        new_id = new_session_id(location.clock.now())
        with log.fork(location.store, new_id, at) as forked:
            forked.sync()
            base = forked.opened.base
    if as_json:
        emit({"session": new_id, "base": None if base is None else {"session": base.session, "seq": base.seq}})
    else:
        click.echo(new_id)


@click.command(
    epilog="\b\nExamples:\n  pal rewind last 120\n  pal rewind last -2        two turns back",
    context_settings={"ignore_unknown_options": True},
)
@session_argument
@click.argument("target", metavar="SEQ|-N")
@click.option("--why", default="", help="Record this reason in the log.")
@json_option
def rewind(*, session: str, target: str, why: str, as_json: bool) -> None:
    """Go back to event SEQ, or by N turns.

    Later events stay in the log on their own branch: nothing is deleted, and files are not changed.
    """
    location = find_session(find_home(), session)
    with open_log(location, write=True, whole=True) as log:
        to = _target(log, target)
        if not 0 <= to <= log.tip:
            raise BadInput(f"there is no event {to}; the newest is {log.tip}", where=location.session)
        tip, path = log.tip, log.reader.path(to)
        left_events, user_messages = _left_behind(log, path)
        if not left_events:
            raise BadInput(f"the session is already at event {to}, so nothing would change", where=location.session)
        event = go_back(log, to, why=why)
        log.sync()
    if as_json:
        messages = [{"seq": seq, "text": text} for seq, text in user_messages]
        emit(
            {
                "session": location.session,
                "event": event.seq,
                "to": to,
                "left": {"events": left_events, "tip": tip, "user_messages": messages},
            }
        )
        return
    click.echo(f"now at event {to}; left behind: {left_events:,} events, {len(user_messages)} of them yours")
    screen = console()
    for seq, text in user_messages[:_MOST_MESSAGES]:
        screen.print(Text(f"  {seq}  {one_line(text, 60)}"))
    if len(user_messages) > _MOST_MESSAGES:
        click.echo(f"  … and {len(user_messages) - _MOST_MESSAGES} more")
    click.echo(f"nothing is deleted: `pal rewind {location.session} {tip}` goes back there")


def _left_behind(log: Log, path: Path) -> tuple[int, list[tuple[int, str]]]:
    """Return the number of events that the new path leaves, and the user messages among them."""
    count = 0
    user_messages: list[tuple[int, str]] = []
    for event in log.events():
        if event.seq not in path:
            count += 1
            if isinstance(event.body, UserSaid):
                user_messages.append((event.seq, " ".join(text_of(part) for part in event.body.parts)))
    return count, user_messages


def _target(log: Log, argument: str) -> int:
    """Return the event for an argument: its number, or for -N the last event before the last N turns. Raises `BadInput`."""
    digits = argument.removeprefix("-")
    if not digits.isdecimal():
        raise click.UsageError(f"{argument!r} is neither the number of an event nor -N for the last N turns")
    if not argument.startswith("-"):
        return int(argument)
    turns = int(digits)
    turn_starts = _turn_starts(log)
    if not 1 <= turns <= len(turn_starts):
        raise BadInput(f"cannot go back {turns} turns: the session has {len(turn_starts)}", where=log.session)
    return turn_starts[-turns]


def _turn_starts(log: Log) -> list[int]:
    """Return the last event before each turn; queued input, statements and recalls belong to the turn that follows."""
    turn_starts: list[int] = []
    before = 0
    for event in log.events():
        if isinstance(event.body, UserSaid) and not event.body.steering:
            turn_starts.append(before)
        if not isinstance(event.body, UserTyped | ContextStated | Recalled | HookRan):
            before = event.seq
    return turn_starts
