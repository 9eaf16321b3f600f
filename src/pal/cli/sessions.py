"""The command `pal sessions`: the list with the newest first, the options that choose sessions, and the size of each."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import reduce, wraps
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pal.cli.command_line import FINDINGS
from pal.cli.logs import cards_of, open_log, refresh_index, window_of
from pal.cli.opening import SessionLocation, expand_path, find_home, find_session, not_empty, short_ids
from pal.cli.output import emit, json_option, short_time
from pal.cli.tables import Columns, console, one_line
from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.core.ports import CountedContext, Index, LogStat, SessionRow
from palimpsest.core.text import dollars, iso_time, percent_of, whole_number
from palimpsest.stores.home import Home
from palimpsest.wire.models import ModelCard, PriceBook, total_usd

# Profiles that count what was reported as it is: that of the engine, which also counts imported sessions.
_PLAINLY_COUNTED: Final = frozenset({"", "palimpsest"})


def with_contexts(home: Home, index: Index, rows: Sequence[SessionRow], cards: tuple[ModelCard, ...]) -> list[SessionRow]:
    """Return the rows with what `pal context` counts as `counted`; `None` if the log cannot be read.

    A log is opened only if the index cannot tell, and what is counted then is kept in the index.
    """
    has_forks = any(row.base is not None for row in rows)
    stats = {stat.session: stat for stat in home.store.stats()} if has_forks else {}
    bases = {row.id: row.base.session for row in index.list(refresh=False) if row.base is not None} if has_forks else {}
    card_digest = blake2b(msgspec.json.encode(cards), digest_size=16).hexdigest()
    found: list[SessionRow] = []
    new: list[SessionRow] = []
    for row in rows:
        rules = card_digest + _base_stats(row.id, bases, stats)
        if row.counted is not None and row.counted.rules == rules:
            found.append(row)
        elif row.context is not None and row.profile in _PLAINLY_COUNTED:
            found.append(replace(row, counted=CountedContext(row.context, window_of(row.model, cards), rules)))
        else:
            found.append(replace(row, counted=_counted(home, row.id, rules, cards)))
            new += found[-1:]
    if new:
        # A list is right without it, and the next one tries again.
        with suppress(StoreError):
            index.keep_counts(new)
    return found


def _base_stats(session: str, bases: Mapping[str, str], stats: Mapping[str, LogStat]) -> str:
    """Return size and time of the last change of each log that a fork continues, whose items are in its view too."""
    known: list[str] = []
    seen = {session}
    while (base := bases.get(session)) is not None and base not in seen:
        seen.add(base)
        known.append(f" {stats[base].size}@{stats[base].changed}" if base in stats else " -")
        session = base
    return "".join(known)


def _counted(home: Home, session: str, rules: str, cards: tuple[ModelCard, ...]) -> CountedContext | None:
    from pal.cli.counting import (
        budget_of,  # loads the engine, which most lists do not need
        view_tokens,
    )
    from palimpsest.policies.named import PROFILES

    try:
        location = find_session(home, session)
        with open_log(location) as log:
            tokens, window = view_tokens(log.view, log, location.blobs, cards), budget_of(log.view, cards).window
            # The code of a profile that is not ours may count otherwise next time.
            is_lasting = log.view.profile in {"", *PROFILES}
    except PalimpsestError:
        return None
    return CountedContext(tokens, window, rules if is_lasting else "")


_UNITS_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class SessionFilter(Struct, frozen=True):
    """Conditions that a session must meet; an empty one is always met. `since` and `before` are milliseconds since 1970."""

    cwd: str = ""
    since: int = 0
    before: int = 0
    origin: str = ""
    model: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it lets every session pass."""
        return self == SessionFilter()

    def matching(self, rows: Iterable[SessionRow]) -> list[SessionRow]:
        """Return the rows that meet all conditions, in their order."""
        path = expand_path(self.cwd)
        folders = (self.cwd, str(path.absolute()), str(path.resolve())) if self.cwd else ()
        origin, model = self.origin.casefold(), self.model.casefold()
        return [
            row
            for row in rows
            if (not folders or _is_within(row.cwd, folders))
            and row.updated >= self.since
            and (not self.before or row.updated < self.before)
            and (not origin or row.origin.casefold() == origin)
            and row.model.casefold().startswith(model)
        ]


