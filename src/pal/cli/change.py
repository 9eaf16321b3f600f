"""The commands `pal undo`, `restore`, `pin`, `unpin` and `compact`, which change the view of a session."""

from posixpath import normpath

import click
from msgspec.structs import replace
from rich.text import Text

from pal.cli.audit import AuditedEdit, audited_edits, edit_as_builtins, print_edit, print_edits, summary_lines
from pal.cli.counting import require_room, view_tokens
from pal.cli.engine_session import (
    ModelChoice,
    ModelProviders,
    card_of,
    choose_model,
    engine_session,
    environment_of,
    fold_profile,
    open_in_memory,
)
from pal.cli.logs import cards_of, open_log, session_argument
from pal.cli.opening import SessionLocation, find_home, find_session
from pal.cli.output import confirm, emit, json_option
from pal.cli.settings import settings_of
from pal.cli.tables import console, one_line
from pal.text import plain
from palimpsest.agent.agent import run
from palimpsest.agent.calls import compact as fold_now
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.session import Session
from palimpsest.audit.gate import pinned
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import EditRefused, Failed, Pinned, ViewEdited, numbers_of
from palimpsest.core.log import Log
from palimpsest.core.plans import complete
from palimpsest.core.text import counted, whole_number
from palimpsest.core.undo import plan_undo, restoring_edits
from palimpsest.core.undo import restore as bring_back
from palimpsest.core.view import View
from palimpsest.stores.undo_queue import QueuedUndo, UndoQueue
from palimpsest.wire.models import DEFAULT_MODEL, ModelCard, card

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
            UndoQueue(home, location.session).add(QueuedUndo(seq, _indexes(indexes), why))
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


_PIN_EXAMPLES = """\b
Examples:
  pal pin last 87.0
  pal pin last src/app.py"""


@click.command(epilog=_PIN_EXAMPLES)
@session_argument
@click.argument("names", nargs=-1, metavar="[ITEM|FILE]...")
@json_option
def pin(*, session: str, names: tuple[str, ...], as_json: bool) -> None:
    """Pin items or files so that no policy hides them; without names, list the pins.

    `pal show` prints item ids: 87.0 is part 0 of event 87. Write a file as the session writes it.
    """
    _change(session, names, on=True, as_json=as_json)


@click.command(epilog="\b\nExample:\n  pal unpin last 87.0")
@session_argument
@click.argument("names", nargs=-1, required=True, metavar="ITEM|FILE...")
@json_option
def unpin(*, session: str, names: tuple[str, ...], as_json: bool) -> None:
    """Remove pins, so that policies may hide these items or files."""
    _change(session, names, on=False, as_json=as_json)


def _change(session: str, names: tuple[str, ...], *, on: bool, as_json: bool) -> None:
    location = find_session(find_home(), session)
    with open_log(location, write=bool(names)) as log:
        if names:
            ids, paths = _items_and_paths(log, names, on=on)
            log.append(Pinned(ids, paths, on))
            log.sync()
            for path in paths if on else ():
                if not pinned(replace(log.view, pins=frozenset({path}))):
                    click.echo(plain(f"pal: {path} is pinned, but nothing in the view shows it yet"), err=True)
        pins = sorted(log.view.pins)
    if as_json:
        emit({"session": location.session, "pins": pins})
    elif pins:
        click.echo(f"pinned: {plain(', '.join(pins))}")
    else:
        click.echo("nothing is pinned")


