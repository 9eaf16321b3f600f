"""Cached prefixes of a view: where breakpoints stand, how many tokens lie before them, and which of them an edit leaves."""

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Literal

import msgspec

from palimpsest.audit.pricing.bill import FIVE_MINUTES_MS, HOUR_MS, STEP_TOKENS
from palimpsest.core.events import CallStarted, Usage
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import CachedPrefix
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View

# How many prefixes are remembered; of the older ones every second is forgotten when there are more.
MOST_PREFIXES = 96
_NEWEST = 32
_HEAD = "head:"
_id = attrgetter("id")
# Reads are reported in whole blocks, so that a belief this close to them is the same.
_TOLERANCE = 1.01
_TOLERANCE_TOKENS = 64


class _Lifetime(Value, frozen=True):
    ttl: Literal["5m", "1h"] = "5m"


_lifetime = msgspec.json.Decoder(_Lifetime)


def lifetime_ms(call: CallStarted | None, usage: Usage) -> int:
    """How long a call's entries last: as the bill says, else as it asked for."""
    if usage.cache_write or usage.cache_write_long:
        return FIVE_MINUTES_MS if usage.cache_write else HOUR_MS
    try:
        asked = _lifetime.decode(call.params).ttl if call is not None else "5m"
    except msgspec.DecodeError:
        asked = "5m"
    return HOUR_MS if asked == "1h" else FIVE_MINUTES_MS


def breakpoints_of(call: CallStarted | None, head: Sequence[Item], items: Sequence[Item]) -> tuple[str, ...]:
    """The breakpoints of a call; one whose request is not known is taken to have marked its head and its tail, as all programs do."""
    if call is not None and (call.breakpoints or call.digest):
        return call.breakpoints
    return ((f"{_HEAD}{len(head) - 1}",) if head else ()) + ((items[-1].id,) if items else ())


def first_change(before: Sequence[Item], after: Sequence[Item]) -> int:
    """The first place at which two views differ in what is sent; a cached mask leaves the bytes as they are."""
    place = 0
    for one, other in zip(before, after, strict=False):
        if one is not other and not _sent_alike(one, other):
            return place
        place += 1
    return place


def _sent_alike(one: Item, other: Item) -> bool:
    if one.id != other.id or (one.content is not other.content and one.content != other.content):
        return False
    shown = [item.mask for item in (one, other) if item.mask is not None and item.mask.form == "shown"]
    return not shown or one.mask == other.mask


def shared_head_blocks(before: Sequence[Item], after: Sequence[Item]) -> int:
    """How many blocks of a head stayed as they were, whatever their ids."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one.content != other.content:
            break
        count += 1
    return count


def ends_before(prefix: CachedPrefix, place: int, places: dict[str, int]) -> bool:
    """Whether a prefix ends before a place of the items; one that ends with the head does."""
    return prefix.last.startswith(_HEAD) or places.get(prefix.last, place) < place


def ends_in_head(prefix: CachedPrefix, blocks: int) -> bool:
    """Whether a prefix ends within the first blocks of the head."""
    return prefix.last.startswith(_HEAD) and int(prefix.last[len(_HEAD) :]) < blocks


def cumulative_tokens(head: Sequence[Item], items: Sequence[Item], counter: CountsTokens) -> dict[str, int]:
    """Tokens up to the end of each item, and of each block of the head."""
    names = (*(f"{_HEAD}{number}" for number in range(len(head))), *map(_id, items))
    return dict(zip(names, accumulate([*counter.each(head), *counter.each(items)]), strict=True))


def last_item_within(read: int, sums: dict[str, int], total: int) -> str:
    """The last item within a number of tokens that were read, when `total` is what the whole prompt had."""
    weight = max(sums.values(), default=0)
    share = total / weight if weight else 1.0
    best = ""
    for name, size in sums.items():
        if size * share > read * _TOLERANCE + _TOLERANCE_TOKENS:
            break
        best = name
    return best


def is_within(prefix: CachedPrefix, read: int) -> bool:
    """Whether a prefix is no longer than what was read."""
    return prefix.tokens <= read * _TOLERANCE + _TOLERANCE_TOKENS


def bounded_prefixes(prefixes: list[CachedPrefix]) -> list[CachedPrefix]:
    """Few enough to remember, the newest all of them."""
    return prefixes if len(prefixes) <= MOST_PREFIXES else prefixes[:-_NEWEST:2] + prefixes[-_NEWEST:]


def whole_steps(tokens: int) -> int:
    """What an automatic cache keeps of a prompt."""
    return tokens // STEP_TOKENS * STEP_TOKENS


def truncated_prefix(prefixes: Sequence[CachedPrefix], place: int, view: View, counter: CountsTokens) -> list[CachedPrefix]:
    """What an automatic cache can still read of the longest prefix when everything from a place on has changed."""
    if not prefixes or not place:
        return []
    longest = max(prefixes, key=lambda prefix: prefix.tokens)
    sums = cumulative_tokens(view.head, view.items[:place], counter)
    last = view.items[place - 1].id
    return [CachedPrefix(last, min(longest.tokens, whole_steps(sums[last])), longest.at, longest.ttl)]
