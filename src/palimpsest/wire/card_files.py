"""Parses model cards that a user wrote in TOML; errors name the key."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TypeAlias

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.wire.models import CARDS, LongPrices, ModelCard, Prices, card

_Toml: TypeAlias = Mapping[str, object]
_CARD_KEYS = frozenset(ModelCard.__struct_fields__) - {"name"} | {"like"}
_PRICE_KEYS = frozenset(Prices.__struct_fields__) - {"later"}
_LONG_PRICE_KEYS = frozenset(LongPrices.__struct_fields__)


def parse_cards(text: str, known: Iterable[ModelCard] = CARDS, *, where: str = "cards") -> tuple[ModelCard, ...]:
    """Parse one card from each `[cards.NAME]` table; `like` copies the fields of a known or earlier card.

    Raises `BadInput`, which names the key, for TOML errors, unknown or missing keys and invalid values.
    """
    try:
        tables: _Toml = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"this is not TOML: {error}", where=where) from error
    _refuse_unknown_keys(tables, frozenset({"cards"}), "", where)
    models = _table(tables.get("cards", {}), "cards", where)
    cards: list[ModelCard] = []
    for name, entry in models.items():
        earlier = (*known, *cards)
        cards.append(_parse(name, _table(entry, f"cards.{name}", where), earlier, where))
    return tuple(cards)


def _parse(name: str, table: _Toml, known: tuple[ModelCard, ...], where: str) -> ModelCard:
    key = f"cards.{name}"
    _refuse_unknown_keys(table, _CARD_KEYS, f"{key}.", where)
    prices = _prices(_table(table.get("prices", {}), f"{key}.prices", where), f"{key}.prices", where)
    fields: dict[str, object] = {}
    like = table.get("like")
    if like is not None:
        try:
            fields = msgspec.to_builtins(card(str(like), known))
        except BadInput as error:
            raise BadInput(f"the key {key}.like names no card: {error.message}", where=where) from error
    like_thinking = fields.get("thinking")
    fields |= {field: value for field, value in table.items() if field not in ("like", "prices")}
    fields["name"] = name
    if fields.get("cache") == "marks":
        # Files of version 0.1.0 have this word.
        fields["cache"] = "breakpoints"
    if isinstance(fields.get("thinking"), bool):
        # Files of version 0.2 say only whether the model thinks.
        usual = "budget" if fields.get("wire") == "anthropic" else "adaptive"
        fields["thinking"] = (like_thinking if like_thinking not in (None, "none") else usual) if fields["thinking"] else "none"
    if prices:
        is_free = prices.get("free") or (prices.get("input") == 0 and prices.get("output") == 0)
        like_prices = {} if is_free else {**_table(fields.get("prices", {}), key, where), "free": False, "later": None}
        fields["prices"] = _complete({**like_prices, **prices}, f"{key}.prices", where)
    for needed in ("wire", "provider", "window", "reply"):
        if needed not in fields:
            raise BadInput(f"the key {key}.{needed} is missing; write it, or start from a known card with `like`", where=where)
    try:
        parsed = msgspec.convert(fields, ModelCard)
    except BadInput as error:
        raise BadInput(f"the key {key}.{error.where}: {error.message}", where=where) from error
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise BadInput(f"the key {key}{path.rstrip('`')}: {problem[:1].lower()}{problem[1:]}", where=where) from error
    if parsed.window <= 0 or parsed.reply <= 0:
        raise BadInput(f"the keys {key}.window and {key}.reply must be above zero", where=where)
    return parsed


def _prices(table: _Toml, key: str, where: str) -> dict[str, object]:
    """Return prices as the file has them, checked, and those before them."""
    _refuse_unknown_keys(table, _PRICE_KEYS, f"{key}.", where)
    long = _table(table.get("long", {}), f"{key}.long", where)
    _refuse_unknown_keys(long, _LONG_PRICE_KEYS, f"{key}.long.", where)
    _refuse_prices(table, f"{key}.", where)
    _refuse_prices(long, f"{key}.long.", where)
    prices = dict(table)
    if "since" in prices:
        # TOML has dates of its own; both spellings are common.
        prices["since"] = _day(prices["since"], f"{key}.since", where)
    if "before" in prices:
        prices["before"] = _complete(
            _prices(_table(prices["before"], f"{key}.before", where), f"{key}.before", where), f"{key}.before", where
        )
    return prices


def _complete(prices: dict[str, object], key: str, where: str) -> dict[str, object]:
    """Return prices that say what input and output cost; if both cost nothing, the model is free."""
    if prices.get("free"):
        return prices
    for name in ("input", "output"):
        if name not in prices:
            raise BadInput(f"the key {key}.{name} is missing; write what both input and output cost, or 0 for a free model", where=where)
    return prices if prices["input"] or prices["output"] else {**prices, "free": True}


def _day(value: object, key: str, where: str) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise BadInput(f"the key {key} is {value}; it must be a day such as 2026-10-06", where=where) from error


def _refuse_prices(prices: _Toml, prefix: str, where: str) -> None:
    for name, dollars in prices.items():
        if isinstance(dollars, int | float) and not (math.isfinite(dollars) and dollars >= 0):
            raise BadInput(f"the key {prefix}{name} is {dollars}; it must be a number that is not negative", where=where)


def _table(value: object, key: str, where: str) -> _Toml:
    if not isinstance(value, dict):
        raise BadInput(f"the key {key} must be a table", where=where)
    return value


def _refuse_unknown_keys(table: _Toml, known: frozenset[str], prefix: str, where: str) -> None:
    for name in table:
        if name not in known:
            raise BadInput(f"the key {prefix}{name} is not known; known are {', '.join(sorted(known))}", where=where)
