"""Two bills of the same traffic: requests as they were sent, and as their owner gave them, each with a simulated cache of its own."""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from math import sqrt
from typing import Final, NamedTuple, Self

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from palimpsest.audit.cache import (
    EMPTY_CACHE,
    FIVE_MINUTES_MS,
    HOUR_MS,
    LOOK_BACK_BLOCKS,
    MOST_PROMPTS,
    STEP_TOKENS,
    Block,
    Breakpoint,
    CacheContents,
    CacheEntry,
    Prompt,
    bill,
    cache_rules,
    shared_blocks,
)
from palimpsest.audit.measured_sizes import MeasuredSizes
from palimpsest.core.events import ForeignNoted, Usage
from palimpsest.core.items import ReasoningLost, Value, shared_prefix_length
from palimpsest.core.log import Log
from palimpsest.wire.models import ModelCard, price_day, simulated_cost, total_usd
from palimpsest.wire.request import MAX_BREAKPOINTS

_FORMAT: Final = "gateway"
# A reported read within this share of the prompt, or so many tokens, of the expected one is the expected one.
_TOLERANCE: Final = 0.005
_TOLERANCE_TOKENS: Final = 64
# How far the measured tokens of a beginning may be from its true ones, because a report covered it together with what follows.
_SIZE_ERROR: Final = 0.1
# The same for tools and parts of the system prompt, which are first reported all at once.
_HEAD_SIZE_ERROR: Final = 0.4
# So many reports are waited for, and if none of them has read anything so many, after which it is taken that nothing is read.
_REPORTS_WITH_READ: Final = 2
_REPORTS_WITHOUT_READ: Final = 5
# How far the size of one block may be off: of one that a report covered together with others, and of one that none has covered.
_MEASURED_ERROR: Final = 0.1
_ESTIMATED_ERROR: Final = 0.4
# How far one that no report has covered is likely to be off.
_LIKELY_ERROR: Final = 0.1
# So many recorded calls begin with lists that are whole; at least as many are taken in again after a restart.
_WHOLE_EVERY: Final = 128


class BilledRequest(NamedTuple):
    """The blocks of a request in order, with estimated sizes, its cache breakpoints, and the first block of each message.

    Blocks before those of the first message are the tools, so many, and the system prompt.
    """

    blocks: Sequence[Block]
    breakpoints: Sequence[Breakpoint] = ()
    starts: Sequence[int] = ()
    tools: int = 0

    @property
    def heads(self) -> int:
        """The number of blocks before the first message."""
        return self.starts[0] if self.starts else 0

    def finds(self, end: int) -> bool:
        """Whether a breakpoint finds what is cached up to the end of a block."""
        return any(0 <= point.at - end < LOOK_BACK_BLOCKS for point in self.breakpoints)

    def place_of(self, block: int) -> tuple[int, int] | None:
        """The message that a block belongs to, and its number there; `None` if it is one of the tools or the system prompt."""
        message = bisect_right(self.starts, block) - 1
        return None if message < 0 else (message, block - self.starts[message])


class PricedCall(Value, frozen=True):
    """What a call cost in dollars, what it would have cost as it was given, `None` if no price is known, and the tokens of both prompts.

    `reasoning_lost` is the thinking that its request was the first to be sent without, because of edits. `recoveries` is 1 if it was sent
    again, because the provider had refused its thinking.
    """

    usd: float | None = 0.0
    usd_without: float | None = 0.0
    tokens_given: int = 0
    tokens_sent: int = 0
    reasoning_lost: ReasoningLost = ReasoningLost()
    recoveries: int = 0

    def with_more(self, usd: float | None) -> "PricedCall":
        """The call with dollars that it would have cost in any case; `None` makes both numbers unknown."""
        return replace(self, usd=total_usd((self.usd, usd)), usd_without=total_usd((self.usd_without, usd)))


UNKNOWN_CALL: Final = PricedCall(None, None)
"""A call that was sent, and of which it is not known what it cost."""


