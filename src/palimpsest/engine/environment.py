"""What a session finds around it: stores, time, files, models, tools, and a way to work off the event loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from palimpsest.core.errors import NoModel
from palimpsest.core.policy import Look
from palimpsest.core.ports import Blobs, Clock, Provider, Sendable, SessionStore
from palimpsest.core.view import View
from palimpsest.providers.retrying import DEFAULT, RetryPolicy
from palimpsest.wire.encode import Encoder
from palimpsest.wire.encoding.media import Fetch
from palimpsest.wire.models.cards import CARDS, ModelCard
from palimpsest.wire.request import Params, Tool

Result = TypeVar("Result")


class Encoded(Sendable, Protocol):
    """A request that can leave, with what is recorded of it."""

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes."""
        ...

    @property
    def breakpoints(self) -> tuple[str, ...]:
        """The items, or `head:n`, at its cache breakpoints."""
        ...


class RequestEncoder(Protocol):
    """Encodes the views of one session, one after the other."""

    def encode(self, view: View) -> Encoded:
        """The request that shows a view."""
        ...

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """An encoder for other parameters or tools."""
        ...


class Offload(Protocol):
    """Runs a function that takes long where it does not block the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """The result of the work, once it is done."""
        ...


@dataclass(frozen=True, slots=True)
class GrantedTool:
    """A tool that a side call may be granted: its declaration, and what runs it. `run` gets the arguments and returns the output."""

    tool: Tool
    run: Callable[[str], Awaitable[str]]


def nothing_to_look_at(_: Look) -> str | None:
    """An environment in which there is nothing to look at."""
    return None


def no_provider(card: ModelCard, purpose: str) -> Provider:
    """An environment without models. Raises `NoModel`."""
    raise NoModel(f"no model is at hand for {purpose}; set a key or name a model, or go on without", where=card.name)


def _encoder(card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> RequestEncoder:
    return Encoder(card, tools, params, fetch)


async def in_thread(work: Callable[[], Result], /) -> Result:
    """Runs a function in a thread. When the task is cancelled, it ends once the function has.

    A thread cannot be stopped, and a session must not go on beside one that still works on its log.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        if not running.cancelled():
            # Asked for, because an error that is never looked at is reported as lost.
            running.exception()
        raise


async def inline(work: Callable[[], Result], /) -> Result:
    """Runs a function at once: for replays and tests, which have no event loop to keep free."""
    return work()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside that a session uses.

    `provider` gives the model behind a card, for the purpose of a call, or raises `NoModel`. `keep` writes a file of the session that
    other programs can read, and returns its path. `look` reads a file or a fact. `tools` are those that plans may be granted.
    `retries` says how often a call that failed is tried again, `sleep` waits some seconds, and `chance` is a number from 0 to 1.
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
    offload: Offload = in_thread
    retries: RetryPolicy = DEFAULT
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
