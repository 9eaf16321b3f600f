"""The commands that show a session: `pal show`, `context`, `diff`, `jobs`, `hooks` and `agents`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice, zip_longest
from string import ascii_uppercase
from typing import Any, cast, get_args

import click
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from pal.cli.audit import applied_edit_text
from pal.cli.command_line import FINDINGS
from pal.cli.counting import ViewCount, budget_of, count_of, profile_of
from pal.cli.logs import cards_of, complete_session, open_log, session_argument, warn_of_blobs, warn_of_stand_in
from pal.cli.opening import NEWEST, SessionLocation, find_home, find_session
from pal.cli.output import emit, json_option, local_time, short_time, with_iso_times
from pal.cli.settings import config_path, settings_of, working_folder
from pal.cli.tables import Columns, console, one_line, print_listing
from pal.text import plain, short
from palimpsest.agent.jobs import standard_jobs
from palimpsest.agent.limits import UNKNOWN, ChildAccounts, FamilyMember, child_state, family_of, recorded_spending
from palimpsest.agent.named_profiles import is_profile_name, profile
from palimpsest.agent.tool_counts import known_count
from palimpsest.agent.turn_files import recordable
from palimpsest.audit.cache import CacheCheck, cache_checks
from palimpsest.coding.file_undo import TurnChange, turn_changes
from palimpsest.core.budget import Budget, Census, RowForm, census, window_rows
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, HookRan, InputTransformation, ModelReplied, RateLimit, Unknown
from palimpsest.core.items import Item, ToolResult, Value, text_of
from palimpsest.core.ledger import job_purpose
from palimpsest.core.lines import encode_body
from palimpsest.core.log import Log
from palimpsest.core.spending import RUNNING, total_of
from palimpsest.core.text import cost_text, counted, dollars, iso_time, percent_of, whole_number
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import View, shown
from palimpsest.memory.jobs import memory_job_names
from palimpsest.policies.named import DEFAULT
from palimpsest.stores.config import HookConfig
from palimpsest.stores.home import Home
from palimpsest.stores.project import project_hooks, trust_of
from palimpsest.stores.snapshots import ChangedFile
from palimpsest.wire.encode import PastRequest, next_request, past_request
from palimpsest.wire.media import NotedFetch
from palimpsest.wire.models import ModelCard, PriceBook, WireName, total_usd
from palimpsest.wire.wires import WIRES

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


def print_family(screen: Console, home: Home, location: SessionLocation, log: Log) -> None:
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


_EXAMPLES = """\b
Examples:
  pal show last
  pal show last --request 3 | python -m json.tool
  pal show last --request next --wire responses"""


@click.command(epilog=_EXAMPLES)
@session_argument
@click.option("--request", "number", metavar="N", help="Print the exact body of request N, from 1; `next` is the next one.")
@click.option("--wire", type=click.Choice(list(WIRES)), help="Encode the request for another API.")
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


def _show_next(home: Home, location: SessionLocation, log: Log, view: View, *, wire: WireName | None, model: str) -> None:
    # A model that the user names must have a card; one that the log names may have a stand-in.
    given = model or ("" if view.model else WIRES[wire or "anthropic"].model)
    fetch, cards = NotedFetch(location.blobs.get), cards_of(home)
    request = next_request(view, fetch, cards, wire=wire, model=given, log=log)
    warn_of_blobs(fetch)
    warn_of_stand_in("" if given else view.model, cards)
    _write_request_body(request.body, f"as it would be sent to {given or view.model}")


def _show_past(home: Home, location: SessionLocation, log: Log, number: int, *, wire: WireName | None, model: str) -> None:
    fetch = NotedFetch(location.blobs.get)
    past = past_request(log, number, fetch, cards_of(home), wire=wire, model=model)
    warn_of_blobs(fetch)
    if past.verified:
        _write_request_body(past.request.body, f"verified: event {past.seq}, sha256 {past.recorded_digest}")
    elif not past.recorded_digest:
        _write_request_body(past.request.body, _without_digest(log, past))
    else:
        _write_request_body(past.request.body, f"differs: event {past.seq} recorded {past.recorded_digest}, this is {past.request.digest}")
        click.get_current_context().exit(FINDINGS)


def _without_digest(log: Log, past: PastRequest) -> str:
    """Describe a request without a recorded digest: from our own log, or from the file of another program."""
    origin = log.opened.origin
    if origin == "palimpsest":
        return f"as it would be sent: event {past.seq} records no digest of this request"
    missing = f"; its file lacks the {' and the '.join(past.missing)}" if past.missing else ""
    return f"what {origin} showed its model at event {past.seq}, as far as its file shows{missing}"


def _write_request_body(body: bytes, state: str) -> None:
    click.echo(body, nl=False)
    click.echo(state, err=True)


# Events before the newest one in which the latest reply is looked for.
_MOST_EVENTS = 2_000


def share_left(view: View, budget: Budget, used: int) -> int | None:
    """Return the percent that are left as the profile of the session tells its user; `None` for a profile that does not."""
    left = profile(view.profile if is_profile_name(view.profile) else DEFAULT).left
    return None if left is None else left(used, budget)


def latest_limits(log: Log) -> tuple[RateLimit, ...]:
    """Return the rate limits that the newest reply with any reported; empty if none did lately."""
    newest = (log.event(seq).body for seq in range(log.tip, -1, -1))
    replies = (body for body in islice(newest, _MOST_EVENTS) if isinstance(body, ModelReplied))
    # The events of a fork whose base is gone have a first one.
    with suppress(PalimpsestError):
        return next((body.limits for body in replies if body.limits), ())
    return ()


def window_lines(left: int | None, limits: tuple[RateLimit, ...]) -> Iterator[str]:
    """Yield the lines to print."""
    if left is not None:
        yield f"{left}% of the context is left, as this profile counts: the first 12,000 tokens are not counted"
    for limit in limits:
        window = "" if limit.window_minutes is None else f" of {limit.window_minutes:,} minutes"
        # In the local time of the user.
        reset = "" if limit.resets_at is None else f", resets {datetime.fromtimestamp(limit.resets_at).astimezone():%m-%d %H:%M}"
        yield f"rate limit {limit.name}{window}: {limit.used_percent:.0f}% used{reset}"


USED, PARTLY, BUFFER, FREE = "⛁", "⛀", "⛝", "⛶"
BUFFER_NAME = "Autocompact buffer"
FREE_NAME = "Free space"
# What the provider counted beyond the items: of other programs, the log has neither the system prompt nor hidden thinking.
UNLISTED_NAME = "reported, in no item"
CELLS, ROW = 100, 10
# The grid is printed with symbols that nearly every font has; those of Claude Code are boxes with a code in many.
_PRINTED = {USED: "■", PARTLY: "▪", BUFFER: "▨", FREE: "□"}


class CategoryTokens(Value, frozen=True):
    """A category and its tokens."""

    name: str
    tokens: int


class GridCell(Value, frozen=True):
    """One percent of the window, and its category."""

    glyph: str
    category: str


def grid(shares: Sequence[CategoryTokens], window: int, buffer: int, form: RowForm = "measured") -> tuple[tuple[GridCell, ...], ...]:
    """Return the rows of the grid: categories in order, then free space, then the buffer as far as cells are left.

    In the measured form, a category above zero gets at least one cell, and a cell filled to 0.6 or less is drawn as partly used.
    """
    cells: list[GridCell] = []
    for share in shares:
        cells += _cells_of(share, window, form)
    del cells[CELLS:]
    left = CELLS - len(cells)
    kept = min(left, percent_of(buffer, window))
    cells += [GridCell(FREE, FREE_NAME)] * (left - kept) + [GridCell(BUFFER, BUFFER_NAME)] * kept
    return tuple(tuple(cells[start : start + ROW]) for start in range(0, CELLS, ROW))


def _cells_of(share: CategoryTokens, window: int, form: RowForm) -> Iterable[GridCell]:
    count = min(CELLS, percent_of(share.tokens, window))
    if form == "documents":
        return [GridCell(USED, share.name)] * count
    if share.tokens > 0:
        count = max(1, count)
    whole, rest = divmod(share.tokens * CELLS, window) if window else (0, 0)
    # Integers, because the limit of 0.6 must not depend on floating point.
    partly = count > whole and rest * 10 <= 6 * window
    return [GridCell(PARTLY if partly and number == whole else USED, share.name) for number in range(count)]


def thousands(tokens: int, form: RowForm = "measured") -> str:
    """Format tokens as `16.6k`, plain below a thousand; documented form `45.0k`, measured form `45k`."""
    if tokens < 1_000:
        return str(tokens)
    tenths = (tokens + 50) // 100
    if form == "measured" and tenths % 10 == 0:
        return f"{tenths // 10}k"
    return f"{tenths // 10}.{tenths % 10}k"


def share_line(share: CategoryTokens, window: int, form: RowForm = "measured") -> str:
    """Return the legend line of a category: `System tools: 16.6k tokens (8.3%)`."""
    tenths = (2_000 * share.tokens + window) // (2 * window) if window else 0
    return f"{share.name}: {thousands(share.tokens, form)} tokens ({tenths // 10}.{tenths % 10}%)"


def head_line(model: str, used: int, window: int) -> str:
    """Return the title line: model, used tokens, window, percent."""
    return f"{model} · {thousands(used)}/{thousands(window)} tokens ({percent_of(used, window)}%)"


_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green", "bright_yellow")
_LARGEST = 5
_COUNTED = "the provider counted the tools"
_ESTIMATED = "the tools are estimated: the provider was not asked, or did not count"


@click.command(epilog="\b\nExample:\n  pal context last --form documents")
@session_argument
@click.option("--form", type=click.Choice(get_args(RowForm)), help="Rows and cells as documented, or as measured; default: by profile.")
@click.option("--at", type=int, metavar="SEQ", help="Show the state after event SEQ.")
@click.option("--window", type=click.IntRange(min=1), metavar="TOKENS", help="Assume a window of this size.")
@json_option
def context(*, session: str, form: str | None, at: int | None, window: int | None, as_json: bool) -> None:
    """Show what fills the model's window: system prompt, tools, memory files and messages, free space, and the reserved buffer.

    The buffer and the levels are those of the profile of the session, with your settings of it. `--json` has every item.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found, whole=True) as log:
        view = log.view if at is None else log.state_at(at).view
        cards = cards_of(home)
        counts = count_of(view, log, found.blobs, cards)
        limits = latest_limits(log)
    # A profile that asks for the size of its tools has it from the provider, once a session was online.
    tools = known_count(home.tool_counts, view.model, view.call.tools) if view.call and profile_of(view).counts_tools else None
    counts = counts if tools is None else counts._replace(tools=tools)
    warn_of_stand_in(view.model, cards)
    settings = settings_of(home).profile_environment(os.environ)
    counted = census(view, counts.counter, budget_of(view, cards, window, settings), counts.tools, counts.used(view))
    shown_form = cast("RowForm", form) if form else profile_of(view).rows
    rows = window_rows(view, counts.counter, counts.tools, shown_form)
    left = share_left(view, budget_of(view, cards, window, settings), counted.used)
    counts_tools, is_counted = profile_of(view).counts_tools, tools is not None
    if as_json:
        extra = {"rows": rows, "tools_counted": is_counted, "percent_left": left, "limits": msgspec.to_builtins(limits)}
        emit({**msgspec.to_builtins(counted), **extra})
        return
    print_census(counted, rows, view.model or "no model yet", shown_form)
    if counts_tools:
        click.echo(_COUNTED if is_counted else _ESTIMATED)
    for line in window_lines(left, limits):
        click.echo(plain(line))


