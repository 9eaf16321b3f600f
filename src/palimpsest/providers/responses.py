"""What the providers over HTTP share: reading a response into deltas and a reply, and mapping errors without credentials."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec.structs import replace

from palimpsest.core.errors import PalimpsestError, ProviderError, ReplyTooLong, ThinkingRefused
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta, deltas_of
from palimpsest.core.ports import closing
from palimpsest.providers.redactor import Redactor
from palimpsest.providers.retry_after import rate_limits, retry_after
from palimpsest.wire.encoding.tools import Names
from palimpsest.wire.failures import http_error, mismatch_facts
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.stream import Decoder, decode_response, decoder

Opened = TypeVar("Opened")
# Bytes of an error page that are read for its message.
_ERROR_BYTES: Final = 1_000_000
_MISMATCH: Final = "anthropic-thinking-prefix-mismatch"


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """The most that one reply may be: bytes of its body, events of its stream, and seconds from the request to its end.

    The defaults are several times what the longest replies of today need. The bytes must fit into one line of a log.
    """

    bytes: int = 48_000_000
    events: int = 1_000_000
    seconds: float = 3_600.0


DEFAULT_LIMITS: Final = ReplyLimits()


@dataclass(slots=True)
class ReplyMeter:
    """Counts what arrives of one reply from `provider`, and raises `ReplyTooLong` beyond its limits."""

    limits: ReplyLimits
    provider: str
    _bytes: int = 0
    _begun: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @asynccontextmanager
    async def opened(self, response: AbstractAsyncContextManager[Opened]) -> AsyncIterator[Opened]:
        """Open a response within the seconds of the reply, and close it at the end."""
        async with AsyncExitStack() as stack:
            async with self._in_time():
                entered = await stack.enter_async_context(response)
            yield entered

    async def chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks of a body as they arrive, up to the limits of bytes and of seconds."""
        while True:
            async with self._in_time():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            self._bytes += len(chunk)
            if self._bytes > self.limits.bytes:
                raise self._error(f"more than {self.limits.bytes / 1_000_000:g} MB arrived", "reply_megabytes")
            yield chunk

    def count_events(self, events: int) -> None:
        """Raise `ReplyTooLong` if a stream has more events than allowed."""
        if events > self.limits.events:
            raise self._error(f"more than {self.limits.events:,} events arrived", "reply_events")

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(self._begun + self.limits.seconds) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._error(f"it took more than {self.limits.seconds:g} seconds", "reply_seconds") from error

    def _error(self, what: str, key: str) -> ReplyTooLong:
        return ReplyTooLong(f"the reply was stopped because it did not end: {what}; ask again, or raise {key}", where=self.provider)


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """A response whose body has not been read: its headers, and a function that reads the chunks of its body as they arrive."""

    headers: Mapping[str, str]
    chunks: Callable[[], AsyncIterator[bytes]]


async def read_reply(
    response: OpenResponse, wire: WireName, card: ModelCard, names: Names, meter: ReplyMeter
) -> AsyncGenerator[Delta | ModelReplied, None]:
    """Yield the deltas of a response as they arrive, then the complete reply. A server that does not stream gets its deltas here.

    Raises `ReplyTooLong` if the response does not end within the limits of `meter`.
    """
    limits = rate_limits(response.headers, time.time())
    async with closing(response.chunks()) as chunks, closing(meter.chunks(chunks)) as bounded:
        if "event-stream" not in response.headers.get("content-type", ""):
            reply = decode_response(wire, b"".join([chunk async for chunk in bounded]), card, names)
            for delta in deltas_of(reply.parts):
                yield delta
            yield replace(reply, limits=limits)
            return
        decoding = decoder(wire, card, names)
        async with closing(_deltas(bounded, decoding, meter)) as deltas:
            async for delta in deltas:
                yield delta
    yield replace(decoding.finish(), limits=limits)


async def first_bytes(chunks: AsyncIterator[bytes], most: int = _ERROR_BYTES) -> bytes:
    """Return the first bytes of a body, for the message of an error."""
    found = b""
    async with closing(chunks) as parts:
        async for chunk in parts:
            found += chunk
            if len(found) >= most:
                break
    return found[:most]


async def _deltas(chunks: AsyncIterator[bytes], decoding: Decoder, meter: ReplyMeter) -> AsyncIterator[Delta]:
    """Yield the deltas of a stream; an error of the connection after the complete reply is ignored."""
    try:
        async for chunk in chunks:
            for delta in decoding.deltas(chunk):
                yield delta
            meter.count_events(decoding.events)
    except PalimpsestError:
        raise
    except Exception:
        if not decoding.complete:
            raise


@contextmanager
def provider_errors(redactor: Redactor, convert: Callable[[Exception], ProviderError | None]) -> Iterator[None]:
    """Redact every error that is raised inside, because it may repeat the request with its key, and raise what `convert` makes of it."""
    try:
        yield
    except Exception as error:
        redactor.redact_error(error)
        provider_error = convert(error)
        if provider_error is None:
            raise
        raise provider_error from error


def status_error(status: int, body: bytes, headers: Mapping[str, str], redactor: Redactor, provider: str) -> ProviderError:
    """Return the error of a response with an error status, with the wait that it asks for and without credentials."""
    text = redactor.redact(body.decode("utf-8", "replace"))
    error = http_error(status, text.encode(), provider, retry_after=retry_after(status, headers, time.time()))
    if isinstance(error, ThinkingRefused):
        path, error.cause = mismatch_facts(headers.get(_MISMATCH, ""))
        error.path = error.path or path
    return error
