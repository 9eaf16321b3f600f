"""`pal context`: what fills the model's window."""

from itertools import zip_longest

import click
import msgspec
from rich.text import Text

from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.look.grid import BUFFER_NAME, FREE_NAME, ROW, CategoryTokens, GridForm, grid, head_line, share_line
from palimpsest.apps.cli.opening import budget_of, cards_of, counter_of, open_log, session_argument, tools_tokens
from palimpsest.apps.cli.output import console, emit, json_option, plain, table
from palimpsest.core.tokens.budget import Census, census

_FORMS: dict[str, GridForm] = {"documents": "documents", "measured": "2.1.325"}
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green", "bright_yellow")
_LARGEST = 5


@click.command(epilog="\b\nExample:\n  pal context last --form documents")
@session_argument
@click.option("--form", type=click.Choice(list(_FORMS)), default="measured", help="Round cells as documented, or as measured.")
@click.option("--at", type=int, metavar="SEQ", help="Show the state after event SEQ.")
@click.option("--window", type=click.IntRange(min=1), metavar="TOKENS", help="Assume a window of this size.")
@json_option
def context(*, session: str, form: str, at: int | None, window: int | None, as_json: bool) -> None:
    """Show what fills the model's window: tokens by kind and by source, free space, and the reserved buffer."""
    home = find_home()
    found = find_session(home, session)
    with open_log(found, whole=True) as log:
        view = log.view if at is None else log.state_at(at).view
        counter = counter_of(view, log.ledger.calibration)
    counted = census(view, counter, budget_of(view.model, cards_of(home), window), tools_tokens(view, found.blobs, counter))
    if as_json:
        emit(msgspec.to_builtins(counted))
        return
    print_census(counted, view.model or "no model yet", _FORMS[form])


def print_census(counted: Census, model: str, form: GridForm = "2.1.325") -> None:
    """Print the grid with its legend, tokens by source, and the largest items."""
    screen = console()
    shares = [CategoryTokens(kind, tokens) for kind, tokens in sorted(counted.by_kind.items(), key=lambda pair: -pair[1]) if tokens]
    colours = {share.name: _COLOURS[number % len(_COLOURS)] for number, share in enumerate(shares)}
    rows = grid(shares, counted.window, counted.buffer, form)
    drawing = [Text.assemble(*((f"{cell.glyph} ", colours.get(cell.category, "dim")) for cell in row)) for row in rows]
    entries = (*shares, CategoryTokens(FREE_NAME, counted.free), CategoryTokens(BUFFER_NAME, counted.buffer))
    legend = [Text(share_line(share, counted.window, form), style=colours.get(share.name, "dim")) for share in entries]
    screen.print(Text(plain(head_line(model, counted.used, counted.window)), style="bold"))
    for cells, entry in zip_longest(drawing, legend, fillvalue=Text()):
        screen.print(Text.assemble(cells or " " * 2 * ROW, "  ", entry))
    if counted.by_source:
        sources = ", ".join(f"{plain(name)} {tokens:,}" for name, tokens in sorted(counted.by_source.items(), key=lambda pair: -pair[1]))
        screen.print(Text(f"by source: {sources}"))
    largest = table("largest", "kind", "tokens", right=("tokens",), keep=("largest",))
    for item in sorted(counted.items, key=lambda item: -item.tokens)[:_LARGEST]:
        largest.add_row(item.id, f"{item.kind}{' (masked)' if item.masked else ''}", f"{item.tokens:,}")
    screen.print(largest)