def print_census(counted: Census, rows: Mapping[str, int], model: str, form: RowForm = "measured") -> None:
    """Print the grid with its rows, tokens by kind and source, and the largest items; what no item explains has cells from 1 % on."""
    screen = console()
    shares = [CategoryTokens(name, tokens) for name, tokens in rows.items() if tokens]
    unlisted = counted.used - sum(counted.by_kind.values())
    if unlisted * CELLS >= counted.window:
        shares.append(CategoryTokens(UNLISTED_NAME, unlisted))
    colours = {share.name: _COLOURS[number % len(_COLOURS)] for number, share in enumerate(shares)}
    cells = grid(shares, counted.window, counted.buffer, form)
    letters = {} if screen.color_system is not None and not screen.no_color else category_letters(share.name for share in shares)
    drawing = [Text.assemble(*((f"{_symbol(cell, letters)} ", colours.get(cell.category, "dim")) for cell in row)) for row in cells]
    entries = (*shares, CategoryTokens(FREE_NAME, counted.free), CategoryTokens(BUFFER_NAME, counted.buffer))
    legend = [_legend_line(share_line(share, counted.window, form), share.name, letters, colours) for share in entries]
    screen.print(Text(plain(head_line(model, counted.used, counted.window)), style="bold"))
    for line, entry in zip_longest(drawing, legend, fillvalue=Text()):
        screen.print(Text.assemble(line or " " * 2 * ROW, "  ", entry))
    for title, sizes in (("by kind", counted.by_kind), ("by source", counted.by_source)):
        if sizes:
            parts = ", ".join(f"{plain(name)} {tokens:,}" for name, tokens in sorted(sizes.items(), key=lambda pair: -pair[1]))
            screen.print(Text(f"{title}: {parts}"))
    largest = Columns("largest", "kind", "tokens", right=("tokens",), keep=("largest",))
    for item in sorted(counted.items, key=lambda item: -item.tokens)[:_LARGEST]:
        largest.add_row(item.id, f"{item.kind}{' (masked)' if item.masked else ''}", f"{item.tokens:,}")
    screen.print(largest)


