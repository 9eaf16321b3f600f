"""What reading, writing and output cost beside plain input, by the card."""

from palimpsest.audit.bill import FIVE_MINUTES
from palimpsest.core.items import Value
from palimpsest.core.situation import Cache, Card


class Rates(Value, frozen=True):
    """Prices relative to that of input."""

    write: float = 1.25
    read: float = 0.1
    output: float = 5.0


def rates_of(card: Card, cache: Cache) -> Rates:
    """The rates of a card; its cache is written for as long as the newest entry lasts. A card without prices has the usual rates."""
    prices = card.prices
    if card.cache == "none":
        return Rates(1.0, 1.0, prices.output / prices.input if prices.input else 5.0)
    if not prices.input:
        return Rates(1.25 if card.cache == "breakpoints" else 1.0)
    long = card.cache == "breakpoints" and bool(cache.prefixes) and cache.prefixes[-1].ttl > FIVE_MINUTES
    write = prices.cache_write_long if long and prices.cache_write_long is not None else prices.cache_write
    read = prices.cache_read
    return Rates(
        1.0 if write is None else write / prices.input,
        1.0 if read is None else read / prices.input,
        prices.output / prices.input,
    )
