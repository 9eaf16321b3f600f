"""`pal fork` and `pal rewind`: other ways on from the same past."""

import click
from rich.text import Text

from palimpsest.apps.cli.home import find_home, find_session, new_session_id
from palimpsest.apps.cli.opening import open_log, session_argument
from palimpsest.apps.cli.output import console, emit, json_option, one_line
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Recalled, UserSaid, UserTyped
from palimpsest.core.format.path import Path
from palimpsest.core.items import text_of
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import rewind as go_back

_SHOWN = 8


@click.command(epilog="\b\nExample:\n  pal fork last --at 120")
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="Begin after event SEQ instead of the newest.")
@json_option
def fork(*, session: str, at: int | None, as_json: bool) -> None:
    """Begin a new session from a point of another, and print its id.

    Nothing is copied: the new session reads through the old one.
    """
    found = find_session(find_home(), session)
    with open_log(found, whole=True) as log:
        made = new_session_id(found.clock.now())
        with log.fork(found.store, made, at) as forked:
            forked.sync()
            base = forked.opened.base
    if as_json:
        emit({"session": made, "base": None if base is None else {"session": base.session, "seq": base.seq}})
    else:
        click.echo(made)


@click.command(
    epilog="\b\nExamples:\n  pal rewind last 120\n  pal rewind last -2        two turns back",
    context_settings={"ignore_unknown_options": True},
)
@session_argument
@click.argument("target", metavar="SEQ|-N")
@click.option("--why", default="", help="A reason, for whoever reads the log.")
@json_option
def rewind(*, session: str, target: str, why: str, as_json: bool) -> None:
    """Go back to event SEQ, or to before the last N turns.

    What came after stays in the log, on a branch of its own: nothing is deleted, and files are left as they are.
    """
    found = find_session(find_home(), session)
    with open_log(found, write=True, whole=True) as log:
        to = _target(log, target)
        if not 0 <= to <= log.tip:
            raise BadInput(f"there is no event {to}; the newest is {log.tip}", where=found.session)
        tip, path = log.tip, log.reader.path(to)
        left, said = _left(log, path)
        if not left:
            raise BadInput(f"event {to} is where the session is already, so nothing would change", where=found.session)
        event = go_back(log, to, why=why)
        log.sync()
    if as_json:
        messages = [{"seq": seq, "text": text} for seq, text in said]
        emit({"session": found.session, "event": event.seq, "to": to, "left": {"events": left, "tip": tip, "user_messages": messages}})
        return
    click.echo(f"back at event {to}; left behind: {left:,} events, {len(said)} of them yours")
    screen = console()
    for seq, text in said[:_SHOWN]:
        screen.print(Text(f"  {seq}  {one_line(text, 60)}"))
    if len(said) > _SHOWN:
        click.echo(f"  … and {len(said) - _SHOWN} more")
    click.echo(f"nothing is deleted: `pal rewind {found.session} {tip}` returns there")


def _left(log: Log, path: Path) -> tuple[int, list[tuple[int, str]]]:
    """How many events the new path leaves behind, and what the user said in them."""
    count = 0
    said: list[tuple[int, str]] = []
    for event in log.events():
        if event.seq not in path:
            count += 1
            if isinstance(event.body, UserSaid):
                said.append((event.seq, " ".join(text_of(part) for part in event.body.parts)))
    return count, said


def _target(log: Log, word: str) -> int:
    """The event that a word means: its number, or the end of the turn before the last N."""
    digits = word.removeprefix("-")
    if not digits.isdecimal():
        raise click.UsageError(f"{word!r} is neither the number of an event nor -N for the last N turns")
    if not word.startswith("-"):
        return int(word)
    turns = int(digits)
    befores = _before_each_turn(log)
    if not 1 <= turns <= len(befores):
        raise BadInput(f"cannot go back {turns} turns: the session has {len(befores)}", where=log.session)
    return befores[-turns]


def _before_each_turn(log: Log) -> list[int]:
    """The last event before each turn; what was typed, stated and recalled for a turn belongs to it."""
    befores: list[int] = []
    before = 0
    for event in log.events():
        if isinstance(event.body, UserSaid) and not event.body.steering:
            befores.append(before)
        if not isinstance(event.body, UserTyped | ContextStated | Recalled):
            before = event.seq
    return befores
