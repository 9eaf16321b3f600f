"""Warm prefixes: how many tokens of the next request are cached, up to any item of the view."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from palimpsest.audit.pricing.bill import STEP_TOKENS
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

HEAD = "head:"


@dataclass(frozen=True)
class WarmPrefixes:
    """Live cached prefixes by the index of their last item (-1 is the head), each longer than the one before."""

    ends: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest live prefix."""
        return self.tokens[-1] if self.tokens else 0

    def before(self, place: int) -> int:
        """Tokens of the longest live prefix that ends before a place."""
        found = bisect_left(self.ends, place)
        return self.tokens[found - 1] if found else 0

    @property
    def head(self) -> int:
        """Cached tokens of the head."""
        return self.before(0)


def item_positions(view: View) -> dict[str, int]:
    """The index of each item of the view; items of the head have -1."""
    places = {item.id: -1 for item in view.head}
    for place, item in enumerate(view.items):
        places[item.id] = place
    return places


def warm_prefixes(situation: Situation, before: Sequence[int] | None = None) -> WarmPrefixes:
    """The live prefixes of the view; `before` limits the work for an automatic cache to these indexes, in ascending order."""
    view, cache, now = situation.view, situation.cache, situation.now
    live = [prefix for prefix in cache.prefixes if prefix.live(now)]
    if not live:
        return WarmPrefixes()
    head, places = {item.id for item in view.head}, situation.tokens.places_in(view)
    total = situation.used
    found: dict[int, int] = {}
    for prefix in live:
        place = -1 if prefix.last.startswith(HEAD) or prefix.last in head else places.get(prefix.last)
        if place is not None:
            found[place] = max(found.get(place, 0), min(prefix.tokens, total))
    if cache.automatic and found:
        last = max(found, key=lambda place: found[place])
        asked = range(-1, last + 1) if before is None else [*(place - 1 for place in before if place <= last), last]
        return _automatic_prefixes(situation, asked, max(found.values()))
    ends: list[int] = []
    tokens: list[int] = []
    for place in sorted(found):
        if not tokens or found[place] > tokens[-1]:
            ends.append(place)
            tokens.append(found[place])
    return WarmPrefixes(tuple(ends), tuple(tokens))


def _automatic_prefixes(situation: Situation, ends: Sequence[int], cached: int) -> WarmPrefixes:
    """An automatic cache matches up to any item, in whole steps; the cached tokens are distributed over the items by their estimates."""
    view, tokens = situation.view, situation.tokens
    sizes = tokens.in_order(view)
    tools = round(situation.tools_tokens / tokens.factor)
    sums = list(accumulate(sizes[: ends[-1] + 1], initial=tokens.raw(view) - sum(sizes) + tools))
    share = cached / sums[-1] if sums[-1] else 0.0
    up_to = [int(sums[end + 1] * share) // STEP_TOKENS * STEP_TOKENS for end in ends]
    first = bisect_left(up_to, situation.card.cache_minimum)
    return WarmPrefixes(tuple(ends[first:]), tuple(up_to[first:]))
