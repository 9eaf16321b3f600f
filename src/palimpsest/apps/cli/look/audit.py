"""`pal audit`: every edit of the view with its reason, its price and what it hides."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from palimpsest.apps.cli.look.edits import applied_edit_lines, audited_edits, edit_as_builtins, print_edit, print_edits
from palimpsest.apps.cli.opening.counting import count_of
from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import BadInput, ThinkingRefused
from palimpsest.core.events import EditRefused, Failed, ModelReplied
from palimpsest.core.log.log import Log
from palimpsest.wire.models.cards import recorded_card

# The most different words of a provider that are shown.
_WORDS_SHOWN: Final = 8
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

    What the provider cleared before the model read a request is not an edit of the view and follows as lines; with --json it is left out,
    and `pal show ID --json` has it as `applied_edits` of each reply.
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
            return
        reported = [*applied_edit_lines(log), *_thinking_lines(log)] if edit is None else []
        if edits:
            print_edits(console(), edits)
        elif not reported:
            click.echo("there are no edits: the model sees the whole conversation")
        for line in reported:
            click.echo(line)
        if edit is not None:
            print_edit(console(), edits[0], counts.counter, full=full)


def _thinking_lines(log: Log) -> Iterator[str]:
    """Yield what the provider did with the thinking that it was sent, as its replies and its refusals say."""
    told: Counter[str] = Counter()
    refused = 0
    for event in log.events():
        match event.body:
            case ModelReplied(transformations=transformations):
                told.update(f"{each.type} ({each.reason})" if each.reason else each.type for each in transformations)
            case Failed(error=ThinkingRefused.kind):
                refused += 1
            case _:
                continue
    if told:
        said = ", ".join(f"{plain(words)} {count}x" for words, count in sorted(told.items())[:_WORDS_SHOWN])
        yield f"reported by the provider of its input: {said}"
    if refused:
        yield f"thinking refused by the provider: {refused}x"


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
