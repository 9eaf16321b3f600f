"""`pal undo` and `pal restore`: what an edit hid shows again."""

import sys

import click
from msgspec.structs import replace

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.opening import cards_of, open_log, require_room, session_argument, weigh
from palimpsest.apps.cli.output import console, emit, json_option, one_line
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.items import Item
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import Undoing, pair_of, plan_undo
from palimpsest.core.log.undo import restore as bring_back

_EXAMPLES = """\b
Examples:
  pal undo last                the newest edit
  pal undo last 412 --dry-run  what undoing event 412 would do
  pal undo last 412 --edits 0,2"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("edit", required=False, type=int, metavar="[EDIT]")
@click.option("--edits", "indexes", default="", metavar="0,2", help="Only these edits of the event, counted from 0.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask when later edits rest on it and go too.")
@click.option("--why", default="", help="A reason, for whoever reads the log.")
@json_option
def undo(*, session: str, edit: int | None, indexes: str, dry_run: bool, yes: bool, why: str, as_json: bool) -> None:
    """Take back an edit of the view: EDIT is the number of its event, the newest one where it is left out.

    Undoing is an event of its own, so it is recorded too. Later edits that rest on the one taken back go with it.
    An undo after which the view would not fit the model's window is refused with the numbers.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found, write=not dry_run) as log:
        seq = _newest(log) if edit is None else edit
        plan = plan_undo(log, seq, _indexes(indexes), why)
        before = weigh(log.view, log, found)
        after, room = require_room(plan.view, log, found, cards_of(home))
        if plan.resting and not yes and not dry_run:
            _ask(plan, seq, found.session)
        if not dry_run:
            for body in plan.undone:
                log.append(body)
            log.sync()
        edited = log.event(seq).body
    brings = next(body.brings for body in plan.undone if body.event == seq)
    if as_json:
        undone = [body.event for body in plan.undone]
        numbers = {"tokens_before": before, "tokens_after": after, "room": room}
        emit({"session": found.session, "undone": undone, "resting": plan.resting, "brings": brings, **numbers, "dry_run": dry_run})
        return
    reason = f" by {edited.by}: {edited.why}" if isinstance(edited, ViewEdited) else ""
    verb = "would undo" if dry_run else "undid"
    click.echo(one_line(f"{verb} edit {seq}{reason}", console().width))
    if plan.resting:
        click.echo(f"with it {_listed(plan.resting)}, which rested on it")
    items = f"{len(brings):,} item{'' if len(brings) == 1 else 's'}"
    click.echo(f"brought back: {items}; the view: {before:,} → {after:,} tokens, room {room:,}")


def _newest(log: Log) -> int:
    skip = log.reader.skip(log.path)
    found = [event.seq for event in log.events() if isinstance(event.body, ViewEdited) and skip.get(event.seq) != frozenset()]
    if not found:
        raise BadInput("there is no edit to undo: the view shows everything that was said", where=log.session)
    return found[-1]


def _indexes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() for word in words):
        raise click.UsageError(f"--edits takes numbers with commas between them, such as 0,2, not {text!r}")
    return tuple(sorted({int(word) for word in words}))


def _ask(plan: Undoing, seq: int, session: str) -> None:
    """Later edits go too: a person is asked, a program has to have said so."""
    what = f"{_listed(plan.resting)} rest{'s' if len(plan.resting) == 1 else ''} on edit {seq} and would be undone too"
    if not sys.stdin.isatty():
        raise BadInput(f"{what}; say --yes to do so", where=session)
    if not click.confirm(f"{what}. Go on?", err=True):
        click.echo("nothing was changed", err=True)
        click.get_current_context().exit(FINDINGS)


def _listed(seqs: tuple[int, ...]) -> str:
    return f"edit{'s' if len(seqs) > 1 else ''} {', '.join(str(seq) for seq in sorted(seqs))}"


@click.command(epilog="\b\nExample:\n  pal restore last 87.0")
@session_argument
@click.argument("item", metavar="ITEM")
@click.option("--why", default="", help="A reason, for whoever reads the log.")
@json_option
def restore(*, session: str, item: str, why: str, as_json: bool) -> None:
    """Bring one hidden item back into the view, where it stood; a call and its result come together.

    Items are named as `pal show` prints them: 87.0 is part 0 of event 87.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found, write=True) as log:
        wanted = log.item(item)
        grown = replace(log.view, items=(*log.view.items, *_missing(log, wanted)))
        after, room = require_room(grown, log, found, cards_of(home))
        event = bring_back(log, item, why)
        log.sync()
    if as_json:
        emit({"session": found.session, "event": event.seq, "item": item, "tokens_after": after, "room": room})
    else:
        click.echo(f"item {item} shows again (event {event.seq}); the view has {after:,} tokens, room {room:,}")


def _missing(log: Log, wanted: Item) -> list[Item]:
    """The item and its other half, as far as they do not show now."""
    shown = {item.id for item in log.view.items if item.mask is None}
    return [item for item in pair_of(log, wanted) if item.id not in shown]
