"""Cache state: the prefixes that the provider is believed to hold, from sent breakpoints, times and reported reads."""

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from palimpsest.audit.pricing.bill import IDLE_MS
from palimpsest.audit.pricing.metering import Metering
from palimpsest.audit.pricing.prefixes import (
    bounded_prefixes,
    breakpoints_of,
    cumulative_tokens,
    ends_before,
    ends_in_head,
    first_change,
    is_in_head,
    is_within,
    item_positions,
    last_item_within,
    lifetime_ms,
    shared_head_blocks,
    truncated_prefix,
    whole_steps,
)
from palimpsest.core.edits import Fold, Insert, Mask
from palimpsest.core.events import (
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
from palimpsest.core.items import Item, Value
from palimpsest.core.projections.projection import Scope, StateProjection, Views
from palimpsest.core.situation import Cache, CachedPrefix, CacheReads, Card
from palimpsest.core.tokens.counter import TokenCounter

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

    def __init__(self, views: Views, metering: Metering) -> None:
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

    def _take_in(self, card: Card, message: str = "") -> None:
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

    def _end_call(self, usage: Usage, at: int, counter: TokenCounter, card: Card) -> None:
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

    def _after_automatic(self, usage: Usage, at: int, counter: TokenCounter, card: Card, missed: int) -> list[CachedPrefix]:
        """The prefix in an automatic cache: the whole prompt, or after repeated misses only what was read."""
        last = "".join(item.id for item in self._tail)
        tokens = whole_steps(usage.prompt or self._request_tokens(counter))
        if missed > _MOST_MISSES:
            tokens = usage.cache_read
            last = last_item_within(tokens, self._sums(counter), usage.prompt) if tokens else ""
        return [CachedPrefix(last, tokens, at, IDLE_MS)] if last and tokens >= card.cache_minimum else []

    def _after_breakpoints(self, live: list[CachedPrefix], usage: Usage, at: int, counter: TokenCounter, card: Card) -> list[CachedPrefix]:
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
