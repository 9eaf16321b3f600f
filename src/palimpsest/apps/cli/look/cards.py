"""`pal cards`: the models that are known, with window and prices."""

import click
import msgspec

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import find_home
from palimpsest.apps.cli.opening import own_cards_of
from palimpsest.apps.cli.output import console, emit, json_option, one_line, short, table
from palimpsest.wire.models.cards import CARDS, ModelCard


@click.command(epilog="\b\nExample:\n  pal cards")
@json_option
def cards(*, as_json: bool) -> None:
    """List known models: window, reply, and dollars per million tokens.

    Cards of your own stand in cards.toml of the home folder, one [cards.NAME] table each; `like = "…"` starts from a known one.
    Any other model of a compatible server is openai-compatible/NAME, and one on this machine local/NAME.
    When cards.toml cannot be read, the line says where (exit code 1).
    """
    home = find_home()
    mine = own_cards_of(home)
    own = {each.name for each in mine or ()}
    known = CARDS if mine is None else home.cards()
    if as_json:
        emit([msgspec.to_builtins(each) | {"prices": _prices(each.prices), "own": each.name in own} for each in known])
    else:
        _print(known, own)
    if mine is None:
        click.get_current_context().exit(FINDINGS)


def _print(known: tuple[ModelCard, ...], own: set[str]) -> None:
    names = ("model", "wire", "window", "reply", "in", "read", "write", "out")
    rows = table(*names, right=("window", "reply", "in", "read", "write", "out"), keep=("model",))
    for each in known:
        prices = each.prices
        costs = (_price(prices.input), _price(prices.cache_read), _price(prices.cache_write), _price(prices.output))
        name = one_line(each.name, 30) + (" (yours)" if each.name in own else "")
        rows.add_row(name, each.wire, short(each.window), short(each.reply), *costs)
    console().print(rows)


def _prices(prices: object) -> dict[str, float | None]:
    names = ("input", "output", "cache_read", "cache_write", "cache_write_long")
    return {name: getattr(prices, name) for name in names}


def _price(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:g}"