def _is_within(cwd: str, folders: tuple[str, ...]) -> bool:
    return any(cwd == folder or cwd.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


class _When(click.ParamType[int]):
    """A date or time as ISO 8601 writes it, local if it names no zone, or an age: 90m, 12h, 7d, 2w."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970."""
        if isinstance(value, int):
            return value
        count, unit = whole_number(value[:-1]), value[-1:]
        if count is not None and unit in _UNITS_MS:
            return find_home().clock.now() - count * _UNITS_MS[unit]
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is neither a date such as 2026-03-31 nor an age such as 12h, 7d or 2w", param, ctx)


_OPTIONS: Final = (
    click.option("--cwd", default="", callback=not_empty, metavar="DIR", help="Only sessions of this folder and of those below it."),
    click.option("--since", type=_When(), default=0, metavar="WHEN", help="Only with events since a date, or an age: 12h, 7d, 2w."),
    click.option("--before", type=_When(), default=0, metavar="WHEN", help="Only with no event since a date, or for an age: 12h, 7d, 2w."),
    click.option(
        "--origin", default="", callback=not_empty, metavar="NAME", help="Only sessions of this program: palimpsest, claude-code, codex, …"
    ),
    click.option("--model", default="", callback=not_empty, metavar="NAME", help="Only sessions whose model has this name or begins so."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `cwd`, `since`, `before`, `origin` and `model`, as one argument `chosen` of type `SessionFilter`."""

    @wraps(command)
    def with_filter(*, cwd: str, since: int, before: int, origin: str, model: str, **others: Any) -> Any:
        return command(chosen=SessionFilter(cwd, since, before, origin, model), **others)

    # Decorators apply from the last to the first, so that the help lists them in order.
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), with_filter)


_DEFAULT_LIMIT = 20
_FOLDER_COLUMNS = 16
_COLUMNS: Final = ("id", "folder", "when", "turns", "context", "cost", "title")
_SORTS: Final = ("updated", "created", "turns", "context", "tokens", "cost", "title")


class SessionCost(NamedTuple):
    """US dollars of a session with all sub-agents below it, and of its own calls alone; `None` if they are not known."""

    usd: float | None
    own_usd: float | None


SessionCosts: TypeAlias = Mapping[str, SessionCost]


@click.command(epilog="\b\nExamples:\n  pal sessions --limit 5\n  pal sessions --cwd . --since 7d --sort cost")
@filter_options
@click.option("--sort", type=click.Choice(_SORTS), default="updated", show_default=True, help="Largest or newest first; titles from A.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help=f"List at most N sessions; default {_DEFAULT_LIMIT}, with --json all.",
)
@click.option("--all", "everything", is_flag=True, help="List all sessions, also those of sub-agents.")
@click.option("--plain", "is_plain", is_flag=True, help="Print the list also on a terminal, without a picker.")
@json_option
def sessions(*, chosen: SessionFilter, sort: str, limit: int | None, everything: bool, is_plain: bool, as_json: bool) -> None:
    """List sessions, the one with the newest event first; the first row is the session that `last` names.

    On a terminal, type to filter the list; Enter goes on with a session, Esc leaves the list on the screen. An id is shown by its
    end, which every command takes. The cost of a session is that with its sub-agents: `unknown` where a price is not known, `$1.20+?`
    where that of a sub-agent is not. That of a session of the gateway is followed by what it would have been without.
    Sessions of sub-agents are listed only with --all. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as index:
        complete_index = refresh_index(index)
        listed = index.list(refresh=False)
        rows = chosen.matching(listed)
        children = 0 if everything else sum(row.opener is not None for row in rows)
        cards = cards_of(home)
        damaged = {path for path, _ in index.faults()}
        costs = session_costs([row_as_opened(home, row) if row.path in damaged else row for row in listed], cards)
        rows = [row for row in rows if everything or row.opener is None]
        rows = _sorted(with_contexts(home, index, rows, cards) if sort == "context" else rows, sort, costs)
        count = len(rows)
        if limit is not None or not (everything or as_json):
            rows = rows[: limit or _DEFAULT_LIMIT]
        if not as_json:
            rows = with_contexts(home, index, rows, cards)
    if as_json:
        emit([as_builtins(row, costs) | _without_gateway(home, row) for row in rows])
    elif not rows and not complete_index:
        click.echo("no session is in the index yet; try again in a moment", err=True)
    elif not rows:
        click.echo("no sessions yet; `pal demo` shows what pal can do" if chosen.is_empty else "no session matches; see `pal sessions`")
    else:
        _show(home, rows, costs, is_plain=is_plain)
        _print_left_out(count - len(rows), children)
    if not complete_index:
        click.get_current_context().exit(FINDINGS)


def _print_left_out(more: int, children: int) -> None:
    if more:
        click.echo(f"… and {more:,} more: --limit N or --all", err=True)
    if children:
        click.echo(f"… and {children:,} of sub-agents: --all", err=True)


def _sorted(rows: Sequence[SessionRow], sort: str, costs: SessionCosts) -> list[SessionRow]:
    """Return the rows in an order of `_SORTS`; rows that are alike in it stay newest first."""
    if sort == "title":
        return sorted(rows, key=lambda row: _session_title(row).casefold())
    figures: dict[str, Callable[[SessionRow], float]] = {
        "updated": lambda row: row.updated,
        "created": lambda row: row.created,
        "turns": lambda row: row.turns,
        "context": lambda row: row.counted.tokens if row.counted is not None else 0,
        "tokens": lambda row: row.tokens,
        "cost": lambda row: costs[row.id].usd or 0,
    }
    return sorted(rows, key=figures[sort], reverse=True)


def row_as_opened(home: Home, row: SessionRow) -> SessionRow:
    """Return the row of a damaged log with what counts where the log is opened, and without events if it cannot be."""
    try:
        with open_log(SessionLocation(row.id, home.store, home.blobs, home.clock)) as log:
            return replace(row, ledger=log.ledger, children=log.children)
    except PalimpsestError:
        return replace(row, events=0)


def session_costs(rows: Sequence[SessionRow], cards: tuple[ModelCard, ...]) -> SessionCosts:
    """Return what sessions cost, by their id."""
    book, by_id = PriceBook(cards), {row.id: row for row in rows}
    own = {row.id: _own_usd(row, book) for row in rows}
    # The sub-agents that a session names, and those that name it; of those without a file it may have recorded what they had spent.
    below = {row.id: {child.session: child.recorded_usd for child in row.children} for row in rows}
    for row in rows:
        if row.opener is not None:
            below.setdefault(row.opener.session, {}).setdefault(row.id, None)

    def family(session: str, above: frozenset[str]) -> Iterator[float | None]:
        yield own[session]
        for child, recorded in below[session].items():
            if child not in by_id or not by_id[child].events:
                yield recorded
            elif child not in above:
                # Files that name each other must end too.
                yield from family(child, above | {child})

    return {row.id: SessionCost(total_usd(family(row.id, frozenset({row.id}))), own[row.id]) for row in rows}


def _own_usd(row: SessionRow, book: PriceBook) -> float | None:
    """What a session itself cost. Nothing is known of a log that cannot be read, or whose first call is open."""
    is_known = row.events and (row.ledger.usage.total or not row.ledger.open)
    return book.ledger_usd(row.ledger) if is_known else None


def as_builtins(row: SessionRow, costs: SessionCosts) -> dict[str, object]:
    """Return a session as `--json` prints it."""
    names = ("id", "title", "origin", "cwd", "model", "profile", "created", "updated", "events", "turns", "tokens")
    shape: dict[str, object] = {name: getattr(row, name) for name in names}
    shape |= {"created": iso_time(row.created), "updated": iso_time(row.updated), "path": row.path}
    shape |= {"cost_usd": costs[row.id].usd, "own_usd": costs[row.id].own_usd}
    if row.base is not None:
        shape["base"] = {"session": row.base.session, "seq": row.base.seq}
    if row.opener is not None:
        shape["parent"] = row.opener.session
    return shape


def _show(home: Home, rows: Sequence[SessionRow], costs: SessionCosts, *, is_plain: bool) -> None:
    """Print the list; on a terminal let the user pick a session and go on with it."""
    words = short_ids([stat.session for stat in home.store.stats()])
    table = [_cells(home, row, words.get(row.id, row.id), costs[row.id]) for row in rows]
    if not is_plain and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb":
        from pal.cli.picker import pick  # the terminal library takes 100 ms to load

        picked = pick("Which session?", [(row.id, "  ".join(cells)) for row, cells in zip(rows, _aligned(table), strict=True)])
        if picked is not None:
            from pal.cli.main import cli  # the group imports this module

            cli.main(["chat", "--resume", picked])
    columns = Columns(*_COLUMNS, right=("turns", "context", "cost"), keep=("id", "when"))
    for row, cells in zip(rows, table, strict=True):
        columns.add_row(*cells, style="" if row.title and row.opener is None else "dim")
    console().print(columns)


def _aligned(table: Sequence[Sequence[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(cells, widths, strict=True)] for cells in table]


def _cells(home: Home, row: SessionRow, word: str, cost: SessionCost) -> tuple[str, ...]:
    folder = one_line(row.cwd.rstrip("/").rpartition("/")[2] or row.cwd or "-", _FOLDER_COLUMNS)
    price = "-" if cost.usd == 0 and not row.ledger.calls else dollars(cost.usd)
    if cost.usd is None and cost.own_usd:
        price = f"{dollars(cost.own_usd)}+?"
    if without := _without_gateway(home, row):
        price = f"{price} of {dollars(without['usd_without'])}"
    share = "-" if row.counted is None else f"{percent_of(row.counted.tokens, row.counted.window)}%"
    return word, folder, short_time(row.updated), f"{row.turns:,}", share, price, one_line(_session_title(row), 76)


def _without_gateway(home: Home, row: SessionRow) -> dict[str, float | None]:
    """Return what a session of the gateway would have cost without it, as `--json` prints it; nothing of other sessions."""
    if row.origin != "gateway":
        return {}
    from palimpsest.audit.two_bills import newest_bill  # few lists have such a session

    try:
        # Its id is known, and to look for it would list all sessions again for each.
        with open_log(SessionLocation(row.id, home.store, home.blobs, home.clock)) as log:
            bill = newest_bill(log)
    except PalimpsestError:
        return {}
    return {} if bill is None else {"usd_without": bill.usd_without}


def _session_title(row: SessionRow) -> str:
    if row.opener is not None:
        return f"(sub-agent of {row.opener.session}) {row.title}".rstrip()
    if row.title:
        return row.title
    return "(untitled)" if row.base is None else f"(fork of {row.base.session} at event {row.base.seq})"