def category_letters(names: Iterable[str]) -> dict[str, str]:
    """Return a capital letter for each category, of its name if one is left; categories after the 26th have a question mark."""
    found: dict[str, str] = {}
    for name in names:
        candidates = (*name.upper(), *ascii_uppercase)
        found[name] = next((letter for letter in candidates if letter in ascii_uppercase and letter not in found.values()), "?")
    return found


def _symbol(cell: GridCell, letters: Mapping[str, str]) -> str:
    """Return what is printed for a cell; without colours the letter of its category, a small one if it is partly used."""
    letter = letters.get(cell.category)
    if letter is None:
        return _PRINTED[cell.glyph]
    return letter.lower() if cell.glyph == PARTLY else letter


def _legend_line(line: str, category: str, letters: Mapping[str, str], colours: Mapping[str, str]) -> Text:
    symbol = letters.get(category) or {FREE_NAME: _PRINTED[FREE], BUFFER_NAME: _PRINTED[BUFFER]}.get(category, "")
    return Text(f"{symbol} {line}" if letters else line, style=colours.get(category, "dim"))


_MOST_ROWS = 200
_DIFF_STYLES = {b"+": "green", b"-": "red", b"@": "cyan", b"d": "bold", b"i": "dim"}
_HEADERS = (b"+++ ", b"--- ")


