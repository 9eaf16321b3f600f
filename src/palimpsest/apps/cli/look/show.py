"""`pal show`: a session as the model sees it, its events, or the exact bytes of a request."""

from collections.abc import Iterator
from typing import cast

import click
from msgspec import Raw
from rich.console import Console
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.look.edits import applied_edit_text
from palimpsest.apps.cli.opening.counting import ViewCount, count_of
from palimpsest.apps.cli.opening.home import AnyHome, SessionLocation, find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument, warn_of_blobs, warn_of_stand_in
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import emit, json_option, local_time
from palimpsest.apps.shown_text import plain
from palimpsest.audit.pricing.cache_checks import CacheCheck, cache_checks
from palimpsest.core.events import Event, InputTransformation, ModelReplied, Unknown
from palimpsest.core.format.codec import encode_body
from palimpsest.core.format.texts import cost_text, counted, iso_time, whole_number
from palimpsest.core.items import Item, ToolResult, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.projections.children import RUNNING
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.view import View, shown
from palimpsest.engine.loop.child_costs import ChildAccounts, child_state, recorded_spending
from palimpsest.wire.encoding.media import NotedFetch
from palimpsest.wire.models.cards import WireName
from palimpsest.wire.models.prices import total_usd
from palimpsest.wire.past_requests import PastRequest, next_request, past_request

_LINES = 12
_CHILDREN = 20
_CHECKS = 5
_STYLES = {"user": "bold green", "steering": "green", "call": "cyan", "result": "dim", "thinking": "dim italic", "summary": "yellow"}


def events_of(log: Log, last: int) -> Iterator[dict[str, object]]:
    """Yield the events up to `last`, on all branches, as stored in the file but for their times, which are ISO 8601."""
    for event in log.reader.run(0, last):
        shape: dict[str, object] = {"seq": event.seq, "parent": event.parent, "at": iso_time(event.at), "prev": event.prev}
        shape["body"] = Raw(encode_body(event.body))
        if event.digest:
            shape["digest"] = event.digest
        yield shape


def print_events(screen: Console, log: Log, last: int, *, full: bool) -> None:
    """Print one line for each event: number, time, kind and body."""
    path = log.reader.path(last)
    for event in log.reader.run(0, last):
        mark = " " if event.seq in path else "·"
        opening = f"{event.seq:>6}{mark} {local_time(event.at)} {name_of(event):<16} "
        body = plain(encode_body(event.body).decode(errors="replace"))
        style = "" if event.seq in path else "dim"
        text = body if full else one_line(body, max(20, screen.width - len(opening)))
        screen.print(Text(opening + text, style=style), soft_wrap=True)


def name_of(event: Event) -> str:
    """Return the tag of an event, as stored in the log."""
    body = event.body
    return body.name if isinstance(body, Unknown) else str(body.__struct_config__.tag)


def print_view(screen: Console, log: Log, view: View, counts: ViewCount, *, full: bool) -> None:
    """Print the conversation as the model sees it, with the tokens of the next request, each item with its id, kind and tokens."""
    counter = counts.counter
    title = f"{log.session}  event {view.seq}, epoch {view.epoch}, {counted(len(view.items), 'item')}"
    model = f", {plain(view.model)}" if view.model else ""
    screen.print(Text(f"{title}, {counted(counts.used(view), 'token')}{model}", style="bold"), soft_wrap=True)
    for item in view.head:
        _print_item(screen, item, counter, "head", full=full)
    withheld = frozenset[str]() if view.call is None else frozenset(view.call.withheld)
    for item in view.items:
        _print_item(screen, item, counter, "not sent: it no longer fits" if item.id in withheld else "", full=full)
    for each in _transformations(log, view):
        screen.print(Text(plain(f"{each.path}  {each.type}  {each.reason}"), style="dim"), soft_wrap=True)


def _transformations(log: Log, view: View) -> tuple[InputTransformation, ...]:
    """What the provider said with the newest reply of what it did to the request."""
    reply = None if view.reported is None else log.event(view.reported.seq).body
    return reply.transformations if isinstance(reply, ModelReplied) else ()


