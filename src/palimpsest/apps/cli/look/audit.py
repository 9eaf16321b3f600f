"""`pal audit`: every edit of the view with its reason, its price and what it hides."""

import click

from palimpsest.apps.cli.look.edits import audited_edits, edit_as_builtins, print_edit, print_edits
from palimpsest.apps.cli.opening.counting import count_of
from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
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
@click.option("--refused", is_flag=True, help="Show refused edits instead.")
@click.option("--full", is_flag=True, help="Show every line that an edit hides or changes.")
@json_option
def audit(*, session: str, edit: int | None, refused: bool, full: bool, as_json: bool) -> None:
    """Show every edit of the view: time, policy, reason, tokens before and after, price, and what it hides.

    EDIT is the event number of one edit: show all that it hides, and the view before and after it.
    """
    home = find_home()
    location = find_session(home, session)
    with open_log(location, whole=True) as log:
        if refused:
            _print_refused(log, as_json=as_json)
            return
        cards = cards_of(home)
        counts = count_of(log.view, log, location.blobs, cards)
        edits = list(audited_edits(log, counts.used, recorded_card(log.view.model or "unknown", cards)))
        if edit is not None:
            edits = [one for one in edits if one.event == edit]
            if not edits:
                raise BadInput(f"event {edit} is not an edit on this branch; `pal audit {log.session}` lists the edits", where=log.session)
        if as_json:
            emit([edit_as_builtins(one) for one in edits])
        elif not edits:
            click.echo("there are no edits: the model sees the whole conversation")
        else:
            print_edits(console(), edits)
            if edit is not None:
                print_edit(console(), edits[0], counts.counter, full=full)


def _print_refused(log: Log, *, as_json: bool) -> None:
    refusals = [(event.seq, event.body) for event in log.events() if isinstance(event.body, EditRefused)]
    if as_json:
        emit([{"event": seq, "policy": body.policy, "by": body.by, "why": body.why, "edits": body.edits} for seq, body in refusals])
        return
    if not refusals:
        click.echo("no edits were refused")
        return
    rows = Columns("event", "policy", "refused by", "why", right=("event",))
    for seq, body in refusals:
        rows.add_row(str(seq), one_line(body.policy, 20), one_line(body.by, 20), one_line(body.why, 100))
    console().print(rows)