@click.command(epilog="\b\nExamples:\n  pal diff last\n  pal diff last --turn -1\n  pal diff last --stat")
@session_argument
@click.option("--turn", type=int, default=None, metavar="N", help="Only turn N, from 1; -1 is the last one.")
@click.option("--stat", "only_files", is_flag=True, help="List the files and their lines instead of the diff.")
@json_option
def diff(*, session: str, turn: int | None, only_files: bool, as_json: bool) -> None:
    """Show what the turns of a session changed in files, one diff for each turn.

    It is read from the snapshots around the turns, so it does not matter whether a tool, a command or a sub-agent made a
    change, nor what the files are now. What you changed between turns is not shown. Of a turn at most 1 MiB is shown;
    --stat lists all files. Without a terminal, the output is a patch as `git apply -R` takes it back. Exit code 1: the
    changes of some turn are not known.
    """
    home = find_home()
    found = find_session(home, session)
    with open_log(found) as log:
        if home.local_folder is None:
            raise BadInput("a home in memory keeps no snapshots of files", where=log.session)
        changes = turn_changes(log, home.local_folder, turn, with_patch=not only_files)
        missing = "" if changes else _why_none(log, turn)
    if as_json:
        emit([_shape(change, only_files=only_files) for change in changes])
    else:
        _print_all(changes, missing, only_files=only_files)
    if any(change.problem for change in changes):
        # The output is not all that the turns changed.
        click.get_current_context().exit(FINDINGS)


