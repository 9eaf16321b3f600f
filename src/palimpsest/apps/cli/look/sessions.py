"""`pal sessions`: a list of sessions, newest first, one line each, and a picker on a terminal."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import click

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.look.finding.contexts import with_contexts
from palimpsest.apps.cli.look.finding.session_filter import SessionFilter, filter_options
from palimpsest.apps.cli.opening.home import AnyHome, SessionLocation, find_home, short_ids
from palimpsest.apps.cli.opening.logs import cards_of, open_log, refresh_index
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option, short_time
from palimpsest.apps.shown_text import dollars
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.format.texts import iso_time, percent_of
from palimpsest.core.ports import SessionRow
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import PriceBook, total_usd

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
    end, which every command takes. The cost of a session is that with its sub-agents; `unknown` where a price is not known. That of
    a session of the gateway is followed by what it would have been without.
    Sessions of sub-agents are listed only with --all. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as index:
        complete_index = refresh_index(index)
        listed = index.list(refresh=False)
        rows = chosen.matching(listed)
        children = 0 if everything else sum(row.opener is not None for row in rows)
        cards = cards_of(home)
        costs = session_costs(listed, cards)
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
        return sorted(rows, key=lambda row: _title(row).casefold())
    figures: dict[str, Callable[[SessionRow], float]] = {
        "updated": lambda row: row.updated,
        "created": lambda row: row.created,
        "turns": lambda row: row.turns,
        "context": lambda row: row.counted.tokens if row.counted is not None else 0,
        "tokens": lambda row: row.tokens,
        "cost": lambda row: costs[row.id].usd or 0,
    }
    return sorted(rows, key=figures[sort], reverse=True)


def session_costs(rows: Sequence[SessionRow], cards: tuple[ModelCard, ...]) -> SessionCosts:
    """Return what sessions cost, by their id."""
    book, below = PriceBook(cards), dict[str, list[str]]()
    # Of a session whose first call is open nothing was reported yet.
    own = {row.id: None if row.ledger.open and not row.ledger.usage.total else book.ledger_usd(row.ledger) for row in rows}
    for row in rows:
        if row.opener is not None:
            below.setdefault(row.opener.session, []).append(row.id)

    def family(session: str, above: frozenset[str]) -> Iterator[float | None]:
        yield own[session]
        for child in below.get(session, ()):
            # Files that name each other must end too.
            if child not in above:
                yield from family(child, above | {child})

    return {row.id: SessionCost(total_usd(family(row.id, frozenset({row.id}))), own[row.id]) for row in rows}


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


def _show(home: AnyHome, rows: Sequence[SessionRow], costs: SessionCosts, *, is_plain: bool) -> None:
    """Print the list; on a terminal let the user pick a session and go on with it."""
    words = short_ids([stat.session for stat in home.store.stats()])
    table = [_cells(home, row, words.get(row.id, row.id), costs[row.id].usd) for row in rows]
    if not is_plain and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb":
        from palimpsest.apps.cli.look.finding.picker import pick  # the terminal library takes 100 ms to load

        picked = pick("Which session?", [(row.id, "  ".join(cells)) for row, cells in zip(rows, _aligned(table), strict=True)])
        if picked is not None:
            from palimpsest.apps.cli.main import cli  # the group imports this module

            cli.main(["chat", "--resume", picked])
    columns = Columns(*_COLUMNS, right=("turns", "context", "cost"), keep=("id", "when"))
    for row, cells in zip(rows, table, strict=True):
        columns.add_row(*cells, style="" if row.title and row.opener is None else "dim")
    console().print(columns)


def _aligned(table: Sequence[Sequence[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(cells, widths, strict=True)] for cells in table]


def _cells(home: AnyHome, row: SessionRow, word: str, usd: float | None) -> tuple[str, ...]:
    folder = one_line(row.cwd.rstrip("/").rpartition("/")[2] or row.cwd or "-", _FOLDER_COLUMNS)
    price = "-" if usd == 0 and not row.ledger.calls else dollars(usd)
    if without := _without_gateway(home, row):
        price = f"{price} of {dollars(without['usd_without'])}"
    share = "-" if row.counted is None else f"{percent_of(row.counted.tokens, row.counted.window)}%"
    return word, folder, short_time(row.updated), f"{row.turns:,}", share, price, one_line(_title(row), 76)


def _without_gateway(home: AnyHome, row: SessionRow) -> dict[str, float | None]:
    """Return what a session of the gateway would have cost without it, as `--json` prints it; nothing of other sessions."""
    if row.origin != "gateway":
        return {}
    from palimpsest.audit.pricing.two_bills import newest_bill  # few lists have such a session

    try:
        # Its id is known, and to look for it would list all sessions again for each.
        with open_log(SessionLocation(row.id, home.store, home.blobs, home.clock)) as log:
            bill = newest_bill(log)
    except PalimpsestError:
        return {}
    return {} if bill is None else {"usd_without": bill.usd_without}


def _title(row: SessionRow) -> str:
    if row.opener is not None:
        return f"(sub-agent of {row.opener.session}) {row.title}".rstrip()
    if row.title:
        return row.title
    return "(untitled)" if row.base is None else f"(fork of {row.base.session} at event {row.base.seq})"
