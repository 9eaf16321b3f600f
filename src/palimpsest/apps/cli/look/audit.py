"""`pal audit`: every edit of the view, why it was made, what it cost and what it hides."""

import click

from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.look.edits import audited_edits, edit_as_builtins, print_edit, print_edits
from palimpsest.apps.cli.opening import cards_of, counter_of, open_log, session_argument
from palimpsest.apps.cli.output import console, emit, json_option, one_line, table
from palimpsest.core.errors import BadInput
from palimpsest.core.events import EditRefused
from palimpsest.core.log.log import Log
from palimpsest.wire.models.cards import recorded_card

_EXAMPLES = """\b
Examples:
  pal audit last
  pal audit last 412
  pal audit last --refused"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.argument("edit", required=False, type=int, metavar="[EDIT]")
@click.option("--refused", is_flag=True, help="The edits that were proposed and refused, instead.")
@click.option("--full", is_flag=True, help="Every line of what an edit hides and changes.")
@json_option
def audit(*, session: str, edit: int | None, refused: bool, full: bool, as_json: bool) -> None:
    """Show every edit of the view: when, by which policy, why, tokens before and after, its price, what it hides.

    With EDIT, the number of its event, everything about that one: what is no longer shown, and the view before and after.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found, whole=True) as log:
        if refused:
            _show_refused(log, as_json=as_json)
            return
        counter = counter_of(log.view, log.ledger.calibration)
        edits = list(audited_edits(log, counter, recorded_card(log.view.model or "unknown", cards_of(home))))
        if edit is not None:
            edits = [one for one in edits if one.event == edit]
            if not edits:
                raise BadInput(f"event {edit} is no edit of this branch; `pal audit {log.session}` lists them", where=log.session)
        if as_json:
            emit([edit_as_builtins(one) for one in edits])
        elif not edits:
            click.echo("no edit was made: the model sees everything that was said")
        else:
            print_edits(console(), edits)
            if edit is not None:
                print_edit(console(), edits[0], counter, full=full)


def _show_refused(log: Log, *, as_json: bool) -> None:
    found = [(event.seq, event.body) for event in log.events() if isinstance(event.body, EditRefused)]
    if as_json:
        emit([{"event": seq, "policy": body.policy, "by": body.by, "why": body.why, "edits": body.edits} for seq, body in found])
        return
    if not found:
        click.echo("no edit was refused")
        return
    rows = table("event", "policy", "refused by", "why", right=("event",))
    for seq, body in found:
        rows.add_row(str(seq), one_line(body.policy, 20), one_line(body.by, 20), one_line(body.why, 100))
    console().print(rows)