class GatewayBill(Value, frozen=True):
    """The bill of a session so far: dollars as they were, and as they would have been without the gateway; tokens of all prompts.

    `unpriced` requests are in neither of the dollars, because no price of their model is known, or not what they used. Without others
    these are `None`. What `unknown_without` of the others would have cost without the gateway is not known, and not in the second number,
    which is `None` for a conversation that has one of them: the provider may have held lists of it that were never seen.
    `reasoning_lost` is the thinking that edits have made unusable; what it costs to think it again is in neither of the dollars.
    """

    mode: str
    requests: int = 0
    usd: float | None = 0.0
    usd_without: float | None = 0.0
    tokens_given: int = 0
    tokens_sent: int = 0
    unpriced: int = 0
    reasoning_lost: ReasoningLost = ReasoningLost()
    recoveries: int = 0
    unknown_without: int = 0

    def plus(self, call: PricedCall) -> Self:
        """Return the bill after another call."""
        usd, without, unpriced, unknown = self.usd, self.usd_without, self.unpriced, self.unknown_without
        if call.usd is None:
            unpriced += 1
            usd, without = (None, None) if unpriced > self.requests else (usd, without)
        else:
            usd = (usd or 0.0) + call.usd
            unknown += call.usd_without is None
            without = without if call.usd_without is None else (without or 0.0) + call.usd_without
        one, other = self.reasoning_lost, call.reasoning_lost
        tokens = None if one.tokens is None or other.tokens is None else one.tokens + other.tokens
        return replace(
            self,
            requests=self.requests + 1,
            usd=usd,
            usd_without=without,
            tokens_given=self.tokens_given + call.tokens_given,
            tokens_sent=self.tokens_sent + call.tokens_sent,
            unpriced=unpriced,
            reasoning_lost=ReasoningLost(one.blocks + other.blocks, tokens),
            recoveries=self.recoveries + call.recoveries,
            unknown_without=unknown,
        )

    def with_read(self, usd: float | None) -> Self:
        """Return the bill after a read that kept the cache alive; directly it would not have been paid."""
        return self.plus(UNKNOWN_CALL) if usd is None else replace(self, usd=total_usd((self.usd, usd)))

    def noted(self, call: "CallRecord | None" = None) -> ForeignNoted:
        """Return the event that records the bill, with the call that it was made larger by, where its usage is known."""
        return ForeignNoted(_FORMAT, foreign=Raw(msgspec.json.encode(_BillRecord(self, call))))


class _ListRecord(Value, frozen=True):
    """A request by what differs from a list before it, so that its record is short however long the list is.

    A part is a block, or a run of the blocks of the list before: the first of them, and how many. `lengths` are the blocks of each message
    after the first `shared` messages, which have as many as those of the list before.
    """

    parts: tuple[tuple[int | str, int], ...] = ()
    heads: int = 0
    shared: int = 0
    lengths: tuple[int, ...] = ()
    breakpoints: tuple[Breakpoint, ...] = ()
    tools: int = 0

    @classmethod
    def of(cls, request: BilledRequest, base: Sequence[Block], before: BilledRequest) -> Self:
        lengths, known = _lengths(request), _lengths(before)
        shared = next((at for at, (one, two) in enumerate(zip(known, lengths, strict=False)) if one != two), min(len(known), len(lengths)))
        parts = tuple(_billed_parts(request.blocks, base))
        return cls(parts, request.heads, shared, tuple(lengths[shared:]), tuple(request.breakpoints), request.tools)

    def restored(self, base: Sequence[Block], before: BilledRequest) -> BilledRequest:
        blocks: list[Block] = []
        for part, count in self.parts:
            blocks += base[part : part + count] if isinstance(part, int) else [(part, count)]
        starts, end = [], self.heads
        for length in (*_lengths(before)[: self.shared], *self.lengths):
            starts.append(end)
            end += length
        return BilledRequest(blocks, list(self.breakpoints), starts, self.tools)


class CallRecord(Value, frozen=True):
    """A call as a log has it: its time in milliseconds, the reported usage, and both lists; `sent` is `None` if it is the given one.

    `begins` says that its lists are whole. `unseen` is the newest event of the log with messages of lists that were never seen. `unsure`
    are the dollars that the second bill may be too large by after this call, because the sizes of what is hidden are not exact.
    """

    at: int
    usage: Usage
    given: _ListRecord
    sent: _ListRecord | None = None
    begins: bool = False
    unseen: int = -1
    unsure: float = 0.0