def _print_all(changes: tuple[TurnChange, ...], missing: str, *, only_files: bool) -> None:
    screen = console()
    shown = [change for change in changes if change.files or change.problem]
    for change in shown:
        _print_turn_change(screen, change, only_files=only_files)
    if not shown:
        click.echo(missing or "no files were changed", err=True)


def _why_none(log: Log, turn: int | None) -> str:
    which = "this session has" if turn is None else f"turn {turn} has"
    opener = log.opened.opener
    if opener is not None:
        return f"{which} no snapshots of files: those of a sub-agent are in the session of its parent, {opener.session}"
    return f"{which} no snapshots of files: no tool that may change files ran, or snapshots were off (files.snapshots)"


def _shape(change: TurnChange, *, only_files: bool) -> dict[str, object]:
    """Return the changes of a turn as `--json` prints them."""
    shape: dict[str, object] = {
        "turn": change.turn,
        "events": [change.first, change.last],
        "folder": change.root,
        "certain": change.certain,
        "problem": change.problem,
        "files": [file._asdict() | {"path": recordable(file.path)} for file in change.files],
    }
    if not only_files:
        shape |= {"diff": change.patch.data.decode("utf-8", "backslashreplace"), "left_out": change.patch.left_out}
    return shape


def _print_turn_change(screen: Console, change: TurnChange, *, only_files: bool) -> None:
    note = "" if change.certain or change.problem else " (cut off: all changes until the next snapshot, also yours)"
    place = f" in {change.root}" if change.root else ""
    title = plain(f"# turn {change.turn}, event {change.first}{place}{note}").replace("\n", " ")
    if change.problem:
        click.echo(plain(f"{title}: {change.problem}").replace("\n", " "), err=True)
        return
    _say(screen, title)
    if only_files:
        _print_files(screen, change.files)
        return
    _print_patch(screen, change.patch.data)
    if change.patch.left_out:
        click.echo(f"pal: {change.patch.left_out:,} more files of turn {change.turn} are not shown; --stat lists all", err=True)


def _print_files(screen: Console, files: tuple[ChangedFile, ...]) -> None:
    for file in files[:_MOST_ROWS]:
        lines = "binary or large" if file.added is None else f"+{file.added} -{file.removed}"
        _say(screen, plain(f"  {file.action:<8}  {recordable(file.path)}  {lines}"))
    if len(files) > _MOST_ROWS:
        _say(screen, f"  … and {len(files) - _MOST_ROWS:,} more")
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    _say(screen, f"  {len(files):,} file{'' if len(files) == 1 else 's'}, +{added:,} -{removed:,}")


def _say(screen: Console, line: str) -> None:
    if screen.is_terminal:
        screen.print(Text(line, style="bold" if line.startswith("#") else ""), soft_wrap=True)
    else:
        click.echo(line)


def _print_patch(screen: Console, data: bytes) -> None:
    """Print a diff: in colours and without control characters on a terminal, byte for byte elsewhere."""
    if not screen.is_terminal:
        click.echo(data, nl=False)
        return
    text = Text()
    for line in data.split(b"\n"):
        style = "bold" if line.startswith(_HEADERS) else _DIFF_STYLES.get(line[:1], "")
        text.append(plain(line.decode("utf-8", "backslashreplace")) + "\n", style=style)
    text.rstrip()
    screen.print(text, soft_wrap=True)


class JobRow(Struct, frozen=True):
    """A job as `--json` prints it. `lag` is in events; `at` is ISO 8601 in JSON; `cost_usd` is null without known prices.

    `is_on` is false for a job that has run in this session, and that neither the settings nor the profile have turned on now.
    """

    job: str
    is_on: bool
    cursor: int
    lag: int
    at: int | None
    status: str
    why: str
    took_ms: int
    failures: int
    calls: int
    tokens: int
    cost_usd: float | None


