"""`pal context`: what fills the model's window."""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from string import ascii_uppercase
from typing import cast, get_args

import click
import msgspec
from rich.text import Text

from palimpsest.apps.cli.look.window_lines import latest_limits, share_left, window_lines
from palimpsest.apps.cli.opening.counting import budget_of, count_of, profile_of
from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import cards_of, open_log, session_argument, warn_of_stand_in
from palimpsest.apps.cli.opening.settings import settings_of
from palimpsest.apps.cli.output.tables import Columns, console
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.format.texts import percent_of
from palimpsest.core.items import Value
from palimpsest.core.tokens.budget import Census, RowForm, census, window_rows
from palimpsest.engine.tool_counts import known_count

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
