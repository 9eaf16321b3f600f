"""Retries of transient provider errors: the retry policy, the delay before each retry, and a retrying provider."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from palimpsest.core.deltas import Delta
from palimpsest.core.errors import ConnectionLost, PalimpsestError, PromptTooLong, ProviderError, StreamCut, TimedOut
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Provider, Sendable, closing

# Request timeout, conflict (a lock that another request holds) and rate limit; the clients of the providers retry them too.
_TRANSIENT = frozenset({408, 409, 429})
_SERVER_ERRORS = 500
# Each time-out has taken minutes, so fewer of them are tried again.
_MOST_TIME_OUTS = 2


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retries: at most `retries` attempts after the first, and at most `total` seconds of delays.

    The delay starts at `first` seconds, doubles up to `longest`, and varies by up to the share `jitter` in both directions.
    """

    retries: int = 8
    first: float = 0.5
    longest: float = 30.0
    total: float = 300.0
    jitter: float = 0.25


DEFAULT = RetryPolicy()
NO_RETRIES = RetryPolicy(retries=0)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: after a rate limit, a server error, a time-out or a lost connection."""
    if isinstance(error, ConnectionLost | StreamCut | TimedOut):
        return True
    if not isinstance(error, ProviderError) or isinstance(error, PromptTooLong) or error.status is None:
        return False
    return error.status in _TRANSIENT or error.status >= _SERVER_ERRORS


def retry_delay(error: Exception, attempt: int, policy: RetryPolicy = DEFAULT, *, waited: float = 0.0, chance: float = 0.5) -> float | None:
    """Return the seconds to wait after `attempt` failed attempts, the last with `error`; `None` if there must be no retry.

    It must be used only if nothing of the reply has arrived. `waited` are the seconds of earlier delays; `chance`, from 0 to 1, selects
    the jitter. A delay that the provider requests is never shortened, and if it exceeds `total` there is no retry.
    """
    most = min(policy.retries, _MOST_TIME_OUTS) if isinstance(error, TimedOut) else policy.retries
    if attempt > most or not is_transient(error):
        return None
    requested = error.retry_after if isinstance(error, ProviderError) else None
    if requested is not None:
        # Only longer, never shorter: many clients get the same time and must not all return at it.
        delay = requested * (1 + policy.jitter * chance)
        delay = min(delay, max(requested, policy.total - waited))
    else:
        delay = min(policy.first * 2.0 ** (attempt - 1), policy.longest) * (1 + policy.jitter * (2 * chance - 1))
    return delay if waited + delay <= policy.total else None


class RetryingProvider:
    """Wraps a provider and retries transient errors as long as nothing of the reply has arrived."""

    def __init__(
        self,
        provider: Provider,
        policy: RetryPolicy = DEFAULT,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.api_version = str(getattr(provider, "api_version", ""))
        self._provider = provider
        self._policy = policy
        self._sleep = sleep
        self._chance = chance

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Yield the deltas of the first attempt that delivers any, then the complete reply. Raises the error of the last attempt."""
        attempt, waited = 1, 0.0
        while True:
            arrived = False
            try:
                async with closing(self._provider.stream(request)) as stream:
                    async for part in stream:
                        arrived = True
                        yield part
            except PalimpsestError as error:
                wait = None if arrived else retry_delay(error, attempt, self._policy, waited=waited, chance=self._chance())
                if wait is None:
                    raise
            else:
                return
            await self._sleep(wait)
            attempt, waited = attempt + 1, waited + wait
