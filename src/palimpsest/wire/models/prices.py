"""Dollars of model calls: the only place where tokens become money, and where an unknown price is `None`, never zero."""

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import add
from typing import Final, Self

from msgspec.structs import asdict, astuple

from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.tokens.spending import Ledger, Spending
from palimpsest.wire.models.cards import CARDS, ModelCard, Prices, find_card, parse_model_name

_PER: Final = 1_000_000
_DAY_SECONDS: Final = 86_400
# The day before the year 10000; a clock that runs wild must not make a session unreadable.
_LAST_DAY: Final = 2_932_896


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


FREE: Final = Cost()


class Tariff(Value, frozen=True):
    """The known prices of a model on one day."""

    prices: Prices

    @classmethod
    def of(cls, card: ModelCard | None, day: str = "9999") -> Self | None:
        """The tariff of a model on a day (ISO 8601; default: the newest); `None` if its prices are not known."""
        prices = None if card is None else card.prices.on(day)
        return cls(prices) if prices is not None and prices.are_known else None

    def bill(self, usage: Usage, prompt: int | None = None) -> Cost:
        """What one call costs, or several whose prompts are all as long as `prompt` to `PRICE_STEPS` (default: that of the usage)."""
        listed = self.prices
        size = usage.prompt if prompt is None else prompt
        prices = listed.long if listed.long is not None and size > listed.long.above else listed
        write = prices.input if prices.cache_write is None else prices.cache_write
        return Cost(
            usage.input * prices.input / _PER,
            usage.cache_read * (prices.input if prices.cache_read is None else prices.cache_read) / _PER,
            usage.cache_write * write / _PER,
            usage.cache_write_long * (write if prices.cache_write_long is None else prices.cache_write_long) / _PER,
            usage.output * prices.output / _PER,
        )


def cost(usage: Usage, model: ModelCard | Prices) -> Cost | None:
    """The cost of one call at the newest prices of a model; `None` if they are not known."""
    prices = model if isinstance(model, Prices) else model.prices
    return Tariff(prices).bill(usage) if prices.are_known else None


def simulated_cost(usage: Usage, model: ModelCard | Prices) -> Cost:
    """The cost of a simulated call, which is nothing without known prices: for callers that have looked whether there are any."""
    return Tariff(model if isinstance(model, Prices) else model.prices).bill(usage)


def priced_card(model: str, asked: str, cards: tuple[ModelCard, ...]) -> ModelCard | None:
    """The card that a call is billed by: that of the model that replied, or of the asked one if the reply is its or names no known one.

    Prices that the user wrote for the asked model hold whatever model a proxy names.
    """
    called = find_card(asked, cards) if asked else None
    if called is not None and model in ("", asked, called.api_name):
        return called
    if called is not None and Tariff.of(called) is not None and not any(_is_listed(called.prices, known.prices) for known in CARDS):
        return called
    if called is not None and parse_model_name(model).card == parse_model_name(called.api_name or called.name).card:
        return called
    replied = find_card(model, cards) if model else None
    return called if called is not None and Tariff.of(replied) is None else replied


def _is_listed(prices: Prices, listed: Prices | None) -> bool:
    """Whether prices are those of a card, or were so before a change."""
    while listed is not None and listed != prices:
        listed = listed.before
    return listed is not None


class PriceBook:
    """The tariffs of all known models, each looked up once."""

    def __init__(self, cards: Iterable[ModelCard] = CARDS) -> None:
        self._cards = tuple(cards)
        self._known: dict[tuple[str, str, int], Tariff | None] = {}

    def ledger_usd(self, ledger: Ledger) -> float | None:
        """Dollars of a whole log; also `None` if it has replies and none of them reports usage, as in files of some programs."""
        return None if ledger.calls and not ledger.usage.total else self.usd(ledger.spendings)

    def usd(self, spendings: Iterable[Spending]) -> float | None:
        """Dollars of calls as a ledger has them, each at its own price; `None` if the price or the usage of one of them is unknown."""
        bills = map(self.bill, spendings)
        return total_usd(None if bill is None else bill.total for bill in bills)

    def bill(self, spending: Spending) -> Cost | None:
        """What calls that one price holds for cost; `None` if their price or the usage of one of them is unknown."""
        if spending.unmeasured:
            return None
        if not spending.usage.total:
            # Lines of other programs that are no calls, such as their own error messages.
            return FREE
        tariff = self._tariff(spending.model, spending.asked, spending.day)
        return None if tariff is None else tariff.bill(spending.usage, spending.above + 1)

    def _tariff(self, model: str, asked: str, day: int) -> Tariff | None:
        key = (model, asked, day)
        if key not in self._known:
            date = datetime.fromtimestamp(min(day, _LAST_DAY) * _DAY_SECONDS, UTC).date().isoformat()
            self._known[key] = Tariff.of(priced_card(model, asked, self._cards), date)
        return self._known[key]


def total_usd(parts: Iterable[float | None]) -> float | None:
    """The sum of amounts; `None` if one of them is unknown."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
