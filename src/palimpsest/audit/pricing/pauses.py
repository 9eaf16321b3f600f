"""The account of a session's cache: what its calls cost, what they would have cost otherwise, and the pauses between them."""

from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from palimpsest.audit.pricing.bill import FIVE_MINUTES_MS
from palimpsest.audit.pricing.cache_state import CacheProjection
from palimpsest.audit.pricing.keeping import CacheLifetime, CacheTariff, tariff_of
from palimpsest.audit.pricing.metering import Metering
from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied, TurnStarted, Usage
from palimpsest.core.items import Value
from palimpsest.core.projections.jobs import job_purpose
from palimpsest.core.projections.projection import Scope, StateProjection
from palimpsest.core.situation import CacheAccount

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
