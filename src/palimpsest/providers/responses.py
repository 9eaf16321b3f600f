"""What the providers over HTTP share: reading a response into deltas and a reply, and mapping errors without credentials."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from palimpsest.core.errors import PalimpsestError, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta, deltas_of
from palimpsest.core.ports import closing
from palimpsest.providers.redactor import Redactor
from palimpsest.providers.retry_after import retry_after
from palimpsest.wire.encoding.tools import Names
from palimpsest.wire.failures import http_error
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.stream import Decoder, decode_response, decoder


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """A response whose body has not been read: its headers, and functions that read the whole body or its chunks as they arrive."""

    headers: Mapping[str, str]
    whole: Callable[[], Awaitable[bytes]]
    chunks: Callable[[], AsyncIterator[bytes]]


async def read_reply(response: OpenResponse, wire: WireName, card: ModelCard, names: Names) -> AsyncGenerator[Delta | ModelReplied, None]:
    """Yield the deltas of a response as they arrive, then the complete reply. A server that does not stream gets its deltas here."""
    if "event-stream" not in response.headers.get("content-type", ""):
        reply = decode_response(wire, await response.whole(), card, names)
        for delta in deltas_of(reply.parts):
            yield delta
        yield reply
        return
    decoding = decoder(wire, card, names)
    async with closing(response.chunks()) as chunks, closing(_deltas(chunks, decoding)) as deltas:
        async for delta in deltas:
            yield delta
    yield decoding.finish()


async def _deltas(chunks: AsyncIterator[bytes], decoding: Decoder) -> AsyncIterator[Delta]:
    """Yield the deltas of a stream; an error of the connection after the complete reply is ignored."""
    try:
        async for chunk in chunks:
            for delta in decoding.deltas(chunk):
                yield delta
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
    return http_error(status, text.encode(), provider, retry_after=retry_after(status, headers, time.time()))