def print_cache_checks(screen: Console, checks: list[CacheCheck]) -> None:
    """Print how often the provider said of its cache what was expected, and the newest calls of which it did not."""
    if not checks:
        return
    differing = [check for check in checks if check.agrees is False]
    unknown = sum(check.agrees is None for check in checks)
    agreed = len(checks) - len(differing) - unknown
    said = f"cache: the provider compared {counted(len(checks), 'request')}: {agreed} as expected, {len(differing)} not, {unknown} unknown"
    screen.print(Text(said, style="bold" if differing else "dim"), soft_wrap=True)
    for check in differing[-_CHECKS:]:
        found = check.diagnosis
        reason = "no change" if found is None or found.found == "same" else plain(found.reason)
        line = f"  event {check.seq}: {check.expected:,} tokens expected from the cache, {check.read:,} read; the provider names {reason}"
        screen.print(Text(line), soft_wrap=True)


def _checks_json(checks: list[CacheCheck]) -> dict[str, object]:
    differing = [check for check in checks if check.agrees is False]
    unknown = sum(check.agrees is None for check in checks)
    return {"agreed": len(checks) - len(differing) - unknown, "unknown": unknown, "disagreed": differing}


def print_applied_edits(screen: Console, log: Log) -> None:
    """Print what the provider cleared before the model read the newest request; the view shows what was sent."""
    last = next((event.body for event in reversed(tuple(log.events())) if isinstance(event.body, ModelReplied)), None)
    for edit in () if last is None else last.applied_edits:
        screen.print(Text(f"\n{applied_edit_text(edit)}", style="bold"), soft_wrap=True)


def print_family(screen: Console, home: AnyHome, location: SessionLocation, log: Log) -> None:
    """Print the session that started this one as a sub-agent, if one did, and a line for each sub-agent that this one started."""
    opened, children = log.opened, log.children
    if opened.opener is not None:
        name, role = opened.meta.get("nickname", ""), opened.meta.get("role", "")
        screen.print(Text(plain(f"sub-agent {_called(name, role)} of session {opened.opener.session}")), soft_wrap=True)
    is_open = bool(children) and location.store.has_writer(log.session)
    spent = ChildAccounts(home).spent(log)
    for child in children[:_CHILDREN]:
        state = child_state(child, is_open=is_open)
        usd = spent[child.session].usd
        if child.status == RUNNING:
            recorded = recorded_spending(home, child.session)
            usd = total_usd((recorded.usd, recorded.children_usd))
        price = "-" if usd == 0 and not child.depth else cost_text(usd)
        screen.print(
            Text(plain(f"sub-agent {_called(child.nickname, child.role)}: {state}, {price}, session {child.session}")), soft_wrap=True
        )
    if len(children) > _CHILDREN:
        screen.print(Text(f"… and {counted(len(children) - _CHILDREN, 'more sub-agent')}: pal agents {log.session}"), soft_wrap=True)


def _called(nickname: str, role: str) -> str:
    return one_line(f"{nickname or '-'} ({role})" if role else nickname or "-", 60)


def _print_item(screen: Console, item: Item, counter: TokenCounter, note: str, *, full: bool) -> None:
    words = [note, _mask_note(item), "error" if isinstance(item.content, ToolResult) and item.content.error else ""]
    source = f" {plain(item.source)}" if item.source else ""
    notes = "".join(f"  [{word}]" for word in words if word)
    screen.print()
    screen.print(
        Text(f"{item.id}  {item.kind}{source}  {counted(counter.item(item), 'token')}{notes}", style=_STYLES.get(item.kind, "bold")),
        soft_wrap=True,
    )
    content = shown(item)
    if content is None:
        return
    lines = plain(text_of(content)).split("\n")
    kept = lines if full or len(lines) <= _LINES else lines[:_LINES]
    width = screen.width * 6
    for line in kept:
        short = line if full or len(line) <= width else f"{line[:width]}…"
        for piece in Text(short).wrap(screen, max(1, screen.width - 2)):
            screen.print(Text(f"  {piece.plain.rstrip()}"), soft_wrap=True)
    if len(kept) < len(lines):
        screen.print(Text(f"  … {counted(len(lines) - len(kept), 'more line')} (--full)", style="dim"))


def _mask_note(item: Item) -> str:
    if item.mask is None:
        return ""
    if item.hidden:
        return "hidden"
    return "masked" if item.mask.form == "shown" else "dropped by the provider"


_DEFAULT_MODELS: dict[WireName, str] = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5", "chat": "openai-compatible/model"}