@click.command(epilog="\b\nExample:\n  pal jobs last --json")
@click.argument("session", metavar="[ID]", default=NEWEST, shell_complete=complete_session)
@json_option
def jobs(*, session: str, as_json: bool) -> None:
    """Show the background jobs of a session: cursor, lag behind the conversation, last run and cost.

    Without ID, those of the newest session. Jobs run beside the turns of the agent. The settings below `jobs` and `memory` turn
    them on and off; `pal config` shows them.
    """
    home = find_home()
    found = find_session(home, session)
    config = settings_of(home).config
    with open_log(found) as log:
        own = profile(log.view.profile) if is_profile_name(log.view.profile) else None
        names = [job.name for job in (*standard_jobs(config.jobs, home), *(() if own is None else own.jobs))]
        if own is not None and log.opened.opener is None and home.local_folder is not None:
            names += memory_job_names(config.memory, own)
        rows = rows_of(log, names, cards_of(home))
    if as_json:
        emit([with_iso_times(msgspec.to_builtins(row), "at") for row in rows])
        return
    if not rows:
        click.echo("no jobs: all of them are off, and none ran in this session")
        return
    _print_jobs(rows)


def rows_of(log: Log, turned_on: Sequence[str], cards: tuple[ModelCard, ...]) -> list[JobRow]:
    """Return the jobs that are turned on, then others that ran in the session."""
    states = log.jobs
    names = dict.fromkeys((*turned_on, *states.jobs))
    return [_job_row(log, name, cards, is_on=name in turned_on) for name in names]


def _job_row(log: Log, name: str, cards: tuple[ModelCard, ...], *, is_on: bool) -> JobRow:
    state, spendings = log.jobs.of(name), [each for each in log.ledger.spendings if each.purpose == job_purpose(name)]
    known: dict[str, Any] = {field: getattr(state, field) for field in ("cursor", "at", "status", "why", "took_ms", "failures")}
    cost = PriceBook(cards).usd(spendings)
    calls, tokens = sum(each.calls for each in spendings), total_of(each.usage for each in spendings).total
    return JobRow(job=name, is_on=is_on, lag=log.jobs.lag(name), calls=calls, tokens=tokens, cost_usd=cost, **known)


def _print_jobs(rows: Sequence[JobRow]) -> None:
    header = ("job", "cursor", "lag", "last run", "status", "calls", "cost")
    cells = [
        (
            one_line(row.job if row.is_on else f"{row.job} (off)", 24),
            "-" if row.cursor < 0 else f"{row.cursor:,}",
            f"{row.lag:,}",
            "never" if row.at is None else short_time(row.at),
            row.status or "-",
            f"{row.calls:,}",
            dollars(row.cost_usd),
        )
        for row in rows
    ]
    listing = [(line, Text(one_line(row.why, 76), style="dim") if row.why else None) for line, row in zip(cells, rows, strict=True)]
    print_listing(console(), header, listing, frozenset({"cursor", "lag", "calls", "cost"}))


_MOST_RUNS = 50


class ShownHook(Struct, frozen=True):
    """One row of `pal hooks`; a hook of a project that is not trusted does not run."""

    name: str
    moment: str
    tool: str
    seconds: float
    command: str
    origin: str
    trusted: bool


class ShownRun(Struct, frozen=True):
    """One row of `pal hooks ID`."""

    event: int
    at: str
    hook: str
    moment: str
    call_id: str
    exit: int | None
    took_ms: int
    blocked: bool
    failure: str
    text: str


