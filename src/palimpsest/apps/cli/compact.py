"""`pal compact`: fold a session now, or see what that would do first."""

import asyncio

import click

from palimpsest.apps.cli.arguments import session_argument
from palimpsest.apps.cli.audited import Audited, audited_edits, print_edit, print_edits, shape_of
from palimpsest.apps.cli.ending import FINDINGS
from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.opening import open_log
from palimpsest.apps.cli.output import console, emit, json_option, one_line, plain
from palimpsest.apps.cli.working import provider_of, told_of, trial, working
from palimpsest.core.events import Failed, Refused
from palimpsest.core.policy import run_steps
from palimpsest.engine.flow import answer_without_model, carry_out
from palimpsest.engine.moments import Looked, look
from palimpsest.engine.session import Session

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
    with told_of(found), open_log(found, write=not preview) as log:
        make = trial if preview else working
        at_work = make(home, found, log, profile_name=profile_name, model=model)
        asking = not no_model and (bool(model) or not preview)
        first = at_work.log.tip + 1
        looked = _fold(at_work, focus or "", asking=asking)
        at_work.log.sync()
        edits = [edit for edit in audited_edits(at_work.log, at_work.scale, at_work.card) if edit.event >= first]
        if as_json:
            emit([shape_of(edit) for edit in edits])
        else:
            _tell(at_work, looked, edits, preview=preview, full=full)
        if not edits and (looked.failure is not None or _stopped(looked)):
            click.get_current_context().exit(FINDINGS)


def _fold(session: Session, focus: str, *, asking: bool) -> Looked:
    steps = look(session, "asked", asked=focus)
    provider = provider_of(session.card) if asking else None
    if provider is None:
        return run_steps(steps, lambda want: answer_without_model(session, want))
    return asyncio.run(carry_out(steps, session, provider))


def _tell(session: Session, looked: Looked, edits: list[Audited], *, preview: bool, full: bool) -> None:
    screen = console()
    for line in looked.notices:
        click.echo(plain(line), err=True)
    for why in _stopped(looked):
        click.echo(one_line(f"pal: {why}", screen.width), err=True)
    if not edits:
        click.echo("nothing was folded" if looked.failure is not None or _stopped(looked) else "there is nothing to fold")
        return
    print_edits(screen, edits)
    for edit in edits:
        print_edit(screen, edit, session.scale, full=full)
    click.echo("nothing was changed; leave out --preview to do it" if preview else f"`pal undo {session.log.session}` takes it back")


def _stopped(looked: Looked) -> list[str]:
    """Why proposals came to nothing."""
    bodies = [event.body for event in looked.events]
    refused = [body.why for body in bodies if isinstance(body, Refused)]
    return refused + [body.message for body in bodies if isinstance(body, Failed)]
