"""Prices of edits: what they cost once and save per call, and the rent of delaying a fold."""

from typing import ClassVar, Final

import msgspec

from palimpsest.audit.evidence import EvidenceProjection
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
from palimpsest.audit.pricing.metering import Metering
from palimpsest.audit.pricing.prefixes import WarmPrefixes, first_change, shared_head_blocks, warm_prefixes
from palimpsest.audit.pricing.reasoning import reasoning_lost, thinking_behind
from palimpsest.core.edits import Fold, ReasoningLost
from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied, Usage, ViewEdited
from palimpsest.core.items import Value
from palimpsest.core.projections.projection import Scope, Views
from palimpsest.core.situation import PARTS, Cache, Card, Evidence, Situation
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.wire.models.prices import simulated_cost
from palimpsest.wire.past_requests import is_bound


class Rates(Value, frozen=True):
    """Prices relative to the input price."""

    write: float
    read: float
    output: float


# What is assumed of a model whose prices are not known: of the cheapest reads that there are with breakpoints, so that an edit has to
# save more before it pays.
_UNPRICED_BREAKPOINTS: Final = Rates(1.25, 0.025, 5.0)
_UNPRICED_AUTOMATIC: Final = Rates(1.0, 0.1, 5.0)


def rates_of(card: Card, cache: Cache) -> Rates:
    """The rates of a card; the write rate follows the lifetime of the newest entry. Those of a card without prices are assumed."""
    prices = card.prices
    if card.cache == "none":
        return Rates(1.0, 1.0, prices.output / prices.input if prices.input else 5.0)
    if not prices.input:
        return _UNPRICED_BREAKPOINTS if card.cache == "breakpoints" else _UNPRICED_AUTOMATIC
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


def _scaled_to_window(tokens: int, window: int) -> int:
    """A limit for a window of 200,000 tokens, scaled down to a smaller window."""
    return tokens if window >= REFERENCE_WINDOW else tokens * window // REFERENCE_WINDOW


def tokens_after_fold(view: View, evidence: Evidence, counter: CountsTokens, card: Card, parts: int = PARTS) -> int:
    """Estimated tokens of the view after a fold: head, user messages, and `parts` tokens for everything else."""
    head = sum(counter.item(item) for item in view.head)
    users, most = 0, _scaled_to_window(MESSAGE_TOKENS, card.working_window)
    for said in reversed(evidence.user_messages):
        users += said.tokens
        if users >= most:
            break
    users = min(users + evidence.earlier_tokens, most)
    return head + users + _scaled_to_window(parts, card.working_window)


def rent_of_call(
    view: View, evidence: Evidence, counter: CountsTokens, card: Card, *, parts: int = PARTS, total: int | None = None
) -> float:
    """The rent of one call: tokens that a folded view would not carry, times the rate of a cache read. `total` are those of the view."""
    extra = (counter.total(view) if total is None else total) - tokens_after_fold(view, evidence, counter, card, parts)
    return rates_of(card, Cache()).read * extra if extra > 0 else 0.0


def request_after_fold(situation: Situation) -> int:
    """Estimated tokens of the next request after a fold: its tokens now, less what the view loses.

    So what the view does not have stays in the number: tools, queued input, and the head of a program that does not record it.
    """
    view, tokens = situation.view, situation.tokens
    after = tokens_after_fold(view, situation.evidence, tokens, situation.card, situation.parts)
    return max(0, situation.used - tokens.total(view) + after)


def fold_price(total: int, after: int, warm: WarmPrefixes, rates: Rates) -> float:
    """The extra cost of the next request after a fold, in input tokens. Negative if it saves."""
    cached, head = min(warm.longest, total), min(warm.head, after)
    return rates.write * (after - head) + rates.read * head - rates.read * cached - rates.write * (total - cached)


def price_of_fold(situation: Situation) -> float:
    """The price of folding now, in input tokens; a fold pays off once the rent is twice as high."""
    rates, again = rates_of(situation.card, situation.cache), thinking_behind(situation)(0)
    return fold_price(situation.used, request_after_fold(situation), warm_prefixes(situation), rates) + again


class _Rent(Value, frozen=True):
    """Rent of calls that were answered, and of the request that is on its way, both in input tokens."""

    paid: float = 0.0
    due: float = 0.0


