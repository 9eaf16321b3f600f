"""`pal compact`: folds a session now, or previews the fold."""

import click
from rich.text import Text

from palimpsest.apps.cli.look.edits import AuditedEdit, audited_edits, edit_as_builtins, print_edit, print_edits, summary_lines
from palimpsest.apps.cli.opening.counting import require_room
from palimpsest.apps.cli.opening.engine_session import (
    ModelChoice,
    ModelProviders,
    card_of,
    choose_model,
    engine_session,
    environment_of,
    fold_profile,
    open_in_memory,
)
from palimpsest.apps.cli.opening.home import SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import EditRefused, Failed
from palimpsest.core.format.texts import counted
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import plan_undo
from palimpsest.core.policy import complete
from palimpsest.core.view import View
from palimpsest.engine.calls.moments import compact as fold_now
from palimpsest.engine.calls.stopping import run
from palimpsest.engine.policies import PolicyRun
from palimpsest.engine.session import Session
from palimpsest.wire.models.cards import DEFAULT_MODEL, ModelCard, card

# Edits that are summarised, each in up to three lines.
_MOST_EDITS = 2
_EXAMPLES = """\b
Examples:
  pal compact last --preview
  pal compact last --focus "the failing migration"
  pal compact last --profile codex --preview --json"""


@click.command(epilog=_EXAMPLES)
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
            _print(engine, edits, full=full, numbered=not may_differ)
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


def _print(session: Session, edits: list[AuditedEdit], *, full: bool, numbered: bool) -> None:
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