class LedgerCall(NamedTuple):
    """A call of which both bills are made, at a time in milliseconds."""

    given: BilledRequest
    sent: BilledRequest
    usage: Usage
    at: int


_NO_REQUEST: Final = BilledRequest((), (), ())


class CallRecorder:
    """Makes the records of calls, each by what differs from the one before, and calls from such records."""

    def __init__(self) -> None:
        self._given = self._sent = _NO_REQUEST
        self._count = 0

    def record(self, call: LedgerCall, unseen: int, unsure: float) -> CallRecord:
        """Return the record of the next call."""
        begins = self._count % _WHOLE_EVERY == 0
        self._count += 1
        if begins:
            self._given = self._sent = _NO_REQUEST
        given = _ListRecord.of(call.given, self._given.blocks, self._given)
        is_same = call.sent == call.given
        sent = None if is_same else _ListRecord.of(call.sent, [*self._sent.blocks, *call.given.blocks], self._sent)
        self._given, self._sent = call.given, call.sent
        return CallRecord(call.at, call.usage, given, sent, begins, unseen, unsure)

    def restored(self, record: CallRecord) -> LedgerCall:
        """Return the call of the next record."""
        if record.begins:
            self._given = self._sent = _NO_REQUEST
        given = record.given.restored(self._given.blocks, self._given)
        sent = given if record.sent is None else record.sent.restored([*self._sent.blocks, *given.blocks], self._sent)
        self._given, self._sent = given, sent
        return LedgerCall(given, sent, record.usage, record.at)


def _lengths(request: BilledRequest) -> list[int]:
    """The number of blocks of each message."""
    return [end - start for start, end in pairwise((*request.starts, len(request.blocks)))]


def _billed_parts(blocks: Sequence[Block], base: Sequence[Block]) -> Iterator[tuple[int | str, int]]:
    """Blocks as runs of those of a base, and those that it does not have."""
    # Of equal blocks the first one counts: what was sent before stands in front of what is given.
    places = {block: len(base) - at for at, block in enumerate(reversed(base), 1)}
    start = count = 0
    for block in blocks:
        if count and start + count < len(base) and base[start + count] == block:
            count += 1
            continue
        if count:
            yield start, count
        start, count = places.get(block, 0), int(block in places)
        if not count:
            yield block
    if count:
        yield start, count


class _BillRecord(Value, frozen=True):
    gateway: GatewayBill
    call: CallRecord | None = None


_decoder = msgspec.json.Decoder(_BillRecord)


def _bill_records(log: Log) -> Iterator[_BillRecord]:
    """The records of bills in a log, newest first."""
    for seq in range(log.tip, -1, -1):
        body = log.event(seq).body
        if isinstance(body, ForeignNoted) and body.format == _FORMAT:
            with suppress(msgspec.DecodeError):
                yield _decoder.decode(body.foreign)


def newest_bill(log: Log) -> GatewayBill | None:
    """Return the newest bill that a log records; `None` if it records none. One comes with each reply, and few events follow it."""
    return next((record.gateway for record in _bill_records(log)), None)


def newest_calls(log: Log) -> list[CallRecord]:
    """Return the newest calls that a log records, oldest first: so many that what older ones have cached matters no more."""
    found: list[CallRecord] = []
    for record in _bill_records(log):
        if record.call is not None:
            found.append(record.call)
            if record.call.begins and len(found) > _WHOLE_EVERY:
                break
    first = next((at for at, call in enumerate(reversed(found)) if call.begins), len(found))
    return found[::-1][first:]


