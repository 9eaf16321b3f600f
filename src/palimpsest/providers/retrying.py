"""Asks again when a provider failed in a way that may pass: how long to wait, and a provider that does."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from palimpsest.core.errors import ConnectionLost, PalimpsestError, PromptTooLong, ProviderError, StreamCut
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.ports import Provider, Sendable, closing

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long to wait: `retries` attempts after the first, and `total` seconds of waiting at most.

    A wait begins at `first` seconds, doubles up to `longest`, and is shortened or stretched by up to `jitter` of itself.
    """

    retries: int = 8
    first: float = 0.5
    longest: float = 30.0
    total: float = 300.0
    jitter: float = 0.25


DEFAULT = RetryPolicy()
NO_RETRIES = RetryPolicy(retries=0)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: too many requests, a fault of the server, or a connection that was lost."""
    if isinstance(error, ConnectionLost | StreamCut):
        return True
    if not isinstance(error, ProviderError) or isinstance(error, PromptTooLong) or error.status is None:
        return False
    return error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERRORS


def retry_delay(error: Exception, attempt: int, policy: RetryPolicy = DEFAULT, *, waited: float = 0.0, chance: float = 0.5) -> float | None:
    """Seconds to wait before asking again after `attempt` attempts failed, the last with `error`; `None` when it must not be asked again.

    Only for an attempt of which nothing arrived. `waited` are the seconds of the waits before, and `chance` is a number from 0 to 1 that
    decides within the jitter. A provider that names a time is asked no earlier, and not at all if that time is beyond `total`.
    """
    if attempt > policy.retries or not is_transient(error):
        return None
    told = error.retry_after if isinstance(error, ProviderError) else None
    if told is not None:
        # Only longer, never shorter: many clients get the same time and must not all return at it.
        wait = told * (1 + policy.jitter * chance)
        wait = min(wait, max(told, policy.total - waited))
    else:
        wait = min(policy.first * 2.0 ** (attempt - 1), policy.longest) * (1 + policy.jitter * (2 * chance - 1))
    return wait if waited + wait <= policy.total else None


class RetryingProvider:
    """A provider that asks another one again while nothing of the reply has arrived; what then fails is raised as it is."""

    def __init__(
        self,
        provider: Provider,
        policy: RetryPolicy = DEFAULT,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._sleep = sleep
        self._chance = chance

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        """Deltas of the attempt that succeeds as they come, and last the whole reply."""
        attempt, waited = 1, 0.0
        while True:
            arrived = False
            try:
                async with closing(self._provider.stream(request)) as stream:
                    async for each in stream:
                        arrived = True
                        yield each
            except PalimpsestError as error:
                wait = None if arrived else retry_delay(error, attempt, self._policy, waited=waited, chance=self._chance())
                if wait is None:
                    raise
            else:
                return
            await self._sleep(wait)
            attempt, waited = attempt + 1, waited + wait
