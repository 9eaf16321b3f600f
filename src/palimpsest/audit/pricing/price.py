"""What an edit costs once and saves on every call, and the rent of waiting with a fold, under the cache rules of a card."""

from palimpsest.audit.pricing.bill import (
    FIVE_MINUTES_MS,
    Block,
    Breakpoint,
    CacheContents,
    CacheEntry,
    Prompt,
    bill,
    cache_rules,
    prices_of,
)
from palimpsest.audit.pricing.prefixes import first_change, shared_head_blocks
from palimpsest.audit.pricing.warm_prefixes import WarmPrefixes, warm_prefixes
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.situation import PARTS, Cache, Card, Evidence, Situation
from palimpsest.core.tokens.budget import used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.wire.models.prices import cost


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
    long = card.cache == "breakpoints" and bool(cache.prefixes) and cache.prefixes[-1].ttl > FIVE_MINUTES_MS
    write = prices.cache_write_long if long and prices.cache_write_long is not None else prices.cache_write
    read = prices.cache_read
    return Rates(
        1.0 if write is None else write / prices.input,
        1.0 if read is None else read / prices.input,
        prices.output / prices.input,
    )


REFERENCE_WINDOW = 200_000
MESSAGE_TOKENS = 20_000


class Narrative(Value, frozen=True):
    """The request for a narrative: its prompt and what the model writes, in tokens."""

    prompt: int
    output: int


def _scaled_to_window(tokens: int, window: int) -> int:
    """A bound that is meant for a window of 200k, for a smaller one."""
    return tokens if window >= REFERENCE_WINDOW else tokens * window // REFERENCE_WINDOW


def tokens_after_fold(view: View, evidence: Evidence, counter: CountsTokens, card: Card, parts: int = PARTS) -> int:
    """How many tokens a folded view would have, as far as can be told before it is folded: head, messages, and all other `parts`."""
    head = sum(counter.item(item) for item in view.head)
    users = min(_scaled_to_window(MESSAGE_TOKENS, card.window), sum(said.tokens for said in evidence.said))
    return head + users + _scaled_to_window(parts, card.window)


def rent_of_call(view: View, evidence: Evidence, counter: CountsTokens, card: Card, *, tools: int = 0, parts: int = PARTS) -> float:
    """Tokens, weighed by the price of a cached read, that this call carries and a folded view would not; both carry the tools."""
    extra = used(view, counter, tools) - tools - tokens_after_fold(view, evidence, counter, card, parts)
    return rates_of(card, Cache()).read * extra if extra > 0 else 0.0


def fold_price(total: int, after: int, warm: WarmPrefixes, rates: Rates, narrative: Narrative | None = None) -> float:
    """What a fold makes the next request cost more, in input tokens; a narrative adds the request for it. Below zero it is a gain."""
    cached, head = min(warm.longest, total), min(warm.head, after)
    price = rates.write * (after - head) + rates.read * head - rates.read * cached - rates.write * (total - cached)
    if narrative is not None:
        price += rates.read * cached + (total - cached) + narrative.prompt + rates.output * narrative.output
    return price


def price_of_fold(situation: Situation, narrative: Narrative | None = None) -> float:
    """The price of folding now; it is worth it once the rent covers twice as much."""
    parts = situation.parts + (narrative.output if narrative else 0)
    after = tokens_after_fold(situation.view, situation.evidence, situation.tokens, situation.card, parts)
    rates = rates_of(situation.card, situation.cache)
    return fold_price(situation.used, after + situation.tools_tokens, warm_prefixes(situation), rates, narrative)


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
    warm = warm_prefixes(situation)
    total = situation.used
    remaining = total - saved
    place = first_change(before.items, after.items) if shared_head_blocks(before.head, after.head) == len(before.head) else -1
    contents = _believed_contents(warm, situation)
    return _next_usage(warm, total, len(before.items) + 1, contents, situation), _next_usage(
        warm, max(0, remaining), place, contents, situation
    )


def _next_usage(warm: WarmPrefixes, total: int, place: int, contents: CacheContents, situation: Situation) -> Usage:
    """The bill of a request that is as cached up to a place: its breakpoints are the end of what is cached there, and the tail."""
    blocks = _blocks(warm, place, total)
    rules = cache_rules(situation.card)
    last = len(blocks) - 1
    long = bool(situation.cache.prefixes) and situation.cache.prefixes[-1].ttl > FIVE_MINUTES_MS
    breakpoints = tuple(Breakpoint(at, long) for at in dict.fromkeys((last - 1, last)) if at >= 0) if rules.kind == "breakpoints" else ()
    return bill(Prompt.of(blocks), contents, situation.now, rules, breakpoints).usage


def _blocks(warm: WarmPrefixes, place: int, total: int) -> list[Block]:
    """A request as one block for each stretch between two cached ends before a place, and one for all the rest."""
    blocks: list[Block] = []
    start = 0
    for end, tokens in zip(warm.ends, warm.tokens, strict=True):
        if end >= place or tokens > total:
            break
        blocks.append((f"to {end}", tokens - start))
        start = tokens
    return [*blocks, (f"the rest from {place}", total - start)]


def _believed_contents(warm: WarmPrefixes, situation: Situation) -> CacheContents:
    """The cache as we believe it to be, for requests that are made of the same stretches."""
    blocks = [(f"to {end}", 0) for end in warm.ends]
    links = Prompt.of(blocks).links
    if situation.cache.automatic:
        return CacheContents(prompts=((links, situation.now),)) if links else CacheContents()
    return CacheContents(
        tuple(
            CacheEntry(number, link, tokens, situation.now, FIVE_MINUTES_MS)
            for number, (link, tokens) in enumerate(zip(links, warm.tokens, strict=True))
        )
    )