class _SimulatedCache:
    """The requests of one list and the cache that they fill."""

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._rules = cache_rules(card)
        self.prompt = Prompt()
        self.contents: CacheContents = EMPTY_CACHE

    def billed(self, request: BilledRequest, now: int) -> tuple[Prompt, Usage, CacheContents]:
        """Bill a request whose blocks have their sizes, without taking it."""
        prompt = Prompt.of(request.blocks, self.prompt)
        found = bill(prompt, self.contents, now, self._rules, tuple(request.breakpoints)[-MAX_BREAKPOINTS:])
        return prompt, found.usage, found.contents

    def take(self, request: BilledRequest, now: int) -> Usage:
        """Bill a request and fill the cache with it."""
        self.prompt, usage, self.contents = self.billed(request, now)
        return usage

    def live_ends(self, prompt: Prompt, now: int) -> list[int]:
        """The last blocks of the live entries that a prompt begins with, of a cache with breakpoints."""
        links = prompt.links
        live = (each for each in self.contents.entries if now - each.used < each.ttl and each.at_block < len(links))
        return sorted(each.at_block for each in live if links[each.at_block] == each.link)

    def hold(self, request: BilledRequest, blocks: Sequence[int], now: int) -> None:
        """Take it that the provider holds a request up to each of some blocks."""
        prompt = Prompt.of(request.blocks, self.prompt)
        if self._rules.kind == "automatic":
            held = [(prompt.links[: block + 1], now) for block in blocks]
            self.contents = replace(self.contents, prompts=(*self.contents.prompts, *held))
            return
        life = HOUR_MS if any(point.long for point in request.breakpoints) else FIVE_MINUTES_MS
        entries = [CacheEntry(block, prompt.links[block], prompt.sums[block], now, life) for block in blocks]
        self.contents = replace(self.contents, entries=(*self.contents.entries, *entries))

    def lose(self, request: BilledRequest, block: int) -> None:
        """Take it that the provider holds nothing of a request beyond a block."""
        links = Prompt.of(request.blocks, self.prompt).links
        kept = [
            entry
            for entry in self.contents.entries
            if entry.at_block <= block or entry.at_block >= len(links) or links[entry.at_block] != entry.link
        ]
        prompts = [(each[: block + 1] if each[:1] == links[:1] else each, used) for each, used in self.contents.prompts]
        self.contents = CacheContents(tuple(kept), tuple(each for each in prompts if each[0]))