@click.command(epilog="\b\nExamples:\n  pal hooks\n  pal hooks last --json")
@click.argument("session", default="", metavar="[ID]", shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(1, 10_000), default=_MOST_RUNS, show_default=True, metavar="N", help="Print at most N runs.")
@json_option
def hooks(*, session: str, limit: int, as_json: bool) -> None:
    """List the hooks of your configuration and of this project, or with ID the newest runs of hooks in that session.

    A hook is declared by a table [[hooks]] in config.toml: moment, command, and perhaps tool, seconds and name.
    Those of a project run only after `pal trust`.
    """
    if session:
        _show_runs(session, limit, as_json=as_json)
        return
    rows = _declared()
    if as_json:
        emit(rows)
        return
    columns = Columns("hook", "moment", "tool", "origin", "command", keep=("hook", "moment"))
    for row in rows:
        origin = row.origin if row.trusted else f"{row.origin}, not trusted"
        columns.add_row(one_line(row.name, 30), row.moment, one_line(row.tool, 20), origin, one_line(row.command, 60))
    if rows:
        console().print(columns)
    else:
        click.echo("no hooks are declared; `pal hooks --help` says how")


def _declared() -> list[ShownHook]:
    home, folder = find_home(), working_folder()
    rows = [_hook_row(hook, "user", trusted=True) for hook in settings_of(home).config.hooks]
    if folder is not None:
        trust = trust_of(home, folder)
        rows += [_hook_row(hook, "project", trusted=trust.trusts(command)) for hook, command in project_hooks(folder, config_path(home))]
    return rows


def _hook_row(hook: HookConfig, origin: str, *, trusted: bool) -> ShownHook:
    return ShownHook(hook.called, hook.moment, hook.tool, hook.seconds, hook.command, origin, trusted)


def _show_runs(word: str, limit: int, *, as_json: bool) -> None:
    runs: list[ShownRun] = []
    with open_log(find_session(find_home(), word)) as log:
        for event in log.events():
            body = event.body
            if isinstance(body, HookRan):
                said = (body.exit, body.took_ms, body.blocked, body.failure, body.text)
                runs.append(ShownRun(event.seq, iso_time(event.at), body.hook, body.moment, body.call_id, *said))
    runs = runs[-limit:]
    if as_json:
        emit(runs)
        return
    columns = Columns("event", "hook", "moment", "exit", "ms", "outcome", right=("event", "exit", "ms"), keep=("hook", "moment"))
    for run in runs:
        outcome = run.failure or (f"blocked: {run.text}" if run.blocked else run.text)
        code = "-" if run.exit is None else str(run.exit)
        columns.add_row(str(run.event), one_line(run.hook, 30), run.moment, code, str(run.took_ms), one_line(outcome, 80))
    if runs:
        console().print(columns)
    else:
        click.echo("no hook has run in this session")


@click.command(epilog="\b\nExamples:\n  pal agents last\n  pal show SESSION-OF-A-SUB-AGENT")
@click.argument("session")
@json_option
def agents(*, session: str, as_json: bool) -> None:
    """Show a session and the sub-agents below it: nickname, role, state and cost.

    Each has a session of its own, which the other commands take too. The cost is that of its own calls; the sum of all is
    what the tree cost. The state is the one that the parent has recorded last; it is `unknown` if a sub-agent was running
    when the process of its parent ended, for example in a crash.
    """
    home = find_home()
    found = family_of(home, find_session(home, session).session)
    if as_json:
        emit([asdict(member) | {"usage": asdict(member.usage)} for member in found])
    else:
        _print_agents(found)


def _print_agents(members: tuple[FamilyMember, ...]) -> None:
    rows = Columns("session", "nickname", "role", "state", "tokens", "cost", right=("tokens", "cost"), keep=("session",))
    top = members[0].depth
    for member in members:
        name = f"{'  ' * (member.depth - top)}{plain(member.nickname) or '-'}"
        cells = (member.session, one_line(name, 40), one_line(member.role or "-", 20), member.state or "-")
        rows.add_row(*cells, short(member.usage.total), dollars(member.cost_usd))
    screen = console()
    screen.print(rows)
    if any(member.state == UNKNOWN for member in members):
        click.echo("unknown: it was running, and the process of its parent has ended; resuming the parent records how it ended")
    total = total_usd(member.cost_usd for member in members)
    click.echo(f"{counted(len(members) - 1, 'sub-agent')}, {cost_text(total)} in all")
