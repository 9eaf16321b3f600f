"""How much of the next request is cached, up to any item of the view."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from palimpsest.audit.bill import STEP
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

HEAD = "head:"


@dataclass(frozen=True)
class Warm:
    """Live prefixes by the place they end at, each longer than the one before; places count the items, the head is -1.

    `places` says where each item stands.
    """

    ends: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def all(self) -> int:
        """Tokens of the longest live prefix."""
        return self.tokens[-1] if self.tokens else 0

    def before(self, place: int) -> int:
        """Tokens of the longest live prefix that ends before a place."""
        found = bisect_left(self.ends, place)
        return self.tokens[found - 1] if found else 0

    @property
    def head(self) -> int:
        """The cached part of the head."""
        return self.before(0)


def places_of(view: View) -> dict[str, int]:
    """Where each item stands; the head is before them all."""
    places = {item.id: -1 for item in view.head}
    for place, item in enumerate(view.items):
        places[item.id] = place
    return places


def warm_of(situation: Situation, known: Mapping[str, int] | None = None) -> Warm:
    """What is cached now, worked out once for all items; `known` says where they stand, if that is known already."""
    view, cache, now = situation.view, situation.cache, situation.now
    places = places_of(view) if known is None else known
    total = situation.used
    found: dict[int, int] = {}
    for prefix in cache.prefixes:
        place = -1 if prefix.last.startswith(HEAD) else places.get(prefix.last)
        if place is not None and prefix.live(now):
            found[place] = max(found.get(place, 0), min(prefix.tokens, total))
    if cache.automatic and found:
        return _up_to_any(situation, places, max(found, key=lambda place: found[place]), max(found.values()))
    ends: list[int] = []
    tokens: list[int] = []
    for place in sorted(found):
        if not tokens or found[place] > tokens[-1]:
            ends.append(place)
            tokens.append(found[place])
    return Warm(tuple(ends), tuple(tokens), places)


def _up_to_any(situation: Situation, places: Mapping[str, int], end: int, cached: int) -> Warm:
    """An automatic cache is read up to any item, in whole steps; the items share what is cached by their estimates."""
    view, scale = situation.view, situation.scale
    sizes = scale.sizes(view)
    tools = round(situation.tools_tokens / scale.factor)
    sums = list(accumulate(sizes[: end + 1], initial=scale.raw(view) - sum(sizes) + tools))
    share = cached / sums[-1] if sums[-1] else 0.0
    tokens = [int(size * share) // STEP * STEP for size in sums]
    first = bisect_left(tokens, situation.card.cache_minimum)
    return Warm(tuple(range(first - 1, end + 1)), tuple(tokens[first:]), places)
