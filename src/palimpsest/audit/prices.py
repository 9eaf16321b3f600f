"""Prices of edits and the rent of delaying a fold, cache lifetimes, and the costs and pauses of a session."""

from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from palimpsest.audit.cache import (
    FIVE_MINUTES_MS,
    HOUR_MS,
    Block,
    Breakpoint,
    CacheContents,
    CacheEntry,
    CacheProjection,
    Prompt,
    WarmPrefixes,
    bill,
    cache_rules,
    first_change,
    shared_head_blocks,
    warm_prefixes,
)
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.reasoning import reasoning_lost, thinking_behind
from palimpsest.audit.sizes import Metering
from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied, TurnStarted, Usage, ViewEdited
from palimpsest.core.items import Fold, ReasoningLost, Value
from palimpsest.core.ledger import job_purpose
from palimpsest.core.plans import PARTS, Cache, CacheAccount, Evidence, ModelCard, Situation
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import Scope, StateProjection, View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.encode import is_bound
from palimpsest.wire.models import Tariff


class Rates(Value, frozen=True):
    """Prices relative to the input price."""

    write: float
    read: float
    output: float


# What is assumed of a model whose prices are not known: of the cheapest reads that there are with breakpoints, so that an edit has to
# save more before it pays.
_UNPRICED_BREAKPOINTS: Final = Rates(1.25, 0.025, 5.0)
_UNPRICED_AUTOMATIC: Final = Rates(1.0, 0.1, 5.0)


def rates_of(card: ModelCard, cache: Cache) -> Rates:
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


def tokens_after_fold(view: View, evidence: Evidence, counter: CountsTokens, card: ModelCard, parts: int = PARTS) -> int:
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
    view: View, evidence: Evidence, counter: CountsTokens, card: ModelCard, *, parts: int = PARTS, total: int | None = None
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

    def __init__(self, views: ViewProjection, metering: Metering, evidence: EvidenceProjection, *, parts: int) -> None:
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
    prices = card.prices
    if not prices.are_known:
        return Price(reasoning_lost=lost)
    saved = counter.total(before) - counter.total(after)
    now, then = next_bills(before, after, situation, saved)
    rates, tariff = rates_of(card, situation.cache), Tariff(prices)
    thought = 0 if lost is None else lost.tokens or 0
    again = situation.rethought * tariff.bill(Usage(output=thought), prompt=0).total
    usd = tariff.bill(then).total - tariff.bill(now).total + again
    return Price(usd, tariff.usd(saved * rates.read), lost)


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
    blocks = _cached_stretches(warm, place, total)
    rules = cache_rules(situation.card)
    last = len(blocks) - 1
    long = bool(situation.cache.prefixes) and situation.cache.prefixes[-1].ttl > FIVE_MINUTES_MS
    breakpoints = tuple(Breakpoint(at, long) for at in dict.fromkeys((last - 1, last)) if at >= 0) if rules.kind == "breakpoints" else ()
    return bill(Prompt.of(blocks), contents, situation.now, rules, breakpoints).usage


def _cached_stretches(warm: WarmPrefixes, place: int, total: int) -> list[Block]:
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


# What is believed of a user before anything is known, as if so many pauses had been seen: half of the pauses that outlast five minutes
# outlast ten, and after two of five pauses at the end of a turn the user does not come back.
_BELIEVED: Final = 4
_NEVER_BACK: Final = 0.4
# Shares of the cost of a session that may be lost: by choices of a lifetime and by edits, and with reads that keep a prefix alive.
LIFETIME_LOSS: Final = 0.01
KEEP_ALIVE_LOSS: Final = 0.05
# Keep-alive reads in one pause, whatever is believed: about as many as cost one write.
MOST_READS: Final = 11


class CacheLifetime(Value, frozen=True):
    """A lifetime of cache entries in milliseconds, and the price of writing a token that lives so long, in input tokens."""

    ms: int
    write: float


class CacheTariff(Value, frozen=True):
    """Prices of a cache in input tokens: of a read, of a token of a reply, and of a write for the default and the extended lifetime.

    Both lifetimes are the same where there is only one.
    """

    read: float
    output: float
    short: CacheLifetime
    long: CacheLifetime

    def lifetime(self, ms: int) -> CacheLifetime:
        """The lifetime that lasts so many milliseconds; the default one if there is none."""
        return self.long if ms == self.long.ms else self.short


def tariff_of(card: ModelCard) -> CacheTariff | None:
    """The tariff of a model; `None` if it has no prices, reads that cost as much as input or nothing, or no lifetime that can be relied on.

    Automatic caches promise none: of five recorded sessions with one, keep-alive would have made four dearer.
    """
    prices = card.prices
    if card.cache != "breakpoints" or not prices.input or not prices.cache_read or prices.cache_read >= prices.input:
        return None
    write = 1.0 if prices.cache_write is None else prices.cache_write / prices.input
    short = long = CacheLifetime(FIVE_MINUTES_MS, write)
    if prices.cache_write_long is not None:
        long = CacheLifetime(HOUR_MS, prices.cache_write_long / prices.input)
    return CacheTariff(prices.cache_read / prices.input, prices.output / prices.input, short, long)