class RentProjection:
    """Projection of the rent in input tokens, summed over the calls since the last fold."""

    version: ClassVar = 3
    watches: ClassVar = frozenset({CallStarted, ModelReplied, Interrupted, Failed, ViewEdited})
    scope: ClassVar[Scope] = "path"

    def __init__(self, views: Views, metering: Metering, evidence: EvidenceProjection, *, parts: int) -> None:
        self.name = f"rent/{parts}"
        self._views = views
        self._metering = metering
        self._evidence = evidence
        self._parts = parts
        self._state = _Rent()

    @property
    def value(self) -> float:
        """The rent of the calls that had an outcome which is paid."""
        return self._state.paid

    def take(self, event: Event) -> None:
        """Apply one event: a reply pays the rent that its request had, a fold resets the sum; a request that failed cost nothing."""
        state = self._state
        match event.body:
            case CallStarted(purpose="turn"):
                counter, card = self._metering.counter, self._metering.card
                total = counter.scaled(self._metering.raw_before())
                due = rent_of_call(self._views.rest, self._evidence.value(), counter, card, parts=self._parts, total=total)
                self._state = _Rent(state.paid, due)
            case ModelReplied(purpose="turn"):
                self._state = _Rent(state.paid + state.due)
            case Interrupted(purpose="turn", parts=parts, usage=usage):
                self._state = _Rent(state.paid + (state.due if parts or usage.prompt else 0.0))
            case Failed(what="call", purpose="turn"):
                self._state = _Rent(state.paid)
            case ViewEdited(edits=edits) if any(isinstance(edit, Fold) for edit in edits):
                self._state = _Rent()
            case _:
                return

    def snapshot(self) -> bytes:
        """The sums as JSON."""
        return msgspec.json.encode(self._state)

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot."""
        self._state = msgspec.json.decode(data, type=_Rent)

    def reset(self) -> None:
        """Reset the sums."""
        self._state = _Rent()


_PER = 1_000_000


class Price(Value, frozen=True):
    """The extra dollars of the next request, the dollars that every later one saves, `None` without known prices, and the reasoning lost.

    The dollars have the share of the lost reasoning that is expected to be thought again. `reasoning_lost` is `None` for a model whose
    thinking is not bound to its prefix.
    """

    usd: float | None = None
    saved_usd_per_call: float | None = None
    reasoning_lost: ReasoningLost | None = None


def price_of(before: View, after: View, situation: Situation) -> Price:
    """The price of an edit: the difference of two bills for the next request, and the thinking that is bound to what it changes."""
    card, counter = situation.card, situation.tokens
    lost = reasoning_lost(before, after, situation.reasoning) if is_bound(card) else None
    prices = prices_of(card.prices)
    if not prices.are_known:
        return Price(reasoning_lost=lost)
    saved = counter.total(before) - counter.total(after)
    now, then = next_bills(before, after, situation, saved)
    rates = rates_of(card, situation.cache)
    again = situation.rethought * (lost.tokens or 0) * prices.output / _PER if lost is not None else 0.0
    usd = simulated_cost(then, prices).total - simulated_cost(now, prices).total + again
    return Price(usd, saved * rates.read * card.prices.input / _PER, lost)


def next_bills(before: View, after: View, situation: Situation, saved: int) -> tuple[Usage, Usage]:
    """The usage of the next request without an edit, and with an edit that saves `saved` tokens."""
    warm = warm_prefixes(situation)
    total = situation.used
    remaining = total - saved
    place = first_change(before.items, after.items) if shared_head_blocks(before.head, after.head) == len(before.head) else -1
    contents = _believed_contents(warm, situation)
    return _next_usage(warm, total, len(before.items) + 1, contents, situation), _next_usage(
        warm, max(0, remaining), place, contents, situation
    )


def _next_usage(warm: WarmPrefixes, total: int, place: int, contents: CacheContents, situation: Situation) -> Usage:
    """The usage of a request that is cached up to `place`; its breakpoints are the end of the cached part, and the tail."""
    blocks = _blocks(warm, place, total)
    rules = cache_rules(situation.card)
    last = len(blocks) - 1
    long = bool(situation.cache.prefixes) and situation.cache.prefixes[-1].ttl > FIVE_MINUTES_MS
    breakpoints = tuple(Breakpoint(at, long) for at in dict.fromkeys((last - 1, last)) if at >= 0) if rules.kind == "breakpoints" else ()
    return bill(Prompt.of(blocks), contents, situation.now, rules, breakpoints).usage


def _blocks(warm: WarmPrefixes, place: int, total: int) -> list[Block]:
    """The request as one block per stretch between cached ends before `place`, and one for the rest."""
    blocks: list[Block] = []
    start = 0
    for end, tokens in zip(warm.ends, warm.tokens, strict=True):
        if end >= place or tokens > total:
            break
        blocks.append((f"to {end}", tokens - start))
        start = tokens
    return [*blocks, (f"the rest from {place}", total - start)]


def _believed_contents(warm: WarmPrefixes, situation: Situation) -> CacheContents:
    """The believed cache contents, for requests of the same stretches."""
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
