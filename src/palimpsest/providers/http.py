"""Real models over HTTP: one request leaves, one reply comes back, on any of the three wires."""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, get_args

from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta, deltas_of
from palimpsest.core.ports import Sendable, closing
from palimpsest.providers.address import bare, checked, checked_header
from palimpsest.providers.retry_after import retry_after
from palimpsest.providers.veil import Veil, signed
from palimpsest.wire.encoding.tools import Names, offered_names
from palimpsest.wire.failures import http_error
from palimpsest.wire.models.cards import ModelCard, WireName
from palimpsest.wire.stream import Decoder, decode_response, decoder

if TYPE_CHECKING:
    import httpx

_PATHS: Mapping[str, str] = {"anthropic": "/v1/messages", "responses": "/responses", "chat": "/chat/completions"}
_HOSTS: Mapping[str, str] = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_VERSION = "2023-06-01"
_SILENCE = 600.0
_CONNECT = 15.0
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


class HttpProvider:
    """A model behind an address; what is not given comes from the environment, under the names that the official clients use.

    As an async context it keeps its connections between requests.
    """

    def __init__(
        self,
        card: ModelCard,
        base_url: str = "",
        api_key: str = "",
        *,
        timeout: float = _SILENCE,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        known = os.environ if environment is None else environment
        maker = "anthropic" if card.provider == "anthropic" else "openai"
        # A server of the user's own machine must not be sent a key or a request that was meant for somebody else.
        prefix = "" if card.provider == "local" else maker.upper()
        self._card = card
        key_name = f"{prefix}_API_KEY" if prefix and not api_key else "the API key"
        self._key = checked_header(api_key or (known.get(f"{prefix}_API_KEY", "") if prefix else ""), key_name, card.name)
        given = base_url or (known.get(f"{prefix}_BASE_URL", "") if prefix else "")
        if not given and card.provider == "local":
            raise BadInput("a local model needs the address of its server", where=card.name)
        parts = checked(given.strip() or _HOSTS[maker], card.name)
        self._base = parts.geturl().rstrip("/")
        self._shown = bare(parts)
        self._timeout = timeout
        self._headers = {name: checked_header(value, f"the header {name}", card.name) for name, value in (headers or {}).items()}
        self._veil = Veil((self._key, *signed(parts.username or "", parts.password or ""), *_secrets(self._headers)))
        self._client: httpx.AsyncClient | None = None
        if not self._key and self._base == _HOSTS[maker]:
            raise BadInput(f"{prefix}_API_KEY is not set; set it, or name another address in {prefix}_BASE_URL", where=card.name)

    def _url(self, wire: WireName, endpoint: str = "") -> str:
        base = self._base.removesuffix("/v1") if wire == "anthropic" else self._base
        return base + _PATHS[wire] + (f"/{endpoint}" if endpoint else "")

    async def __aenter__(self) -> Self:
        self._client = self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
        """Deltas as they come, and last the whole reply; cancelling or closing it closes the connection at once."""
        wire = _known(request.wire, self._card)
        url = self._url(wire, getattr(request, "endpoint", ""))
        client = self._client or self._open()
        try:
            async with (
                client.stream("POST", url, content=request.body, headers=self._head(wire)) as response,
                closing(self._read(wire, response, offered_names(request))) as pieces,
            ):
                async for piece in pieces:
                    yield piece
        except Exception as error:
            # The one way out for errors: whatever it is, it may repeat what was sent, and the key was sent.
            self._veil.hide_from(error)
            ours = self._as_ours(error)
            if ours is None:
                raise
            raise ours from error
        finally:
            if client is not self._client:
                await client.aclose()

    def _as_ours(self, error: Exception) -> ProviderError | None:
        """An error of the layers below as one of ours; `None` for what is one already, or a fault of this program."""
        import httpx  # noqa: PLC0415 - it takes 150 ms to import, and only a real call needs it

        kind: type[ProviderError] = ProviderError
        if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            kind, what = ConnectionLost, "cannot be reached: no connection was made in time"
        elif isinstance(error, httpx.TimeoutException):
            what = f"did not answer in time: it was silent for {self._timeout:g} seconds; ask again, or allow a longer timeout"
        elif isinstance(error, httpx.InvalidURL | UnicodeError):
            what = f"cannot be reached: {_reason(error)}"
        elif isinstance(error, httpx.HTTPError | OSError | ExceptionGroup):
            kind, what = ConnectionLost, f"cannot be reached: {_reason(error)}"
        else:
            return None
        return kind(self._veil.hide(f"{self._shown} {what}"), where=self._card.provider)

    async def _read(self, wire: WireName, response: "httpx.Response", names: Names) -> AsyncGenerator[Delta | ModelReplied, None]:
        if not response.is_success:
            body = self._veil.hide((await response.aread()).decode("utf-8", "replace")).encode()
            wait = retry_after(response.status_code, response.headers, time.time())
            raise http_error(response.status_code, body, self._card.provider, retry_after=wait)
        if "event-stream" not in response.headers.get("content-type", ""):
            reply = decode_response(wire, await response.aread(), self._card, names)
            for delta in deltas_of(reply.parts):
                yield delta
            yield reply
            return
        decoding = decoder(wire, self._card, names)
        async with closing(response.aiter_bytes()) as chunks, closing(_deltas(chunks, decoding)) as deltas:
            async for delta in deltas:
                yield delta
        yield decoding.finish()

    def _open(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415 - as above

        return httpx.AsyncClient(timeout=httpx.Timeout(self._timeout, connect=min(_CONNECT, self._timeout)))

    def _head(self, wire: WireName) -> dict[str, str]:
        head = {"content-type": "application/json", "accept": "text/event-stream, application/json", "user-agent": "palimpsest"}
        if wire == "anthropic":
            head["anthropic-version"] = _VERSION
            if self._key:
                head["x-api-key"] = self._key
        elif self._key:
            head["authorization"] = f"Bearer {self._key}"
        return head | self._headers


async def _deltas(chunks: AsyncIterator[bytes], decoding: Decoder) -> AsyncIterator[Delta]:
    """The deltas of a stream; a connection that breaks or falls silent when the reply is already whole is as good as closed."""
    import httpx  # noqa: PLC0415 - as above

    try:
        async for chunk in chunks:
            for delta in decoding.deltas(chunk):
                yield delta
    except httpx.TransportError:
        if not decoding.complete:
            raise


def _secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """What must not be repeated of the headers that the caller added: the values, and what follows the scheme in them."""
    for name, value in headers.items():
        if any(word in name.lower() for word in _SECRET_HEADERS):
            yield value
            yield value.rpartition(" ")[2]


def _reason(error: Exception) -> str:
    """One line for an error of the layers below; a group of them is named by its first."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__


def _known(wire: str, card: ModelCard) -> WireName:
    for name in get_args(WireName):
        if name == wire:
            found: WireName = name
            return found
    raise BadInput(f"no wire is called {wire!r}", where=card.name)
