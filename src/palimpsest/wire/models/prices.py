"""Dollars of one call or of many, by part of the usage."""

from collections.abc import Iterable
from operator import add
from typing import Self

from msgspec.structs import asdict, astuple

from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.wire.models.cards import CARDS, ModelCard, Prices, card

_PER = 1_000_000


class Cost(Value, frozen=True):
    """Dollars by part of `Usage`; reasoning counts as output."""

    input: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    cache_write_long: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long + self.output

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    def parts(self) -> dict[str, float]:
        """The parts by name."""
        return asdict(self)


FREE = Cost()


def cost(usage: Usage, model: ModelCard | Prices) -> Cost:
    """The cost of one call; a cache price of `None` means the input price.

    Prices for long prompts apply by the prompt of a single call, so that several calls are priced one by one and then summed.
    """
    listed = model if isinstance(model, Prices) else model.prices
    prompt = usage.input + usage.cache_read + usage.cache_write + usage.cache_write_long
    prices = listed.long if listed.long is not None and prompt > listed.long.above else listed
    write = prices.input if prices.cache_write is None else prices.cache_write
    return Cost(
        usage.input * prices.input / _PER,
        usage.cache_read * (prices.input if prices.cache_read is None else prices.cache_read) / _PER,
        usage.cache_write * write / _PER,
        usage.cache_write_long * (write if prices.cache_write_long is None else prices.cache_write_long) / _PER,
        usage.output * prices.output / _PER,
    )


def ledger_cost(calls: Iterable[tuple[str, Usage]], cards: Iterable[ModelCard] = CARDS) -> Cost:
    """The cost of several calls, each by the card of its model. Raises `BadInput` for an unknown model."""
    known = tuple(cards)
    found: dict[str, ModelCard] = {}
    total = FREE
    for name, usage in calls:
        if name not in found:
            found[name] = card(name, known)
        total += cost(usage, found[name])
    return total