class TwoBills:
    """The simulated caches of one conversation: of the requests that were sent, and of those that were given.

    While both were always the same, both bills are what the provider reported. Once they differ, the second bill is that of the simulated
    cache. Sizes of blocks are measured by the reports. Where a report shows that the provider holds more or
    less than the simulated cache, both caches are set right; a miss that only the sent list has is the gateway's own. `ignored` are the
    parts of the system prompt, by number, that differ in each request and that the provider does not look at.
    """

    def __init__(self, card: ModelCard) -> None:
        self._card = card
        self._is_automatic = card.cache == "automatic"
        # Whether what enters an automatic cache is reported as written; some servers report it as input, whatever the price of a write.
        self._reports_writes = True
        self._sizes = MeasuredSizes()
        self._given, self._sent = self._caches()
        self.ignored: frozenset[int] = frozenset()
        # The digests of all blocks that were given.
        self._seen: set[str] = set()
        # Whether anything was ever sent otherwise than it was given; while nothing was, both bills are the same.
        self.differ = False
        # The newest requests as they were given and as they were sent, with their times.
        self._past: deque[LedgerCall] = deque(maxlen=MOST_PROMPTS)
        # The dollars that the second bill may be too large by, because the sizes of what is hidden are not exact.
        self.unsure = 0.0
        # Whether the provider has read messages once that were to be read: it looks at no line that always changes and is not known.
        self._has_foreseen = False
        self._reports = 0
        self._has_read = False

    def _caches(self) -> tuple[_SimulatedCache, _SimulatedCache]:
        """Empty caches: of what is given, and of what is sent."""
        return _SimulatedCache(self._card), _SimulatedCache(self._card)

    @property
    def has_reports(self) -> bool:
        """Whether the provider has reported enough for sizes to be measured, and for what is cached to be known.

        The second one tells which line that always changes the provider does not look at: until then the cache of a conversation that goes
        on after a restart seems lost. While nothing was read, because tools or the system prompt change, some more tell that nothing is.
        """
        return self._reports >= (_REPORTS_WITH_READ if self._has_read else _REPORTS_WITHOUT_READ)

    def is_steady(self, given: BilledRequest) -> bool:
        """Whether messages were read as they were to be, and all the newest requests have the tools and system prompt of this one.

        Else the same messages may be cached behind others, where an edit loses more than the next request shows.
        """
        head = self._head(given)
        return self._has_foreseen and all(self._head(call.given) == head for call in self._past)

    def _head(self, request: BilledRequest) -> list[str]:
        return [digest for digest, _ in self._named(request).blocks[: request.heads]]

    def has_seen(self, blocks: Iterable[Block]) -> bool:
        """Whether all of some blocks were given before."""
        return all(digest in self._seen for digest, _ in blocks)

    def add(self, given: BilledRequest, sent: BilledRequest, usage: Usage, now: int) -> PricedCall:
        """Bill one call at time `now`, in milliseconds, with the usage that the provider reported."""
        call = LedgerCall(given, sent, usage, now)
        self._reports += 1
        self._seen.update(digest for digest, _ in given.blocks)
        self._has_read = self._has_read or usage.cache_read > 0
        if self._is_automatic and (usage.cache_write or usage.input > self._card.cache_minimum + STEP_TOKENS):
            self._reports_writes = usage.cache_write > 0
        self._learn_beginning(sent, usage, now)
        self._sizes.learn(self._named(sent).blocks, usage.prompt, sent.heads)
        self._learn_ignored(sent, usage, now)
        self._learn_read(sent, usage, now)
        own, other = self.sized(sent), self.sized(given)
        self._set_right(other, own, usage, now)
        given_usage = replace(self._as_reported(self._take(call)), output=usage.output)
        self.unsure += self._unsure(given_usage, now)
        self._past.append(call)
        self.differ = self.differ or given != sent
        more_tokens = self._given.prompt.tokens - self._sent.prompt.tokens
        tokens = max(0, usage.prompt + more_tokens), usage.prompt
        if not self._card.prices.are_known:
            return PricedCall(None, None, *tokens)
        paid = self._dollars(usage, now)
        return PricedCall(paid, self._dollars(given_usage, now) if self.differ else paid, *tokens)

    def _take(self, call: LedgerCall) -> Usage:
        """Fill both caches with a call, and return what it would have used as it was given."""
        given, sent = self.sized(call.given), self.sized(call.sent)
        usage = self._given.take(given, call.at)
        self._sent.take(sent, call.at)
        return usage

    def _dollars(self, usage: Usage, now: int) -> float:
        """The dollars of a usage at the prices of the day of a time in milliseconds."""
        return simulated_cost(usage, self._card.prices.on(price_day(now))).total

    def _unsure(self, given: Usage, now: int) -> float:
        """The dollars by which the newest request as it was given may be too dear, because the sizes of what is hidden are not exact."""
        prompt, shown = self._given.prompt, {digest for digest, _ in self._sent.prompt.blocks}
        hidden = [(block, end) for block, end in zip(prompt.blocks, prompt.sums, strict=True) if block[0] not in shown]
        read = self._likely_error(block for block, end in hidden if end <= given.cache_read)
        written = self._likely_error(block for block, end in hidden if end > given.cache_read)
        return self._dollars(self._as_reported(Usage(cache_read=round(read), cache_write=round(written))), now)

    def _likely_error(self, blocks: Iterable[Block]) -> float:
        """How many tokens some blocks are likely to be off together."""
        measured = self._sizes.is_measured
        return sqrt(sum((self._sizes.error_of(digest) if measured(digest) else _LIKELY_ERROR * size) ** 2 for digest, size in blocks))

    def _error_of(self, blocks: Iterable[Block]) -> float:
        """How many tokens some blocks may be off together: reports were shared out among them, each time with another error."""
        squares = estimated = 0.0
        for digest, size in blocks:
            if self._sizes.is_measured(digest):
                squares += max(_MEASURED_ERROR * size, self._sizes.error_of(digest)) ** 2
            else:
                estimated += _ESTIMATED_ERROR * size
        return sqrt(squares) + estimated

    def sized(self, request: BilledRequest) -> BilledRequest:
        """The request with the sizes that the reports so far measure, and one name for what the provider does not look at."""
        return request._replace(blocks=self._sizes.sized(self._named(request).blocks))

    def cost_sent(self, sized: BilledRequest, now: int) -> float:
        """The dollars that the prompt of a request would cost, with what the requests that were sent have cached."""
        return self._dollars(self._as_reported(self._sent.billed(sized, now)[1]), now)

    def cost_given(self, sized: BilledRequest, now: int) -> float:
        """The dollars that the prompt of a request would cost, if all requests had been sent as they were given."""
        return self._dollars(self._as_reported(self._given.billed(sized, now)[1]), now)

    def _as_reported(self, usage: Usage) -> Usage:
        """A simulated usage as the provider reports it."""
        return usage if self._reports_writes else replace(usage, input=usage.input + usage.cache_write, cache_write=0)

    def doubt(self, one: BilledRequest, other: BilledRequest, now: int) -> float:
        """The dollars by which the difference in cost of two sized requests may be off, because sizes are not exact."""
        shared = shared_prefix_length(one.blocks, other.blocks)
        first, second = dict(one.blocks[shared:]), dict(other.blocks[shared:])
        changed = (*first.items() - second.items(), *second.items() - first.items())
        return self._dollars(Usage(cache_write=round(self._error_of(changed))), now)

    def cached_end(self, sized: BilledRequest, now: int) -> int | None:
        """The last block of the longest live prefix of a request that is about to be sent; `None` if nothing of it is cached."""
        prompt = Prompt.of(sized.blocks, self._sent.prompt)
        return max(self._sent.live_ends(prompt, now), default=None)

    def _named(self, request: BilledRequest) -> BilledRequest:
        """The request with one name for what the provider does not look at."""
        if not self.ignored:
            return request
        return request._replace(blocks=_without_names(request.blocks, self.ignored, request.tools))

    def _learn_beginning(self, sent: BilledRequest, usage: Usage, now: int) -> None:
        """Measure the beginning that an automatic cache has read: it ends, but for a step, where the list differs from those before."""
        if not self._is_automatic or not usage.cache_read:
            return
        request, tokens = self.sized(sent), usage.cache_read + STEP_TOKENS / 2
        prompt, expected, _ = self._sent.billed(request, now)
        end = max((shared_blocks(links, prompt.links) for links, _ in self._sent.contents.prompts), default=0)
        off = abs(usage.cache_read - expected.cache_read)
        if 0 < end <= sent.heads:
            # Of tools alone it says nothing about messages, but their sizes were never told apart.
            if STEP_TOKENS < off <= _HEAD_SIZE_ERROR * expected.cache_read:
                self._sizes.learn_parts(request.blocks, end, round(tokens))
        elif end and end == shared_blocks(self._sent.prompt.links, prompt.links) and off <= self._tolerance(usage):
            self._sizes.learn_beginning(request.blocks[:end], tokens, STEP_TOKENS / 3)

    def _learn_ignored(self, sent: BilledRequest, usage: Usage, now: int) -> None:
        """Find parts of the system prompt that changed, and before which the provider would have stopped reading if it looked at them."""
        while (place := self._changed_part(sent)) is not None:
            prompt, expected, _ = self._sent.billed(self.sized(sent), now)
            before = prompt.sums[place - 1] if place else 0
            if self._end_of(prompt, expected, usage, now) is not None or usage.cache_read <= max(
                before, expected.cache_read
            ) + self._tolerance(usage):
                return
            self.ignored |= {place - sent.tools}
            self._given, self._sent = self._caches()
            for older in self._past:
                self._take(older)
            self._sizes.learn(self._named(sent).blocks, usage.prompt, sent.heads)

    def _changed_part(self, sent: BilledRequest) -> int | None:
        """The first part of the system prompt that the newest request with the same tools had otherwise; `None` without one."""
        own = self._named(sent).blocks[: sent.heads]
        for call in reversed(self._past):
            older = call.sent
            known = self._named(older).blocks[: older.heads]
            place = next((at for at, (one, other) in enumerate(zip(own, known, strict=False)) if one[0] != other[0]), None)
            if place is not None and place >= sent.tools == older.tools:
                return place
        return None

    def _learn_read(self, sent: BilledRequest, usage: Usage, now: int) -> None:
        """Measure the beginning that a cache with breakpoints has read: it ends where an entry of it does."""
        request = self.sized(sent)
        prompt, expected, _ = self._sent.billed(request, now)
        end = self._end_of(prompt, expected, usage, now)
        if end is not None:
            self._sizes.learn_parts(request.blocks, end + 1, usage.cache_read, usage.prompt)

    def _end_of(self, prompt: Prompt, expected: Usage, usage: Usage, now: int) -> int | None:
        """The last block of the live entry whose tokens are about those that were read, before others of that which is to be read.

        `None` if there is none, or no entries.
        """
        read = usage.cache_read
        ends = self._sent.live_ends(prompt, now) if read and not self._is_automatic else ()
        if abs(expected.cache_read - read) <= _SIZE_ERROR * read + _TOLERANCE_TOKENS:
            # Entries of small messages are nearer to each other than sizes are known.
            ends = [end for end in ends if prompt.sums[end] == expected.cache_read] or ends
        nearest = min(ends, key=lambda end: abs(prompt.sums[end] - read), default=None)
        return nearest if nearest is not None and abs(prompt.sums[nearest] - read) <= _SIZE_ERROR * read + _TOLERANCE_TOKENS else None

    def _set_right(self, given: BilledRequest, sent: BilledRequest, usage: Usage, now: int) -> None:
        """Set the caches right where the provider read more or less than expected."""
        prompt, expected, _ = self._sent.billed(sent, now)
        read, tolerance = usage.cache_read, self._tolerance(usage)
        if not usage.prompt or abs(read - expected.cache_read) <= tolerance:
            self._has_foreseen = self._has_foreseen or read > (prompt.sums[sent.heads - 1] if sent.heads else 0)
            return
        block = _nearest(prompt.sums, read)
        if read > expected.cache_read and not self._is_automatic:
            # What was read ends where a breakpoint finds it.
            found_at = filter(sent.finds, range(len(prompt.sums)))
            block = min(found_at, key=lambda end: abs(prompt.sums[end] - read), default=block)
        same = shared_blocks(prompt.links, Prompt.of(given.blocks, self._given.prompt).links)
        # Behind the edits both lists have the same messages, counted from their ends.
        place = block if block < same else max(same - 1, block + len(given.blocks) - len(sent.blocks))
        if read > expected.cache_read:
            self._sent.hold(sent, (block,), now)
            self._given.hold(given, (place,), now)
            return
        shared = prompt.sums[same - 1] if same else 0
        if not self._is_automatic:
            found = [end for end in self._sent.live_ends(prompt, now) if end < same and sent.finds(end)]
            # Of a beginning that is shared with no other report, the size may be off.
            shared = round((1 - _SIZE_ERROR) * max((prompt.sums[end] for end in found), default=0))
        self._sent.lose(sent, block)
        # What both lists share is not read either, so that the provider has dropped it; else the miss is one of the edits.
        if same == len(sent.blocks) == len(given.blocks) or read < shared - tolerance:
            self._given.lose(given, place)

    def _tolerance(self, usage: Usage) -> float:
        return max(_TOLERANCE * usage.prompt, _TOLERANCE_TOKENS, 2 * STEP_TOKENS if self._is_automatic else 0)


def _nearest(sums: Sequence[int], tokens: int) -> int:
    """The block whose end is nearest to so many tokens; -1 is the beginning."""
    after = bisect_right(sums, tokens)
    before = sums[after - 1] if after else 0
    return after if after < len(sums) and sums[after] - tokens < tokens - before else after - 1


def _without_names(blocks: Sequence[Block], parts: Collection[int], tools: int) -> tuple[Block, ...]:
    return tuple([(f"~{part}", block[1]) if part in parts else block for part, block in enumerate(blocks, -tools)])
