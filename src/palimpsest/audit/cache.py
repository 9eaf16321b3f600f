"""The provider's prompt cache: its rules and bill, cached prefixes, the believed state, and checks against reported reads."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from operator import attrgetter
from typing import ClassVar, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.audit.sizes import Metering
from palimpsest.core.errors import BadInput
from palimpsest.core.events import (
    TURN,
    CacheDiagnosis,
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    Failed,
    Interrupted,
    ModelReplied,
    ToolsChanged,
    Usage,
    ViewEdited,
)
from palimpsest.core.items import Fold, Insert, Item, Mask, Value, shared_prefix_length
from palimpsest.core.plans import Cache, CachedPrefix, CacheReads, ModelCard, Situation
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import Scope, StateProjection, View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.request import MAX_BREAKPOINTS

FIVE_MINUTES_MS = 300_000
HOUR_MS = 3_600_000
# Automatic caches evict entries after 5 to 10 idle minutes.
IDLE_MS = 600_000
LOOK_BACK_BLOCKS = 20
STEP_TOKENS = 128
# Prompts that an automatic cache is simulated for; a prompt that extends another replaces it.
MOST_PROMPTS = 8

Block: TypeAlias = tuple[str, int]
"""The identity of a block, which stands for its bytes, and its tokens."""


class CacheRules(Value, frozen=True):
    """Rules of a prompt cache: `minimum` and `step` in tokens, `idle` in milliseconds.

    A breakpoint finds entries up to `look_back` blocks back, its own block included.
    """

    kind: Literal["none", "breakpoints", "automatic"]
    minimum: int = 1_024
    look_back: int = LOOK_BACK_BLOCKS
    step: int = STEP_TOKENS
    idle: int = IDLE_MS


class Breakpoint(Value, frozen=True):
    """A cache breakpoint at the end of a block, for five minutes or, if `long`, for an hour."""

    at: int
    long: bool = False


class Prompt(Value, frozen=True):
    """The prompt of a request: per block a hash of everything up to its end, and the tokens up to there."""

    blocks: tuple[Block, ...] = ()
    links: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()

    @classmethod
    def of(cls, blocks: Sequence[Block], previous: Self | None = None) -> Self:
        """The prompt of these blocks; hashes and sums of the prefix shared with `previous` are reused."""
        blocks = tuple(blocks)
        links: list[int] = []
        sums: list[int] = []
        if previous is not None:
            extends_previous = blocks[: len(previous.blocks)] == previous.blocks
            shared_prefix = len(previous.blocks) if extends_previous else shared_prefix_length(previous.blocks, blocks)
            links, sums = list(previous.links[:shared_prefix]), list(previous.sums[:shared_prefix])
        link, total = (links[-1], sums[-1]) if links else (0, 0)
        for block in blocks[len(links) :]:
            link = hash((link, block[0]))
            total += block[1]
            links.append(link)
            sums.append(total)
        return cls(blocks, tuple(links), tuple(sums))

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.sums[-1] if self.sums else 0


class CacheEntry(Value, frozen=True):
    """A cached prefix: its last block, hash and tokens, the time of its last use and its lifetime, both in milliseconds."""

    at_block: int
    link: int
    tokens: int
    used: int
    ttl: int


class CacheContents(Value, frozen=True):
    """The contents of a cache: entries made by breakpoints, or whole prompts with the time of their last use."""

    entries: tuple[CacheEntry, ...] = ()
    prompts: tuple[tuple[tuple[int, ...], int], ...] = ()


EMPTY_CACHE = CacheContents()


class Bill(Value, frozen=True):
    """The billed tokens of a request, and the cache contents after it."""

    usage: Usage
    contents: CacheContents = EMPTY_CACHE


def cache_rules(card: ModelCard) -> CacheRules:
    """The cache rules of a model."""
    return CacheRules(card.cache, card.cache_minimum)


def bill(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules, breakpoints: Sequence[Breakpoint] = ()) -> Bill:
    """Bill one request at time `now`, in milliseconds. Raises `BadInput` if it has more than 4 breakpoints."""
    match rules.kind:
        case "none":
            return Bill(Usage(input=prompt.tokens), contents)
        case "breakpoints":
            return _by_breakpoints(prompt, contents, now, rules, breakpoints)
        case "automatic":
            return _by_automatic_cache(prompt, contents, now, rules)


def _by_breakpoints(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules, breakpoints: Sequence[Breakpoint]) -> Bill:
    if len(breakpoints) > MAX_BREAKPOINTS:
        raise BadInput(f"a request has at most {MAX_BREAKPOINTS} breakpoints, not {len(breakpoints)}")
    sums, links = prompt.sums, prompt.links
    count = len(sums)
    # Entries of other prefixes stay in the cache, but do not match this request.
    matching = {
        entry.at_block: entry
        for entry in contents.entries
        if now - entry.used < entry.ttl and entry.at_block < count and links[entry.at_block] == entry.link
    }
    others = [entry for entry in contents.entries if now - entry.used < entry.ttl and matching.get(entry.at_block) is not entry]
    valid = [point for point in breakpoints if 0 <= point.at < count and sums[point.at] >= rules.minimum]
    # The newest cached block that a breakpoint finds, its own first.
    found = (place for point in valid for place in range(point.at, max(-1, point.at - rules.look_back), -1) if place in matching)
    hit = max(found, default=-1)
    read = sums[hit] if hit >= 0 else 0
    reach = max((sums[point.at] for point in valid), default=0)
    reach_long = max((sums[point.at] for point in valid if point.long), default=0)
    long = max(0, reach_long - read)
    written = max(0, reach - max(read, reach_long))
    # Reading a prefix refreshes every shorter prefix of it.
    entries = [replace(entry, used=now) if at <= hit else entry for at, entry in matching.items()]
    refreshed_blocks = {entry.at_block for entry in entries if entry.at_block <= hit}
    new_entries = {
        point.at: CacheEntry(point.at, links[point.at], sums[point.at], now, HOUR_MS if point.long else FIVE_MINUTES_MS)
        for point in valid
        if point.at not in refreshed_blocks
    }
    entries = [entry for entry in entries if entry.at_block not in new_entries]
    usage = Usage(prompt.tokens - read - written - long, read, written, long)
    return Bill(usage, CacheContents((*others, *entries, *new_entries.values())))


def _by_automatic_cache(prompt: Prompt, contents: CacheContents, now: int, rules: CacheRules) -> Bill:
    """Bill a request to an automatic cache, which matches whole steps; tokens that enter the cache count as written."""
    live = [(links, used) for links, used in contents.prompts if now - used < rules.idle]
    shared = [shared_blocks(links, prompt.links) for links, _ in live]
    longest = max(shared, default=0)
    read = prompt.sums[longest - 1] // rules.step * rules.step if longest else 0
    read = read if read >= rules.minimum else 0
    whole_steps = prompt.tokens // rules.step * rules.step
    written = max(0, whole_steps - read) if whole_steps >= rules.minimum else 0
    others = [(links, used) for (links, used), common in zip(live, shared, strict=True) if common < len(links)]
    prompts = (*others, (prompt.links, now))[-MOST_PROMPTS:] if whole_steps >= rules.minimum else tuple(live)
    return Bill(Usage(prompt.tokens - read - written, read, written), CacheContents(prompts=prompts))


def shared_blocks(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The number of leading blocks that two prompts share; equal hashes mean that everything before them is equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[middle - 1] == other[middle - 1] else (low, middle - 1)
    return low


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


DROP_SHARE = 0.05
DROP_TOKENS = 2_000
# Policies whose masks change cached bytes on purpose; folds and cached masks are expected to by any policy.
EXPECTED_DROP_POLICIES = frozenset({"clear_idle", "clear_dead", "supersede"})


def watch_after_edit(watch: CacheReads, edited: ViewEdited) -> CacheReads:
    """The watch after an edit: after a fold, an idle mask or a cached mask the next drop of cache reads is expected."""
    expected = edited.moment == "idle" or edited.by in EXPECTED_DROP_POLICIES
    masks = (edit for edit in edited.edits if isinstance(edit, Mask))
    folds = any(isinstance(edit, Fold) for edit in edited.edits)
    if folds or any(expected or mask.form == "cached" for mask in masks):
        return CacheReads(watch.read, expected=True, dropped=watch.dropped)
    return watch


def watch_after_reply(watch: CacheReads, usage: Usage) -> CacheReads:
    """The watch after a reply: an unexpected drop of more than 5 % and 2,000 tokens is reported, and the baseline reset."""
    if not usage.prompt:
        return CacheReads(watch.read, watch.expected)
    before = watch.read
    drop = 0 if before is None else before - usage.cache_read
    if before is None or drop <= max(DROP_TOKENS, DROP_SHARE * before):
        return CacheReads(usage.cache_read, watch.expected)
    return CacheReads(usage.cache_read, dropped=0 if watch.expected else drop)


# A cold start and one miss are normal; after more misses in a row the cache is taken to be ineffective.
_MOST_MISSES = 2


# The key of the parameters of a request that the provider keeps for a comparison.
_ASKED = b'"compared_reply"'


class AwaitedCall(Value, frozen=True):
    """A turn call without an outcome: its time in milliseconds, and the unscaled tokens of its request."""

    call: CallStarted
    at: int
    raw: int


class _CacheSnapshot(Value, frozen=True):
    """The believed cache, the newest turn call that the provider took in with the unscaled tokens of its request, and the open call.

    `told` says that the model was told since then of tools that come or go, so that another list of them changes nothing before it.
    `message` is the provider's id of its reply, empty if that was interrupted.
    """

    cache: Cache = Cache()
    call: CallStarted | None = None
    raw: int | None = None
    sent: AwaitedCall | None = None
    told: bool = False
    message: str = ""


class CacheProjection(StateProjection):
    """Projection of the believed contents of the provider cache. A request changes them when it is answered, not when it is sent."""

    name: ClassVar = "cache"
    watches: ClassVar = frozenset({CallStarted, ModelReplied, Interrupted, Failed, ViewEdited, EditUndone, ContextStated, ToolsChanged})
    version: ClassVar = 5
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = _CacheSnapshot

    def __init__(self, views: ViewProjection, metering: Metering) -> None:
        self._views = views
        self._metering = metering
        self.reset()

    def snapshot(self) -> bytes:
        """The state as JSON."""
        return msgspec.json.encode(_CacheSnapshot(self._value, self._call, self._raw, self._sent, self._told, self._message))

    def start_from(self, restored: _CacheSnapshot) -> None:
        """Replace the state."""
        self._value = restored.cache
        self._call = restored.call
        self._raw = restored.raw
        self._sent = restored.sent
        self._told = restored.told
        self._message = restored.message

    def take(self, event: Event) -> None:
        """Apply one event."""
        body = event.body
        counter, card = self._metering.counter, self._metering.card
        match body:
            case CallStarted(purpose="turn") as call:
                self._sent = AwaitedCall(call, event.at, self._metering.raw_before())
            case ModelReplied(purpose="turn", usage=usage, message=message):
                self._take_in(card, message)
                self._end_call(usage, event.at, counter, card)
            case Interrupted(purpose="turn", parts=parts, usage=usage) if parts or usage.prompt:
                self._take_in(card)
            case Interrupted(purpose="turn") | Failed(what="call", purpose="turn"):
                self._sent = None
            case ViewEdited() as edited:
                self._change_items(counter, by=edited)
                self._value = replace(self._value, reads=watch_after_edit(self._value.reads, edited))
            case EditUndone():
                self._change_items(counter)
            case ToolsChanged():
                self._told = True
            case ContextStated(head=head) if head is not None:
                self._change_head()
            case ModelReplied() as side:
                self._side_call(side, event.at)
            case _:
                pass

    def value(self) -> Cache:
        """The believed cache."""
        return self._value

    @property
    def readable(self) -> tuple[CachedPrefix, ...]:
        """The prefixes that the open call can read, or that the next one could."""
        return self._value.prefixes if self._sent is None else self.readable_by(self._sent.call.model, self._sent.call.tools)

    def readable_by(self, model: str, tools: str) -> tuple[CachedPrefix, ...]:
        """The prefixes that a call of a model with some tools can read."""
        last = self._call
        if last is None:
            return self._value.prefixes
        # Tools come first in a request, and a cache belongs to one model.
        return self._value.prefixes if last.model == model and (last.tools == tools or self._told) else ()

    def comparable_reply(self, model: str) -> str:
        """The id of the newest reply whose request the provider can compare with the next one of a model; empty if there is none."""
        last = self._call
        return self._message if last is not None and last.model == model and _ASKED in bytes(last.params) else ""

    def _take_in(self, card: ModelCard, message: str = "") -> None:
        """Let the open call be the newest that the provider has seen."""
        sent, prefixes = self._sent, self.readable
        if sent is None:
            return
        reads = self._value.reads
        if self._call is not None and self._call.withheld != sent.call.withheld:
            # Thinking that is left out, or comes back, changes the cached bytes behind it.
            reads = CacheReads(reads.read, expected=True, dropped=reads.dropped)
        self._call, self._raw, self._sent, self._told = sent.call, sent.raw, None, False
        self._message = message
        self._value = replace(
            self._value, prefixes=prefixes, called=sent.at, edited=False, automatic=card.cache == "automatic", reads=reads
        )

    def _end_call(self, usage: Usage, at: int, counter: TokenCounter, card: ModelCard) -> None:
        called = at if self._value.called is None else self._value.called
        live = [prefix for prefix in self._value.prefixes if prefix.live(called)]
        missed = self._count_misses(usage, expired=not live and bool(self._value.prefixes))
        cache = replace(self._value, reads=watch_after_reply(self._value.reads, usage), edited=False, missed=missed)
        match card.cache:
            case "none":
                prefixes: list[CachedPrefix] = []
            case "automatic":
                prefixes = self._after_automatic(usage, called, counter, card, cache.missed)
            case "breakpoints":
                prefixes = self._after_breakpoints(live, usage, called, counter, card)
        self._value = replace(cache, prefixes=tuple(bounded_prefixes(prefixes)), called=called)

    def _request_tokens(self, counter: TokenCounter) -> int:
        """Estimated tokens of the last request."""
        # Imported replies have no recorded call.
        return counter.scaled(self._metering.raw_before() if self._raw is None else self._raw)

    @property
    def _tail(self) -> tuple[Item, ...]:
        """The last item before an event that edits nothing; empty if there was none."""
        count = self._views.count_before
        return tuple(self._views.items[count - 1 : count]) if count else ()

    def _sums(self, counter: TokenCounter) -> dict[str, int]:
        return cumulative_tokens(self._views.head_before, self._views.items_before, counter)

    def _count_misses(self, usage: Usage, *, expired: bool) -> int:
        if usage.prompt and usage.cache_read * 2 >= usage.prompt:
            return 0
        # A miss after a pause that no entry outlasts says nothing about the cache.
        return self._value.missed if expired or not usage.prompt else self._value.missed + 1

    def _after_automatic(self, usage: Usage, at: int, counter: TokenCounter, card: ModelCard, missed: int) -> list[CachedPrefix]:
        """The prefix in an automatic cache: the whole prompt, or after repeated misses only what was read."""
        last = "".join(item.id for item in self._tail)
        tokens = whole_steps(usage.prompt or self._request_tokens(counter))
        if missed > _MOST_MISSES:
            tokens = usage.cache_read
            last = last_item_within(tokens, self._sums(counter), usage.prompt) if tokens else ""
        return [CachedPrefix(last, tokens, at, IDLE_MS)] if last and tokens >= card.cache_minimum else []

    def _after_breakpoints(
        self, live: list[CachedPrefix], usage: Usage, at: int, counter: TokenCounter, card: ModelCard
    ) -> list[CachedPrefix]:
        """The prefixes after a request with breakpoints: refreshed if read, added if marked, dropped if they should have been read."""
        # Tools stand before the head, and are in every cached prefix.
        tools = self._metering.newest_tools
        call, total = self._call, self._request_tokens(counter) + tools
        breakpoints = breakpoints_of(call, self._views.head_before, self._tail)
        reported = usage.prompt > 0
        read, share = (usage.cache_read, usage.prompt / max(total, 1)) if reported else (max((p.tokens for p in live), default=0), 1.0)
        reach = usage.prompt - usage.input if reported else round(total * share)
        kept = [replace(prefix, at=at) for prefix in live if is_within(prefix, read) and prefix.tokens <= reach]
        kept_ids = {prefix.last for prefix in kept}
        longest = max((prefix.tokens for prefix in kept), default=0)
        ttl = lifetime_ms(call, usage)
        tail = "".join(item.id for item in self._tail)
        sums: dict[str, int] = {}
        new_names = set(breakpoints) - kept_ids - {tail}
        if read > longest * 1.01 + 64 or not all(map(is_in_head, new_names)):
            sums = self._sums(counter)
        elif new_names:
            sums = cumulative_tokens(self._views.head_before, (), counter)
        sums = {name: size + tools for name, size in sums.items()} if tools else sums
        new_prefixes = [
            (name, min(reach, round(sums[name] * share))) for name in breakpoints if name not in kept_ids and name != tail and name in sums
        ]
        if read > longest * 1.01 + 64 and (last := last_item_within(read, sums, usage.prompt)) and last not in kept_ids:
            new_prefixes = [(name, tokens) for name, tokens in new_prefixes if name != last]
            new_prefixes.append((last, read))
        if tail in breakpoints and tail not in kept_ids:
            new_prefixes.append((tail, reach))
        kept += [CachedPrefix(name, tokens, at, ttl) for name, tokens in new_prefixes if tokens >= card.cache_minimum]
        return sorted(kept, key=lambda prefix: prefix.tokens)

    def _change_items(self, counter: TokenCounter, by: ViewEdited | None = None) -> None:
        """Drop the prefixes that reach beyond the first changed item."""
        before, view = self._views.items_before, self._views.view
        place = first_change(before, view.items)
        cache = self._value
        edited = cache.edited or (by is not None and not all(isinstance(edit, Insert) for edit in by.edits))
        if place == len(before):
            self._value = replace(cache, edited=edited)
            return
        places = item_positions(view)
        remaining = [prefix for prefix in cache.prefixes if ends_before(prefix, place, places)]
        if cache.automatic:
            remaining = truncated_prefix(cache.prefixes, place, view, counter)
        frontier = view.items[place - 1].id if place else ""
        self._value = replace(cache, prefixes=tuple(remaining), frontier=frontier, edited=edited)

    def _change_head(self) -> None:
        """Drop the prefixes that reach beyond the unchanged blocks of the head."""
        before, after = self._views.head_before, self._views.rest.head
        blocks = shared_head_blocks(before, after)
        if blocks == len(before) == len(after):
            return
        self._value = replace(self._value, prefixes=tuple(prefix for prefix in self._value.prefixes if ends_in_head(prefix, blocks)))

    def _side_call(self, side: ModelReplied, at: int) -> None:
        """Refresh the prefixes that a side call read."""
        read = side.usage.cache_read
        if not read or (self._call is not None and side.model != self._call.model):
            return
        prefixes = (
            replace(prefix, at=max(at, prefix.at)) if prefix.live(at) and is_within(prefix, read) else prefix
            for prefix in self._value.prefixes
        )
        self._value = replace(self._value, prefixes=tuple(prefixes))


class CacheCheck(Value, frozen=True, omit_defaults=False):
    """The reply in event `seq` to a request that the provider was asked to compare with an earlier one.

    `expected` and `read` are the tokens that we expected it to read from its cache, and those that it read. `agrees` is `None` if the
    provider does not say enough: not yet, no longer, or nothing at all.
    """

    seq: int
    expected: int
    read: int
    diagnosis: CacheDiagnosis | None
    agrees: bool | None


class _ComparedReply(msgspec.Struct):
    compared_reply: str | None = None


_params = msgspec.json.Decoder(_ComparedReply)


def is_compared(call: CallStarted) -> bool:
    """Whether a request names an earlier reply that the provider compares it with."""
    return bool(_params.decode(call.params).compared_reply)


def cache_checks(events: Iterable[Event]) -> Iterator[CacheCheck]:
    """The checks of all turn calls that were compared, in the order of their replies."""
    compared: dict[int, int] = {}
    for event in events:
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == TURN and is_compared(body):
            compared[event.seq] = body.cached
        elif isinstance(body, ModelReplied) and body.call in compared:
            expected, read = compared.pop(body.call), body.usage.cache_read
            yield CacheCheck(event.seq, expected, read, body.diagnosis, _agrees(expected, read, body.diagnosis))


def _agrees(expected: int, read: int, diagnosis: CacheDiagnosis | None) -> bool | None:
    """Whether the provider says what we expected.

    Where it names a change, we must not have expected to read what is behind that. Where it names none, it must have read what we expected
    and no more.
    """
    allowed = max(DROP_TOKENS, DROP_SHARE * expected)
    match diagnosis:
        case CacheDiagnosis(found="changed"):
            return expected - read <= allowed
        case CacheDiagnosis(found="same"):
            return abs(expected - read) <= allowed
        case _:
            return None
