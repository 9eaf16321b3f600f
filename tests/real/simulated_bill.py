"""The bill of the requests that a scripted model was sent, by the cache simulator."""

from typing import Any

import msgspec

from pal.gateway.routing import RequestBlocks, RequestReader
from palimpsest.audit.cache import EMPTY_CACHE, CacheContents, Prompt, bill, cache_rules
from palimpsest.core.events import Usage
from palimpsest.wire.models import card, simulated_cost
from palimpsest.wire.request import MAX_BREAKPOINTS

# Milliseconds between two requests: far below the lifetime of a cache entry, and the same in every run.
_PAUSE_MS = 5_000
REPLY_TOKENS = 20


class SimulatedBill:
    """Bills each request as it arrives; `usd` is the sum so far. Sizes are estimates."""

    def __init__(self, model: str) -> None:
        self._card = card(model)
        self._rules = cache_rules(self._card)
        self._blocks = RequestBlocks(model)
        self._contents: CacheContents = EMPTY_CACHE
        self._now = 0
        self.usd = 0.0
        self.tokens = 0

    def add(self, request: dict[str, Any]) -> Usage:
        """Bill a request of Anthropic Messages and return its usage."""
        body = msgspec.json.encode(request)
        given = RequestReader().read("anthropic", body, msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        billed = self._blocks.of(given, given.messages)
        self._now += _PAUSE_MS
        prompt = Prompt.of(billed.blocks)
        found = bill(prompt, self._contents, self._now, self._rules, tuple(billed.breakpoints)[-MAX_BREAKPOINTS:])
        self._contents = found.contents
        usage = msgspec.structs.replace(found.usage, output=REPLY_TOKENS)
        self.usd += simulated_cost(usage, self._card).total
        self.tokens += prompt.tokens
        return usage
