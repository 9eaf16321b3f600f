"""What an edit costs once and saves on every call, under the cache rules of the model's card."""

from palimpsest.audit.bill import FIVE_MINUTES, Block, Breakpoint, Entry, Kept, Prompt, bill, prices_of, rules_of
from palimpsest.audit.prefixes import first_change, same_head
from palimpsest.audit.rates import rates_of
from palimpsest.audit.warm import Warm, warm_of
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.situation import Situation
from palimpsest.core.view import View
from palimpsest.wire.prices import cost

_PER = 1_000_000


class Price(Value, frozen=True):
    """Dollars: what the next request costs more (or less) because of an edit, and what every later one costs less."""

    usd: float = 0.0
    saved_usd_per_call: float = 0.0


def price_of(before: View, after: View, situation: Situation) -> Price:
    """The difference of two bills for the next request, with and without an edit."""
    card, counter = situation.card, situation.tokens
    saved = counter.total(before) - counter.total(after)
    now, then = next_bills(before, after, situation, saved)
    prices = prices_of(card.prices)
    rates = rates_of(card, situation.cache)
    return Price(cost(then, prices).total - cost(now, prices).total, saved * rates.read * card.prices.input / _PER)


def next_bills(before: View, after: View, situation: Situation, saved: int) -> tuple[Usage, Usage]:
    """What the next request reads, writes and sends afresh as the view is, and as an edit that saves some tokens would leave it."""
    warm = warm_of(situation)
    total = situation.used
    left = total - saved
    place = first_change(before.items, after.items) if same_head(before.head, after.head) == len(before.head) else -1
    kept = _kept(warm, situation)
    return _next(warm, total, len(before.items) + 1, kept, situation), _next(warm, max(0, left), place, kept, situation)


def _next(warm: Warm, total: int, place: int, kept: Kept, situation: Situation) -> Usage:
    """The bill of a request that is as cached up to a place: its breakpoints are the end of what is cached there, and the tail."""
    blocks = _blocks(warm, place, total)
    rules = rules_of(situation.card)
    last = len(blocks) - 1
    long = bool(situation.cache.prefixes) and situation.cache.prefixes[-1].ttl > FIVE_MINUTES
    breakpoints = tuple(Breakpoint(at, long) for at in dict.fromkeys((last - 1, last)) if at >= 0) if rules.kind == "breakpoints" else ()
    return bill(Prompt.of(blocks), kept, situation.now, rules, breakpoints).usage


def _blocks(warm: Warm, place: int, total: int) -> list[Block]:
    """A request as one block for each stretch between two cached ends before a place, and one for all the rest."""
    blocks: list[Block] = []
    start = 0
    for end, tokens in zip(warm.ends, warm.tokens, strict=True):
        if end >= place or tokens > total:
            break
        blocks.append((f"to {end}", tokens - start))
        start = tokens
    return [*blocks, (f"the rest from {place}", total - start)]


def _kept(warm: Warm, situation: Situation) -> Kept:
    """The cache as we believe it to be, for requests that are made of the same stretches."""
    blocks = [(f"to {end}", 0) for end in warm.ends]
    links = Prompt.of(blocks).links
    if situation.cache.automatic:
        return Kept(prompts=((links, situation.now),)) if links else Kept()
    return Kept(
        tuple(
            Entry(number, link, tokens, situation.now, FIVE_MINUTES)
            for number, (link, tokens) in enumerate(zip(links, warm.tokens, strict=True))
        )
    )
