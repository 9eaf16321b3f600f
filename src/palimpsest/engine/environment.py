"""The environment of a session: stores, clock, files, models, tools, and a way to run work outside the event loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from palimpsest.core.errors import NoModel
from palimpsest.core.policy import Look
from palimpsest.core.ports import Blobs, Clock, Provider, Sendable, SessionStore
from palimpsest.core.situation import CacheAccount
from palimpsest.core.view import View
from palimpsest.providers.retrying import DEFAULT, RetryPolicy
from palimpsest.wire.encode import Encoder
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import CARDS, ModelCard
from palimpsest.wire.request import Params, Tool

Result = TypeVar("Result")


class Encoded(Sendable, Protocol):
    """An encoded request with the facts that are recorded about it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the request body, in hex."""
        ...

    @property
    def breakpoints(self) -> tuple[str, ...]:
        """The items, or `head:n`, at the cache breakpoints of the request."""
        ...


class RequestEncoder(Protocol):
    """Encodes the successive views of one session."""

    def encode(self, view: View) -> Encoded:
        """Return the request that shows a view."""
        ...

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """Return an encoder for other parameters or tools."""
        ...


class Offload(Protocol):
    """Runs a slow function without blocking the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return the result of the function."""
        ...


@dataclass(frozen=True, slots=True)
class GrantedTool:
    """A tool that a plan may grant to a side call: its declaration, and the function that gets the arguments and returns the output."""

    tool: Tool
    run: Callable[[str], Awaitable[str]]


def nothing_to_look_at(_: Look) -> str | None:
    """Return `None`: an environment without files and facts."""
    return None


async def no_hooks(tokens: int) -> None:
    """Do nothing: an environment without hooks."""


def no_provider(card: ModelCard, purpose: str) -> Provider:
    """Raise `NoModel`: an environment without models."""
    raise NoModel(f"no model is available for {purpose}; set an API key or name a model, or go on without", where=card.name)


def _encoder(card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> RequestEncoder:
    return Encoder(card, tools, params, fetch)


class SessionThread:
    """Runs functions one after the other in a thread of its own, which ends with the environment that uses it.

    A thread has a heap of its own in the C library, which grows to the size of the largest request that is made there. The threads of
    asyncio take turns, so that there would be one such heap for each of them.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "session")

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        """Run a function and return its result. A cancelled task ends only after the function has."""
        return await _completed(self._thread, work)


async def in_thread(work: Callable[[], Result], /) -> Result:
    """Run a function in any thread and return its result. A cancelled task ends only after the function has."""
    return await _completed(None, work)


async def _completed(threads: ThreadPoolExecutor | None, work: Callable[[], Result]) -> Result:
    """Run a function in a thread, one of asyncio's if `threads` is `None`, and return its result.

    A thread cannot be stopped, and the session must not continue while a thread still works on its log.
    """
    context = copy_context()
    running = asyncio.get_running_loop().run_in_executor(threads, lambda: context.run(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        if not running.cancelled():
            # Retrieved, because asyncio reports exceptions that were never retrieved.
            running.exception()
        raise


async def inline(work: Callable[[], Result], /) -> Result:
    """Run a function immediately and return its result, for replays and tests without an event loop."""
    return work()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside of the library that a session uses.

    `provider` returns the provider for a card and a purpose, or raises `NoModel`. `keep` writes a file of the session that other programs
    can read, and returns its path; `create` does so for a new file of the working folder. `look` reads a file or a fact. `tools` are
    those that plans may grant. `retries` is the retry policy
    of failed calls, `sleep` waits a number of seconds, and `chance` returns a random number from 0 to 1. `before_fold` gets the size of
    the view in tokens before a fold that a policy planned is installed. `earlier` returns what the caches of the user's earlier sessions
    cost and the pauses in them; it is called once, when that first matters. `transcript` is the path of the log, if it is a file.
    """

    store: SessionStore
    blobs: Blobs
    clock: Clock
    keep: Callable[[str, bytes], str] | None = None
    look: Callable[[Look], str | None] = nothing_to_look_at
    cards: Iterable[ModelCard] = CARDS
    provider: Callable[[ModelCard, str], Provider] = no_provider
    tools: Mapping[str, GrantedTool] = field(default_factory=dict)
    encoder: Callable[[ModelCard, tuple[Tool, ...], Params, Fetch], RequestEncoder] = _encoder
    offload: Offload = field(default_factory=SessionThread)
    retries: RetryPolicy = DEFAULT
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    before_fold: Callable[[int], Awaitable[None]] = no_hooks
    earlier: Callable[[], CacheAccount] = CacheAccount
    transcript: str = ""
    create: Callable[[str, bytes], str] | None = None

    @property
    def offload_long(self) -> Offload:
        """As `offload`, for functions that may take minutes: what the session does meanwhile does not wait for them."""
        return in_thread if isinstance(self.offload, SessionThread) else self.offload