def _items_and_paths(log: Log, names: tuple[str, ...], *, on: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return items and paths to change. Raises `BadInput` for an unknown item, an empty path, and an unpin of what is not pinned."""
    if on and not all(name.strip() for name in names):
        raise BadInput("a file name must not be empty", where=log.session)
    ids = tuple(name for name in names if numbers_of(name) is not None)
    unknown = next((name for name in ids if on and log.find(name) is None), None)
    if unknown is not None:
        raise BadInput(f"there is no item {unknown} on this branch; `pal show {log.session}` lists them", where=log.session)
    paths = tuple(dict.fromkeys(_plain_path(name) for name in names if name not in ids))
    if on:
        return ids, paths
    # Older logs pin files as written, so one file may have several pins.
    files = [pin for pin in sorted(log.view.pins) if numbers_of(pin) is None]
    unpinned = next((name for name in names if name not in log.view.pins and _plain_path(name) not in map(_plain_path, files)), None)
    if unpinned is not None:
        raise BadInput(f"{unpinned} is not pinned; `pal pin {log.session}` lists the pins", where=log.session)
    return ids, tuple(pin for pin in files if _plain_path(pin) in paths)


def _plain_path(name: str) -> str:
    """Normalise a path, so that a file has one pin however it is written."""
    return normpath(name) if name.strip() else name


# Edits that are summarised, each in up to three lines.
_MOST_EDITS = 2
_COMPACT_EXAMPLES = """\b
Examples:
  pal compact last --preview
  pal compact last --focus "the failing migration"
  pal compact last --profile codex --preview --json"""


@click.command(epilog=_COMPACT_EXAMPLES)
@session_argument
@click.option("--profile", "profile_name", default="", metavar="NAME", help="Use this profile; default: that of the session.")
@click.option("--model", default="", metavar="NAME", help="Call, and fold for, this model; default: that of the session.")
@click.option("--focus", default="", metavar="TEXT", help="Topic that a summary should focus on.")
@click.option("--preview", is_flag=True, help="Show what would be hidden and its price; change nothing.")
@click.option("--no-model", is_flag=True, help="Fold without calling a model, like PAL_OFFLINE=1.")
@click.option("--full", is_flag=True, help="Show every hidden or changed line.")
@json_option
def compact(*, session: str, profile_name: str, model: str, focus: str, preview: bool, no_model: bool, full: bool, as_json: bool) -> None:
    """Fold the session now.

    Without a model (no key, --no-model, or --preview without --model) the fold is computed from the log: user messages,
    evidence of the work, and the newest items. A fold is an edit like any other: `pal audit` explains it and `pal undo`
    undoes it. A preview works on a copy in memory.
    """
    home = find_home()
    location = find_session(home, session)
    cards = cards_of(home)
    settings = settings_of(home, {"model": model, "profile": profile_name})
    with open_in_memory(location) if preview else open_log(location, write=True) as log:
        choice = choose_model(card_of(settings, log, cards), focus, settings, offline=no_model, now=bool(model) or not preview)
        models = ModelProviders(choice)
        environment = environment_of(location, log, cards, models, settings, trying=preview)
        engine = engine_session(log, fold_profile(log, choice), choice.model or card(DEFAULT_MODEL, cards), environment)
        first = log.tip + 1
        profile_used = fold_now(engine, choice.focus)
        policy_run = complete(profile_used) if choice.provider is None else run(profile_used)
        log.sync()
        # A model that is not called in the preview may change the fold and its event numbers.
        may_differ = choice.later and (bool(choice.focus) or models.refused)
        edits = [edit for edit in audited_edits(log, lambda view: _used(engine, view), engine.card) if edit.event >= first]
        _print_warnings(policy_run, choice, may_differ=may_differ)
        if not edits:
            _require_fold(engine, policy_run)
        if as_json:
            emit([edit_as_builtins(edit, numbered=not may_differ) for edit in edits])
        elif not edits:
            click.echo("there is nothing to fold")
        else:
            _print_new_edits(engine, edits, full=full, numbered=not may_differ)
            if not full:
                click.echo(_command_for_the_rest(log.session, edits, preview=preview))
            click.echo("nothing was changed; omit --preview to fold" if preview else _undo_command(log, location, edits, cards))


def _used(engine: Session, view: View) -> int:
    return engine.profile.count(view, engine.counter, engine.tools_tokens)


def _print_warnings(policy_run: PolicyRun, choice: ModelChoice, *, may_differ: bool) -> None:
    """Print notices, failed proposals, and whether a model could change the fold, to standard error."""
    for line in policy_run.notices:
        click.echo(plain(line), err=True)
    if policy_run.edited:
        for why, _ in _failed_proposals(policy_run):
            click.echo(one_line(f"pal: {why}", console().width), err=True)
    if may_differ and choice.model is not None:
        name = choice.model.name
        click.echo(f"pal: {name} may change this fold and was not called; --model {name} calls it now", err=True)


def _require_fold(session: Session, policy_run: PolicyRun) -> None:
    """Raise an error with the reason why nothing was folded, unless there was nothing to fold."""
    where = session.log.session
    if policy_run.failure is not None:
        raise policy_run.failure
    for why, kind in _failed_proposals(policy_run):
        raise CannotFold(why, kind=kind, where=where)
    if any("asked" in policy.moments for policy in session.profile.policies):
        return
    setting = "DISABLE_COMPACT is set, and then " if session.profile.policies else ""
    raise BadInput(f"{setting}profile {session.profile.name} never folds; --profile sets another", where=where)


def _failed_proposals(policy_run: PolicyRun) -> list[tuple[str, str]]:
    """Return reason and kind of each refused or failed proposal."""
    bodies = [event.body for event in policy_run.events]
    refused = [(body.why, "refused") for body in bodies if isinstance(body, EditRefused)]
    return refused + [(body.message, body.error) for body in bodies if isinstance(body, Failed)]


def _print_new_edits(session: Session, edits: list[AuditedEdit], *, full: bool, numbered: bool) -> None:
    """Print up to seven lines about the edits or, if `full`, everything."""
    screen = console()
    if full:
        print_edits(screen, edits, numbered=numbered)
        for edit in edits:
            print_edit(screen, edit, session.counter, full=True, numbered=numbered)
        return
    for edit in edits[:_MOST_EDITS]:
        for place, line in enumerate(summary_lines(edit, numbered=numbered)):
            screen.print(Text(f"{'  ' if place else ''}{one_line(line, screen.width - 2)}"))
    if len(edits) > _MOST_EDITS:
        screen.print(Text(f"… and {counted(len(edits) - _MOST_EDITS, 'more edit')}"))


def _command_for_the_rest(session: str, edits: list[AuditedEdit], *, preview: bool) -> str:
    if preview:
        return f"`pal compact {session} --preview --full` shows all that would be hidden, and the view before and after"
    which = f" {edits[0].event}" if len(edits) == 1 else ""
    return f"`pal audit {session}{which} --full` shows all that is hidden, and the view before and after"


def _undo_command(log: Log, location: SessionLocation, edits: list[AuditedEdit], cards: tuple[ModelCard, ...]) -> str:
    """Return a line with the command that undoes all of the edits."""
    pending = [edit.event for edit in edits]
    commands: list[str] = []
    try:
        while pending:
            plan = plan_undo(log, pending[0])
            require_room(plan.view, log, location, cards)
            commands.insert(0, f"pal undo {log.session} {pending[0]}{' --yes' if plan.resting else ''}")
            pending = [seq for seq in pending if seq not in {body.event for body in plan.undone}]
    except PalimpsestError:
        return f"the earlier view is too large to undo the fold; `pal fork {log.session} --at {edits[0].event - 1}` continues from it"
    return f"`{' && '.join(commands)}` undoes it"
