"""`pal show`: a session as the model sees it, its events, or the exact bytes of a request."""

from typing import cast

import click

from palimpsest.apps.cli.arguments import session_argument
from palimpsest.apps.cli.ending import FINDINGS
from palimpsest.apps.cli.home import AnyHome, Found, find_home, find_session
from palimpsest.apps.cli.opening import cards_of, counter_of, open_log
from palimpsest.apps.cli.output import console, emit, json_option
from palimpsest.apps.cli.reading import events_of, print_events, print_view
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.wire.cards import WireName
from palimpsest.wire.past import Past, next_request, past_request

_DEFAULTS: dict[WireName, str] = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5", "chat": "openai-compatible/model"}


_EXAMPLES = """\b
Examples:
  pal show last
  pal show last --request 3 | python -m json.tool
  pal show last --request next --wire responses"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--request", "number", metavar="N", help="The exact body of request N, counted from 1; `next` is the one to come.")
@click.option("--wire", type=click.Choice(["anthropic", "responses", "chat"]), help="The request in the shape of another wire.")
@click.option("--model", default="", metavar="NAME", help="The request as another model would be sent it.")
@click.option("--at", type=int, metavar="SEQ", help="As it was right after event SEQ.")
@click.option("--events", is_flag=True, help="The events of the log instead of what the model sees.")
@click.option("--full", is_flag=True, help="Texts in full, however long.")
@json_option
def show(
    *, session: str, number: str | None, wire: str | None, model: str, at: int | None, events: bool, full: bool, as_json: bool
) -> None:
    """Show a session as the model sees it.

    With --request the exact bytes of a request go to standard output, and to standard error whether they are
    `verified` against the digest recorded when it left, `as it would be sent`, or how they differ (exit code 1).
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found, whole=True) as log:
        view = log.view if at is None else log.state_at(at).view
        last = log.tip if at is None else at
        if number in {None, "next"} and (number is not None or wire is not None or model):
            _show_next(home, found, view, cast("WireName | None", wire), model)
        elif number is not None:
            if at is not None:
                raise click.UsageError("--at goes with `--request next`; a numbered request has its own place")
            _show_past(home, found, log, _number(number), wire=cast("WireName | None", wire), model=model)
        elif as_json:
            emit({"session": log.session, "events": list(events_of(log, last))})
        elif events:
            print_events(console(), log, last, full=full)
        else:
            print_view(console(), log, view, counter_of(view, log.ledger.calibration), full=full)


def _number(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise click.UsageError(f"--request takes a number from 1 on, or `next`, not {word!r}")
    return int(word)


def _show_next(home: AnyHome, found: Found, view: View, wire: WireName | None, model: str) -> None:
    name = model or view.model or _DEFAULTS[wire or "anthropic"]
    request = next_request(view, found.blobs.get, cards_of(home), wire=wire, model=name)
    _write(request.body, f"as it would be sent to {name}")


def _show_past(home: AnyHome, found: Found, log: Log, number: int, *, wire: WireName | None, model: str) -> None:
    past = past_request(log, number, found.blobs.get, cards_of(home), wire=wire, model=model)
    if past.verified:
        _write(past.request.body, f"verified: event {past.seq}, sha256 {past.recorded_digest}")
    elif not past.recorded_digest:
        _write(past.request.body, _without_digest(log, past))
    else:
        _write(past.request.body, f"differs: event {past.seq} recorded {past.recorded_digest}, this is {past.request.digest}")
        click.get_current_context().exit(FINDINGS)


def _without_digest(log: Log, past: Past) -> str:
    """What stands behind a request that nobody recorded the bytes of: our own log, or what another program kept."""
    origin = log.opened.origin
    if origin == "palimpsest":
        return f"as it would be sent: event {past.seq} records no digest of this request"
    lacks = f"; its file does not hold the {' and the '.join(past.missing)}" if past.missing else ""
    return f"what {origin} showed its model at event {past.seq}, as far as its file tells{lacks}"


def _write(body: bytes, state: str) -> None:
    click.echo(body, nl=False)
    click.echo(state, err=True)
