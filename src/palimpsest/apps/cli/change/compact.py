"""`pal compact`: fold a session now, or see what that would do first."""

import click

from palimpsest.apps.cli.engine_session import (
    USUAL,
    ModelChoice,
    ModelProviders,
    card_of,
    choose_model,
    engine_session,
    environment_of,
    open_in_memory,
    profile_for,
)
from palimpsest.apps.cli.home import SessionLocation, find_home, find_session
from palimpsest.apps.cli.look.edits import AuditedEdit, audited_edits, edit_as_builtins, print_edit, print_edits
from palimpsest.apps.cli.opening import cards_of, open_log, require_room, session_argument
from palimpsest.apps.cli.output import console, emit, json_option, one_line, plain
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import EditRefused, Failed
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import plan_undo
from palimpsest.core.policy import complete
from palimpsest.engine.moments import compact as fold_now
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.session import Session
from palimpsest.engine.stopping import run
from palimpsest.wire.models.cards import ModelCard, card

_EXAMPLES = """\b
Examples:
  pal compact last --preview
  pal compact last --focus "the failing migration"
  pal compact last --profile codex --preview --json"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--profile", "profile_name", default="", metavar="NAME", help="Fold as this profile does; default: that of the session.")
@click.option("--model", default="", metavar="NAME", help="Ask, and make room for, this model; default: that of the session.")
@click.option("--focus", default="", metavar="TEXT", help="What a summary should look at most.")
@click.option("--preview", is_flag=True, help="Show what would be hidden and what it costs, and change nothing.")
@click.option("--no-model", is_flag=True, help="Fold without asking a model, as PAL_OFFLINE=1 does.")
@click.option("--full", is_flag=True, help="Every line of what is hidden and changed.")
@json_option
def compact(*, session: str, profile_name: str, model: str, focus: str, preview: bool, no_model: bool, full: bool, as_json: bool) -> None:
    """Fold the session now.

    Without a model (no key, --no-model, or --preview without --model) the fold is computed from the log: the user's
    messages, evidence of the work, and the newest items. It is an edit like any other: `pal audit` explains it and
    `pal undo` takes it back. A preview works on a copy in memory.
    """
    home = find_home()
    found = find_session(home, session)
    cards = cards_of(home)
    with open_in_memory(found) if preview else open_log(found, write=True) as log:
        asking = choose_model(card_of(model, log, cards), focus, offline=no_model, now=bool(model) or not preview)
        models = ModelProviders(asking)
        environment = environment_of(found, log, cards, models, trying=preview)
        at_work = engine_session(log, profile_for(profile_name, log, asking), asking.model or card(USUAL, cards), environment)
        first = log.tip + 1
        folding = fold_now(at_work, asking.focus)
        ran = complete(folding) if asking.provider is None else run(folding)
        log.sync()
        # A model that is asked later may make it another fold with other numbers.
        unknown = asking.later and (bool(asking.focus) or models.refused)
        edits = [edit for edit in audited_edits(log, at_work.counter, at_work.card) if edit.event >= first]
        _tell_stops(ran, asking, unknown=unknown)
        if not edits:
            _check(at_work, ran)
        if as_json:
            emit([edit_as_builtins(edit, numbered=not unknown) for edit in edits])
        elif not edits:
            click.echo("there is nothing to fold")
        else:
            _print(at_work, edits, full=full, numbered=not unknown)
            click.echo("nothing was changed; leave out --preview to do it" if preview else _way_back(log, found, edits, cards))


def _tell_stops(ran: PolicyRun, asking: ModelChoice, *, unknown: bool) -> None:
    """What a person should know beside the edits, whoever reads them."""
    for line in ran.notices:
        click.echo(plain(line), err=True)
    if ran.edited:
        for why, _ in _stopped(ran):
            click.echo(one_line(f"pal: {why}", console().width), err=True)
    if unknown and asking.model is not None:
        name = asking.model.name
        click.echo(f"pal: {name} would be asked and may fold otherwise; this is the fold without it (--model {name} asks it now)", err=True)


def _check(session: Session, ran: PolicyRun) -> None:
    """Where nothing was folded, say why, unless there was nothing to fold."""
    where = session.log.session
    if ran.failure is not None:
        raise ran.failure
    for why, kind in _stopped(ran):
        raise CannotFold(why, kind=kind, where=where)
    if any("asked" in policy.moments for policy in session.profile.policies):
        return
    setting = "DISABLE_COMPACT is set, and then " if session.profile.policies else ""
    raise BadInput(f"{setting}profile {session.profile.name} never folds; --profile names another", where=where)


def _stopped(ran: PolicyRun) -> list[tuple[str, str]]:
    """Why proposals came to nothing, each with its kind."""
    bodies = [event.body for event in ran.events]
    refused = [(body.why, "refused") for body in bodies if isinstance(body, EditRefused)]
    return refused + [(body.message, body.error) for body in bodies if isinstance(body, Failed)]


def _print(session: Session, edits: list[AuditedEdit], *, full: bool, numbered: bool) -> None:
    screen = console()
    print_edits(screen, edits, numbered=numbered)
    for edit in edits:
        print_edit(screen, edit, session.counter, full=full, numbered=numbered)


def _way_back(log: Log, found: SessionLocation, edits: list[AuditedEdit], cards: tuple[ModelCard, ...]) -> str:
    """The command that takes back all of the edits, whichever rest on which."""
    left = [edit.event for edit in edits]
    commands: list[str] = []
    try:
        while left:
            plan = plan_undo(log, left[0])
            require_room(plan.view, log, found, cards)
            commands.insert(0, f"pal undo {log.session} {left[0]}{' --yes' if plan.resting else ''}")
            left = [seq for seq in left if seq not in {body.event for body in plan.undone}]
    except PalimpsestError:
        return f"what was there before is too much to be undone; `pal fork {log.session} --at {edits[0].event - 1}` goes on from there"
    return f"`{' && '.join(commands)}` takes it back"