def joined(account: CacheAccount, earlier: CacheAccount) -> CacheAccount:
    """The account of a session with the pauses of the user's earlier sessions; costs are those of the session alone."""
    return CacheAccount(
        account.paid,
        account.short,
        account.long,
        (*earlier.working, *account.working),
        (*earlier.waiting, *account.waiting),
        earlier.ends + account.ends,
    )


def survival(account: CacheAccount, ms: int, *, working: bool) -> float:
    """The expected share of the pauses of more than five minutes that last longer than `ms`; `working` are those inside of a turn.

    It is the empirical share of what was seen, together with what is believed of any user.
    """
    if ms <= FIVE_MINUTES_MS:
        return 1.0
    believed = FIVE_MINUTES_MS / ms
    seen, ends = (account.working, 0) if working else (account.waiting, account.ends)
    if not working:
        believed = _NEVER_BACK + (1 - _NEVER_BACK) * believed
    longer = sum(pause > ms for pause in seen) + ends
    return (_BELIEVED * believed + longer) / (_BELIEVED + len(seen) + ends)


def reads_worth(
    account: CacheAccount, tariff: CacheTariff, lifetime_ms: int, interval_ms: int, *, working: bool, done: int = 0, most: int = MOST_READS
) -> int:
    """How many reads of a prefix in one pause pay, those `done` included; `done` if no further one does.

    A read can be made every `interval_ms`, and is made at the last such time before the prefix expires. Each costs one read if the pause
    still lasts, and saves a write if the next request comes in the time that it adds.
    """
    spacing = max(interval_ms, (lifetime_ms - 1) // interval_ms * interval_ms)
    saved = tariff.lifetime(lifetime_ms).write - tariff.read
    gain, best, wanted = 0.0, 0.0, done
    for number in range(done + 1, most + 1):
        covered = spacing * (number - 1) + lifetime_ms
        gain -= tariff.read * survival(account, spacing * number, working=working)
        gain += saved * (survival(account, covered, working=working) - survival(account, covered + spacing, working=working))
        if gain > best:
            best, wanted = gain, number
    return wanted


def allowance(account: CacheAccount, own_ms: int, loss: float) -> float:
    """Input tokens that may be risked now: what was saved so far, and the share `loss` of what the session would have cost.

    `own_ms` is the lifetime of prefixes if nothing chooses.
    """
    plain = account.long if own_ms == HOUR_MS else account.short
    return (1 + loss) * plain - account.paid


def room_of(bills: tuple[float, float], loss: float) -> float:
    """Input tokens that may be risked now, from two bills: what was paid, and what the same requests would have cost sent directly.

    No risk within this room, whatever comes after it, makes the first bill more than the share `loss` higher than the second.
    """
    paid, direct = bills
    return (1 + loss) * direct - paid


def reserve(tariff: CacheTariff, own_ms: int, lifetime_ms: int, tokens: int) -> float:
    """Input tokens that a live prefix of so many `tokens` may still lose, because it lives for less than `own_ms`; 0 if it does not.

    A pause that only the longer lifetime outlasts costs a write at the price of that lifetime where it would have been a read.
    """
    own = tariff.lifetime(own_ms)
    return (own.write - tariff.read) * tokens if lifetime_ms < own.ms else 0.0


def chosen_lifetime(
    account: CacheAccount,
    earlier: CacheAccount,
    tariff: CacheTariff,
    own_ms: int,
    *,
    cached: tuple[int, int] | None,
    tokens: int,
    loss: float = LIFETIME_LOSS,
    bills: tuple[float, float] | None = None,
) -> int:
    """The lifetime in milliseconds for the entries of the next request, which has `tokens` tokens.

    `own_ms` is the lifetime if nothing chooses, `cached` the tokens and the lifetime of the longest live prefix, `None` if there is none.
    The other lifetime is chosen only when everything is written anyway, because what an entry for an hour is worth behind one for five
    minutes is not certain. It is chosen if it would have been cheaper so far, in this session and in earlier ones, and as long as what it
    can lose is covered: by the share `loss` of the cost, by what was saved, or by what it would have saved in earlier sessions. Where
    there are two `bills`, the room between them alone covers it.
    """
    own, other = (tariff.long, tariff.short) if own_ms == tariff.long.ms else (tariff.short, tariff.long)
    proven = earlier.long - earlier.short if own is tariff.long else earlier.short - earlier.long
    room = allowance(account, own_ms, loss) + max(0.0, proven) if bills is None else room_of(bills, loss)
    longer = other.ms > own.ms
    if cached is not None:
        at_risk = (other.write - own.write) * (tokens - cached[0]) if longer else reserve(tariff, own_ms, other.ms, tokens)
        return other.ms if cached[1] == other.ms and at_risk <= room else own.ms
    would_be = account.long if longer else account.short
    # An hour that is not needed costs the dearer write. Five minutes may not have sufficed before this request, where an hour would have
    # been a read, and may not suffice after it.
    at_risk = (other.write - (own.write if longer else tariff.read)) * tokens + reserve(tariff, own_ms, other.ms, tokens)
    return other.ms if account.paid - would_be + proven > 0 and at_risk <= room else own.ms


KEEP_ALIVE: Final = "keep_alive"
# The newest pauses of each kind that are kept; older ones say less about the user of today.
MOST_PAUSES: Final = 64


class StartedCall(Value, frozen=True):
    """A call on its way: the pause before it in milliseconds, the tokens of the prefix that it can read, and whether that is live.

    `at` is its time in milliseconds, and `working` whether it goes on with a turn.
    """

    pause: int = 0
    prefix: int = 0
    live: bool = False
    at: int = 0
    working: bool = False


class _AccountSnapshot(Value, frozen=True):
    """The account, the open call, the time in milliseconds of the newest that was answered, and whether a turn has started since."""

    account: CacheAccount = CacheAccount()
    call: StartedCall | None = None
    called: int | None = None
    new_turn: bool = False


class AccountProjection(StateProjection):
    """Projection of the account of the cache, from the calls of turns and the reads that kept a prefix alive."""

    name: ClassVar = "cache_account"
    version: ClassVar = 2
    watches: ClassVar = frozenset({TurnStarted, CallStarted, ModelReplied, Interrupted, Failed})
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = _AccountSnapshot

    def __init__(self, metering: Metering, cache: CacheProjection) -> None:
        self._metering = metering
        self._cache = cache
        self.reset()

    def start_from(self, state: _AccountSnapshot) -> None:
        """Replace the state."""
        self._state = state

    def snapshot(self) -> bytes:
        """The state as JSON."""
        return msgspec.json.encode(self._state)

    def value(self) -> CacheAccount:
        """The account after the last event."""
        return self._state.account

    def take(self, event: Event) -> None:
        """Apply one event."""
        state, body = self._state, event.body
        match body:
            case TurnStarted():
                self._state = replace(state, new_turn=True)
            case CallStarted(purpose="turn"):
                self._start_call(event.at)
            case ModelReplied(purpose="turn", usage=usage):
                self._answer(usage)
            case Interrupted(purpose="turn", parts=parts, usage=usage) if parts or usage.prompt:
                self._answer(usage)
            case Interrupted(purpose="turn") | Failed(what="call", purpose="turn"):
                self._state = replace(state, call=None)
            case ModelReplied(purpose=purpose, usage=usage) if purpose == job_purpose(KEEP_ALIVE):
                tariff = tariff_of(self._metering.card)
                if tariff is not None:
                    self._state = replace(state, account=replace(state.account, paid=state.account.paid + price(usage, tariff)))
            case _:
                pass

    def _start_call(self, at: int) -> None:
        state = self._state
        pause = 0 if state.called is None else max(0, at - state.called)
        longest = max(self._cache.readable, key=lambda prefix: prefix.tokens, default=None)
        prefix = (0, False) if longest is None else (longest.tokens, longest.live(at))
        self._state = replace(state, call=StartedCall(pause, *prefix, at, not state.new_turn))

    def _answer(self, usage: Usage) -> None:
        """Count the open call: the pause before it, and what it cost."""
        state, call, tariff = self._state, self._state.call, tariff_of(self._metering.card)
        if call is None:
            return
        account = with_pause(state.account, call.pause, working=call.working)
        if usage.prompt and tariff is not None:
            account = after_call(account, call, usage, tariff)
        self._state = _AccountSnapshot(account, called=call.at)


def with_pause(account: CacheAccount, pause: int, *, working: bool) -> CacheAccount:
    """The account after a pause of so many milliseconds; one that no cache notices is not kept."""
    if pause <= FIVE_MINUTES_MS:
        return account
    if working:
        return replace(account, working=(*account.working, pause)[-MOST_PAUSES:])
    return replace(account, waiting=(*account.waiting, pause)[-MOST_PAUSES:])


def after_call(account: CacheAccount, call: StartedCall, usage: Usage, tariff: CacheTariff) -> CacheAccount:
    """The account after a reply: what was paid, and what the same call would have cost under each lifetime without keep-alive."""
    # What was read says what could be read, unless the prefix had expired.
    prefix = usage.cache_read if call.live else max(usage.cache_read, min(call.prefix, usage.prompt))
    reply, cached = tariff.output * usage.output, usage.prompt - usage.input

    def plain(lifetime: CacheLifetime) -> float:
        read = min(prefix, cached) if call.pause < lifetime.ms else 0
        return usage.input + tariff.read * read + lifetime.write * (cached - read) + reply

    return replace(
        account,
        paid=account.paid + price(usage, tariff),
        short=account.short + plain(tariff.short),
        long=account.long + plain(tariff.long),
    )


def price(usage: Usage, tariff: CacheTariff) -> float:
    """What a call cost, in input tokens."""
    written = tariff.short.write * usage.cache_write + tariff.long.write * usage.cache_write_long
    return usage.input + tariff.read * usage.cache_read + written + tariff.output * usage.output
