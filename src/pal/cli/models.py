"""`pal cards`: the known models with window and prices."""

import click
import msgspec

from pal.cli.command_line import FINDINGS
from pal.cli.logs import own_cards_of
from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.cli.tables import Columns, console, one_line
from pal.text import short
from palimpsest.wire.models import CARDS, ModelCard


@click.command(epilog="\b\nExample:\n  pal cards")
@json_option
def cards(*, as_json: bool) -> None:
    """List known models: window, reply, and dollars per million tokens.

    Add your own cards to cards.toml in the home folder, one [cards.NAME] table each; `like = "…"` starts from a known card.
    Name any other model of a compatible server openai-compatible/NAME, and a model on this machine local/NAME.
    Exit code 1 if cards.toml cannot be read.
    """
    home = find_home()
    own_cards = own_cards_of(home)
    own_names = {model_card.name for model_card in own_cards or ()}
    all_cards = CARDS if own_cards is None else home.cards()
    if as_json:
        emit(
            [
                msgspec.to_builtins(model_card) | {"prices": _prices(model_card.prices), "own": model_card.name in own_names}
                for model_card in all_cards
            ]
        )
    else:
        _print_cards(all_cards, own_names)
    if own_cards is None:
        click.get_current_context().exit(FINDINGS)


def _print_cards(all_cards: tuple[ModelCard, ...], own_names: set[str]) -> None:
    names = ("model", "wire", "window", "reply", "in", "read", "write", "out")
    rows = Columns(*names, right=("window", "reply", "in", "read", "write", "out"), keep=("model",))
    for model_card in all_cards:
        prices = model_card.prices
        costs = (_price(prices.input), _price(prices.cache_read), _price(prices.cache_write), _price(prices.output))
        name = one_line(model_card.name, 30) + (" (yours)" if model_card.name in own_names else "")
        rows.add_row(name, model_card.wire, short(model_card.window), short(model_card.reply), *costs)
    console().print(rows)


def _prices(prices: object) -> dict[str, float | None]:
    names = ("input", "output", "cache_read", "cache_write", "cache_write_long")
    return {name: getattr(prices, name) for name in names}


def _price(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:g}"