_EXAMPLES = """\b
Examples:
  pal show last
  pal show last --request 3 | python -m json.tool
  pal show last --request next --wire responses"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--request", "number", metavar="N", help="Print the exact body of request N, from 1; `next` is the next one.")
@click.option("--wire", type=click.Choice(["anthropic", "responses", "chat"]), help="Encode the request for another API.")
@click.option("--model", default="", metavar="NAME", help="Encode the request for another model.")
@click.option("--at", type=int, metavar="SEQ", help="Show the state after event SEQ.")
@click.option("--events", is_flag=True, help="Show the events of the log instead of the view.")
@click.option("--full", is_flag=True, help="Print texts in full.")
@json_option
def show(
    *, session: str, number: str | None, wire: str | None, model: str, at: int | None, events: bool, full: bool, as_json: bool
) -> None:
    """Show a session as the model sees it, and the sub-agents that it started or the session that it is a sub-agent of.

    With --request, the exact bytes of a request are written to standard output. Standard error says whether they are
    `verified` against the recorded digest, are `as it would be sent`, or differ from it (exit code 1).
    """
    home = find_home()
    location = find_session(home, session)
    with open_log(location, whole=True) as log:
        view = log.view if at is None else log.state_at(at).view
        last = log.tip if at is None else at
        if number in {None, "next"} and (number is not None or wire is not None or model):
            _show_next(home, location, log, view, wire=cast("WireName | None", wire), model=model)
        elif number is not None:
            if at is not None:
                raise click.UsageError("--at works only with `--request next`; a numbered request has its own event")
            _show_past(home, location, log, _number(number), wire=cast("WireName | None", wire), model=model)
        elif as_json:
            checks = list(cache_checks(log.reader.run(0, last)))
            emit({"session": log.session, "cache_checks": _checks_json(checks), "events": list(events_of(log, last))})
        elif events:
            print_events(console(), log, last, full=full)
        else:
            if at is None:
                print_family(console(), home, location, log)
            print_view(console(), log, view, count_of(view, log, location.blobs, cards_of(home)), full=full)
            if at is None:
                print_applied_edits(console(), log)
            print_cache_checks(console(), list(cache_checks(log.reader.run(0, last))))


def _number(word: str) -> int:
    number = whole_number(word)
    if not number:
        raise click.UsageError(f"--request takes a number from 1, or `next`, not {word!r}")
    return number


def _show_next(home: AnyHome, location: SessionLocation, log: Log, view: View, *, wire: WireName | None, model: str) -> None:
    # A model that the user names must have a card; one that the log names may have a stand-in.
    given = model or ("" if view.model else _DEFAULT_MODELS[wire or "anthropic"])
    fetch, cards = NotedFetch(location.blobs.get), cards_of(home)
    request = next_request(view, fetch, cards, wire=wire, model=given, log=log)
    warn_of_blobs(fetch)
    warn_of_stand_in("" if given else view.model, cards)
    _write(request.body, f"as it would be sent to {given or view.model}")


def _show_past(home: AnyHome, location: SessionLocation, log: Log, number: int, *, wire: WireName | None, model: str) -> None:
    fetch = NotedFetch(location.blobs.get)
    past = past_request(log, number, fetch, cards_of(home), wire=wire, model=model)
    warn_of_blobs(fetch)
    if past.verified:
        _write(past.request.body, f"verified: event {past.seq}, sha256 {past.recorded_digest}")
    elif not past.recorded_digest:
        _write(past.request.body, _without_digest(log, past))
    else:
        _write(past.request.body, f"differs: event {past.seq} recorded {past.recorded_digest}, this is {past.request.digest}")
        click.get_current_context().exit(FINDINGS)


def _without_digest(log: Log, past: PastRequest) -> str:
    """Describe a request without a recorded digest: from our own log, or from the file of another program."""
    origin = log.opened.origin
    if origin == "palimpsest":
        return f"as it would be sent: event {past.seq} records no digest of this request"
    missing = f"; its file lacks the {' and the '.join(past.missing)}" if past.missing else ""
    return f"what {origin} showed its model at event {past.seq}, as far as its file shows{missing}"


def _write(body: bytes, state: str) -> None:
    click.echo(body, nl=False)
    click.echo(state, err=True)
