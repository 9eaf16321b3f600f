"""Two bills of the same traffic: requests as they were sent, and as their owner gave them, each with a simulated cache of its own."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

import msgspec
from msgspec import Raw

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, Prompt, bill, cache_rules
from palimpsest.core.events import ForeignNoted, Usage
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.models.prices import cost
from palimpsest.wire.request import MAX_BREAKPOINTS

_FORMAT: Final = "gateway"
# A bill is recorded with each reply, and few events follow it.
_NEWEST_EVENTS: Final = 64


class BilledRequest(NamedTuple):
    """The blocks of a request in order, and its cache breakpoints."""

    blocks: Sequence[Block]
    breakpoints: Sequence[Breakpoint] = ()


class PricedCall(Value, frozen=True):
    """What a call cost in dollars, what it would have cost as it was given, and the tokens of both prompts."""

    usd: float = 0.0
    usd_without: float = 0.0
    tokens_given: int = 0
    tokens_sent: int = 0


class GatewayBill(Value, frozen=True):
    """The bill of a session so far: dollars as they were, and as they would have been without the gateway; tokens of all prompts."""

    mode: str
    requests: int = 0
    usd: float = 0.0
    usd_without: float = 0.0
    tokens_given: int = 0
    tokens_sent: int = 0

    def plus(self, call: PricedCall) -> Self:
        """Return the bill after another call."""
        return type(self)(
            self.mode,
            self.requests + 1,
            self.usd + call.usd,
            self.usd_without + call.usd_without,
            self.tokens_given + call.tokens_given,
            self.tokens_sent + call.tokens_sent,
        )

    def noted(self) -> ForeignNoted:
        """Return the event that records the bill."""
        return ForeignNoted(_FORMAT, foreign=Raw(msgspec.json.encode(_BillRecord(self))))


class _BillRecord(Value, frozen=True):
    gateway: GatewayBill


_decoder = msgspec.json.Decoder(_BillRecord)


def newest_bill(log: Log) -> GatewayBill | None:
    """Return the newest bill that a log records; `None` if none of its newest events does."""
    for seq in range(log.tip, max(-1, log.tip - _NEWEST_EVENTS), -1):
        body = log.event(seq).body
        if isinstance(body, ForeignNoted) and body.format == _FORMAT:
            with suppress(msgspec.DecodeError):
                return _decoder.decode(body.foreign).gateway
    return None


class TwoBills:
    """The simulated caches of one conversation: of the requests that were sent, and of those that were given.

    While both were always the same, both bills are what the provider reported. Once they differ, the second bill is the reported one and
    the difference of the simulated ones, so that an error of the simulation which both have is not counted.
    """

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._rules = cache_rules(card)
        self._given = self._sent = Prompt()
        self._cache_given: CacheContents = EMPTY_CACHE
        self._cache_sent: CacheContents = EMPTY_CACHE

    def add(self, given: BilledRequest, sent: BilledRequest, usage: Usage, now: int) -> PricedCall:
        """Bill one call at time `now`, in milliseconds, with the usage that the provider reported."""
        estimated = sum(tokens for _, tokens in sent.blocks)
        # Sizes are estimates; the reported prompt says by how much they are off.
        factor = usage.prompt / estimated if estimated and usage.prompt else 1.0
        self._given, given_usage, self._cache_given = self._bill(self._given, given, self._cache_given, now)
        self._sent, sent_usage, self._cache_sent = self._bill(self._sent, sent, self._cache_sent, now)
        paid = cost(usage, self._card).total
        more = cost(_scaled(given_usage, factor), self._card).total - cost(_scaled(sent_usage, factor), self._card).total
        tokens = round(factor * self._given.tokens)
        return PricedCall(paid, max(0.0, paid + more), tokens, usage.prompt or self._sent.tokens)

    def cached_end(self, request: BilledRequest, now: int) -> int | None:
        """The last block of the longest live prefix of a request that is about to be sent; `None` if nothing of it is cached."""
        links = Prompt.of(request.blocks, self._sent).links
        live = (entry for entry in self._cache_sent.entries if now - entry.used < entry.ttl and entry.at_block < len(links))
        return max((entry.at_block for entry in live if links[entry.at_block] == entry.link), default=None)

    def _bill(self, before: Prompt, request: BilledRequest, cache: CacheContents, now: int) -> tuple[Prompt, Usage, CacheContents]:
        prompt = Prompt.of(request.blocks, before)
        billed = bill(prompt, cache, now, self._rules, tuple(request.breakpoints)[-MAX_BREAKPOINTS:])
        return prompt, billed.usage, billed.contents


def _scaled(usage: Usage, factor: float) -> Usage:
    parts = (usage.input, usage.cache_read, usage.cache_write, usage.cache_write_long)
    return Usage(*(round(factor * part) for part in parts))
