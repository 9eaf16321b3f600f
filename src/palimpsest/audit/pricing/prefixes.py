"""Cached prefixes: where breakpoints are, which prefixes an edit keeps, and how many tokens of the next request are cached."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from operator import attrgetter
from typing import Literal

import msgspec

from palimpsest.audit.pricing.bill import FIVE_MINUTES_MS, HOUR_MS, STEP_TOKENS
from palimpsest.core.events import CallStarted, Usage
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import CachedPrefix, Situation
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View

# Of more prefixes than this, every second older one is dropped.
MOST_PREFIXES = 96
_NEWEST = 32
_HEAD = "head:"
_id = attrgetter("id")
# Reads are reported in whole blocks, so that estimates within this tolerance count as equal.
_TOLERANCE = 1.01
_TOLERANCE_TOKENS = 64


class _Lifetime(Value, frozen=True):
    ttl: Literal["5m", "1h"] = "5m"


_lifetime = msgspec.json.Decoder(_Lifetime)


def lifetime_ms(call: CallStarted | None, usage: Usage) -> int:
    """The lifetime of the cache entries of a call in milliseconds: as billed, else as requested."""
    if usage.cache_write or usage.cache_write_long:
        return FIVE_MINUTES_MS if usage.cache_write else HOUR_MS
    try:
        asked = _lifetime.decode(call.params).ttl if call is not None else "5m"
    except msgspec.DecodeError:
        asked = "5m"
    return HOUR_MS if asked == "1h" else FIVE_MINUTES_MS


def breakpoints_of(call: CallStarted | None, head: Sequence[Item], items: Sequence[Item]) -> tuple[str, ...]:
    """The breakpoints of a call; if its request is not recorded, the ends of head and conversation, as all programs set them."""
    if call is not None and (call.breakpoints or call.digest):
        return call.breakpoints
    return ((f"{_HEAD}{len(head) - 1}",) if head else ()) + ((items[-1].id,) if items else ())


def first_change(before: Sequence[Item], after: Sequence[Item]) -> int:
    """The index of the first item that the cache of the provider does not know: a result that it clears itself is new to it, too."""
    place = 0
    for one, other in zip(before, after, strict=False):
        if one is not other and not _sent_alike(one, other):
            return place
        place += 1
    return place


def _sent_alike(one: Item, other: Item) -> bool:
    if one.id != other.id or (one.content is not other.content and one.content != other.content):
        return False
    shown = [item.mask for item in (one, other) if item.mask is not None and (item.mask.form == "shown" or item.kind == "result")]
    return not shown or one.mask == other.mask


def shared_head_blocks(before: Sequence[Item], after: Sequence[Item]) -> int:
    """The number of leading head blocks with equal content."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one.content != other.content:
            break
        count += 1
    return count


def ends_before(prefix: CachedPrefix, place: int, places: dict[str, int]) -> bool:
    """Whether a prefix ends before the item at `place`; prefixes of the head always do."""
    return prefix.last.startswith(_HEAD) or places.get(prefix.last, place) < place


def is_in_head(name: str) -> bool:
    """Whether a breakpoint is at the end of a block of the head."""
    return name.startswith(_HEAD)


def ends_in_head(prefix: CachedPrefix, blocks: int) -> bool:
    """Whether a prefix ends within the first `blocks` blocks of the head."""
    return prefix.last.startswith(_HEAD) and int(prefix.last[len(_HEAD) :]) < blocks


def cumulative_tokens(head: Sequence[Item], items: Sequence[Item], counter: CountsTokens) -> dict[str, int]:
    """Cumulative tokens up to the end of each head block and item."""
    names = (*(f"{_HEAD}{number}" for number in range(len(head))), *map(_id, items))
    sums = accumulate([*counter.unscaled_sizes(head), *counter.unscaled_sizes(items)])
    # Scaled as sums, as the total of a view is: rounded one by one, hundreds of small items would add up to another total.
    # Scaled inline, because calling `scaled` for each item of a long view would take most of the time of a replay.
    factor = counter.factor
    return dict(zip(names, sums if factor == 1.0 else [round(each * factor) for each in sums], strict=True))


def last_item_within(read: int, sums: dict[str, int], total: int) -> str:
    """The last item within `read` cached tokens; `total` are the reported tokens of the whole prompt."""
    sizes = list(sums.values())
    share = total / sizes[-1] if sizes and sizes[-1] else 1.0
    place = bisect_right(sizes, read * _TOLERANCE + _TOLERANCE_TOKENS, key=lambda size: size * share)
    return next(islice(sums, place - 1, place)) if place else ""


def is_within(prefix: CachedPrefix, read: int) -> bool:
    """Whether a prefix is at most as long as what was read."""
    return prefix.tokens <= read * _TOLERANCE + _TOLERANCE_TOKENS


def bounded_prefixes(prefixes: list[CachedPrefix]) -> list[CachedPrefix]:
    """At most 96 prefixes; the newest 32 are always kept."""
    return prefixes if len(prefixes) <= MOST_PREFIXES else prefixes[:-_NEWEST:2] + prefixes[-_NEWEST:]


def whole_steps(tokens: int) -> int:
    """The tokens of a prompt that an automatic cache stores: a multiple of its step."""
    return tokens // STEP_TOKENS * STEP_TOKENS


def truncated_prefix(prefixes: Sequence[CachedPrefix], place: int, view: View, counter: CountsTokens) -> list[CachedPrefix]:
    """The part of the longest prefix that an automatic cache still matches after everything from `place` on has changed."""
    if not prefixes or not place:
        return []
    longest = max(prefixes, key=lambda prefix: prefix.tokens)
    sums = cumulative_tokens(view.head, view.items[:place], counter)
    last = view.items[place - 1].id
    return [CachedPrefix(last, min(longest.tokens, whole_steps(sums[last])), longest.at, longest.ttl)]


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
        place = -1 if prefix.last.startswith(_HEAD) or prefix.last in head else places.get(prefix.last)
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
    up_to = [whole_steps(int(sums[end + 1] * share)) for end in ends]
    first = bisect_left(up_to, situation.card.cache_minimum)
    return WarmPrefixes(tuple(ends[first:]), tuple(up_to[first:]))
