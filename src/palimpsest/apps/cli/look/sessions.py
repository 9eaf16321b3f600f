"""`pal sessions`: a list of all sessions, newest first."""

from collections.abc import Sequence

import click
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import AnyHome, find_home
from palimpsest.apps.cli.opening.logs import cards_of, refresh_index
from palimpsest.apps.cli.output.tables import console, one_line, print_listing
from palimpsest.apps.cli.output.values import emit, json_option, short_time
from palimpsest.apps.shown_text import dollars, short
from palimpsest.core.errors import BadInput
from palimpsest.core.ports import SessionRow
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import ledger_cost

_DEFAULT_LIMIT = 20


@click.command(epilog="\b\nExample:\n  pal sessions --limit 5")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help=f"List at most N sessions; default {_DEFAULT_LIMIT}, with --json all.",
)
@click.option("--all", "everything", is_flag=True, help="List all sessions, also those of sub-agents.")
@json_option
def sessions(*, limit: int | None, everything: bool, as_json: bool) -> None:
    """List sessions, newest first.

    Sessions of sub-agents are listed only with --all. Logs that cannot be read are named on standard error (exit code 1).
    """
    home = find_home()
    with home.index() as index:
        complete_index = refresh_index(index)
        found = index.list(refresh=False)
    _report(home, found, limit, everything=everything, as_json=as_json)
    if not complete_index:
        click.get_current_context().exit(FINDINGS)


def _report(home: AnyHome, found: Sequence[SessionRow], limit: int | None, *, everything: bool, as_json: bool) -> None:
    children = 0 if everything else sum(row.opener is not None for row in found)
    if not everything:
        found = [row for row in found if row.opener is None]
    count = len(found)
    if limit is not None or not (everything or as_json):
        found = found[: limit or _DEFAULT_LIMIT]
    cards = cards_of(home)
    if as_json:
        emit([as_builtins(row, cost_of(row, cards)) for row in found])
        return
    if not found:
        click.echo("no sessions yet; `pal demo` shows what pal can do")
        return
    _print(found, cards)
    if count > len(found):
        click.echo(f"… and {count - len(found):,} more: --limit N or --all")
    if children:
        click.echo(f"… and {children:,} of sub-agents: --all")


def cost_of(row: SessionRow, cards: tuple[ModelCard, ...]) -> float | None:
    """Return the cost of a session in dollars; None if one of its models has no card."""
    try:
        return ledger_cost(row.usage.items(), cards).total
    except BadInput:
        return None


def as_builtins(row: SessionRow, cost: float | None) -> dict[str, object]:
    """Return a session as `--json` prints it."""
    names = ("id", "title", "origin", "cwd", "model", "profile", "created", "updated", "events", "turns", "tokens")
    shape: dict[str, object] = {name: getattr(row, name) for name in names}
    shape |= {"cost_usd": cost, "path": row.path}
    if row.base is not None:
        shape["base"] = {"session": row.base.session, "seq": row.base.seq}
    if row.opener is not None:
        shape["parent"] = row.opener.session
    return shape


def _print(found: Sequence[SessionRow], cards: tuple[ModelCard, ...]) -> None:
    rows: list[tuple[Sequence[str], Text | None]] = []
    for row in found:
        price = dollars(cost_of(row, cards)) if row.usage else "-"
        cells = (row.id, short_time(row.updated), one_line(row.model or "-", 20), f"{row.events:,}", short(row.tokens), price)
        rows.append((cells, Text(one_line(_title(row), 76), style="" if row.title and row.opener is None else "dim")))
    header = ("session", "when", "model", "events", "tokens", "cost")
    print_listing(console(), header, rows, frozenset({"events", "tokens", "cost"}))


def _title(row: SessionRow) -> str:
    if row.opener is not None:
        return f"(sub-agent of {row.opener.session}) {row.title}".rstrip()
    if row.title:
        return row.title
    return "(untitled)" if row.base is None else f"(fork of {row.base.session} at event {row.base.seq})"
