"""`pal undo` and `pal restore`: make hidden items visible again."""

import click

from palimpsest.apps.cli.opening.counting import require_room, view_tokens
from palimpsest.apps.cli.opening.home import SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import confirm, emit, json_option
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ViewEdited
from palimpsest.core.format.texts import counted, whole_number
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import plan_undo, restoring_edits
from palimpsest.core.log.undo import restore as bring_back
from palimpsest.stores.logs.undo_queue import QueuedUndo, UndoQueue

_EXAMPLES = """\b
Examples:
  pal undo last                the newest edit
  pal undo last 412 --dry-run  what undoing event 412 would do
  pal undo last 412 --edits 0,2"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("edit", required=False, type=int, metavar="[EDIT]")
@click.option("--edits", "indexes", default="", metavar="0,2", help="Undo only these edits of the event, counted from 0.")
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before undoing later edits that depend on it.")
@click.option("--why", default="", help="Record this reason in the log.")
@json_option
def undo(*, session: str, edit: int | None, indexes: str, dry_run: bool, yes: bool, why: str, as_json: bool) -> None:
    """Undo an edit of the view; EDIT is its event number, default the newest edit.

    An undo is recorded as an event. Later edits that depend on the undone edit are undone too.
    An undo is refused if the view would then not fit the model's window. In a session of a gateway that
    runs, the gateway undoes it with the next request.
    """
    home = find_home()
    location = find_session(home, session)
    # A gateway that runs is the only one that may write to its sessions.
    queued = not dry_run and location.store.has_writer(location.session) and _is_of_gateway(location)
    with open_log(location, write=not (dry_run or queued)) as log:
        seq = _newest_edit(log) if edit is None else edit
        plan = plan_undo(log, seq, _indexes(indexes), why)
        cards = cards_of(home)
        before = view_tokens(log.view, log, location.blobs, cards)
        after, room = require_room(plan.view, log, location, cards)
        left = len(set(log.view.ids) - set(plan.view.ids))
        if plan.resting and not yes and not dry_run:
            one = "s" if len(plan.resting) == 1 else ""
            confirm(f"{_edit_list(plan.resting)} depend{one} on edit {seq} and would be undone too", location.session)
        if queued:
            UndoQueue(home.folder, location.session).add(QueuedUndo(seq, _indexes(indexes), why))
        elif not dry_run:
            for body in plan.undone:
                log.append(body)
            log.sync()
        edited = log.event(seq).body
    brings = next(body.brings for body in plan.undone if body.event == seq)
    if as_json:
        undone = [body.event for body in plan.undone]
        numbers = {"tokens_before": before, "tokens_after": after, "room": room}
        facts = {"session": location.session, "undone": undone, "resting": plan.resting, "brings": brings, **numbers, "dry_run": dry_run}
        emit(facts | ({"queued": True} if queued else {}))
        return
    reason = f" by {edited.by}: {edited.why}" if isinstance(edited, ViewEdited) else ""
    verb = "would undo" if dry_run else "the gateway will undo, with the next request," if queued else "undid"
    click.echo(one_line(f"{verb} edit {seq}{reason}", console().width))
    if plan.resting:
        click.echo(f"also {_edit_list(plan.resting)}, which depended on it")
    # The text of a fold may be longer than what it stands for; then the view gets smaller.
    place = f", in place of {left:,}" if left else ""
    click.echo(f"brought back: {counted(len(brings), 'item')}{place}; the view: {before:,} → {after:,} tokens, room {room:,}")


def _is_of_gateway(location: SessionLocation) -> bool:
    with open_log(location) as log:
        return log.opened.origin == "gateway"


def _newest_edit(log: Log) -> int:
    skip = log.reader.undone_edits(log.path)
    edits = [event.seq for event in log.events() if isinstance(event.body, ViewEdited) and skip.get(event.seq) != frozenset()]
    if not edits:
        raise BadInput("there is no edit to undo: the view shows the whole conversation", where=log.session)
    return edits[-1]


def _indexes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    numbers = [whole_number(word) for word in words]
    if None in numbers:
        raise click.UsageError(f"--edits takes numbers separated by commas, such as 0,2, not {text!r}")
    return tuple(sorted({number for number in numbers if number is not None}))


def _edit_list(seqs: tuple[int, ...]) -> str:
    return f"edit{'s' if len(seqs) > 1 else ''} {', '.join(str(seq) for seq in sorted(seqs))}"


@click.command(epilog="\b\nExample:\n  pal restore last 87.0")
@session_argument
@click.argument("item", metavar="ITEM")
@click.option("--why", default="", help="Record this reason in the log.")
@json_option
def restore(*, session: str, item: str, why: str, as_json: bool) -> None:
    """Bring one hidden item back into the view at its place; a call and its result come back together.

    `pal show` prints item ids: 87.0 is part 0 of event 87.
    """
    home = find_home()
    location = find_session(home, session)
    with open_log(location, write=True) as log:
        log.item(item)
        after, room = require_room(log.trial(restoring_edits(log, item)), log, location, cards_of(home))
        event = bring_back(log, item, why)
        log.sync()
    if as_json:
        emit({"session": location.session, "event": event.seq, "item": item, "tokens_after": after, "room": room})
    else:
        click.echo(f"item {item} is visible again (event {event.seq}); the view has {counted(after, 'token')}, room {room:,}")
