"""Real models over HTTP: one request leaves, one reply comes back, on any of the three wires."""

import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, get_args

from palimpsest.core.errors import BadInput, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.core.ports import Sendable
from palimpsest.wire.cards import ModelCard, WireName
from palimpsest.wire.deltas import TextDelta
from palimpsest.wire.failures import refused
from palimpsest.wire.stream import decode_response, decoder

if TYPE_CHECKING:
    import httpx

_PATHS: Mapping[str, str] = {"anthropic": "/v1/messages", "responses": "/responses", "chat": "/chat/completions"}
_HOSTS: Mapping[str, str] = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_VERSION = "2023-06-01"
_SILENCE = 600.0
_CONNECT = 15.0
_SECRET = 8


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
        self._key = api_key or (known.get(f"{prefix}_API_KEY", "") if prefix else "")
        self._base = self._address(base_url or (known.get(f"{prefix}_BASE_URL", "") if prefix else ""), maker)
        self._timeout = timeout
        self._headers = dict(headers or {})
        self._client: httpx.AsyncClient | None = None
        if not self._key and self._base == _HOSTS[maker]:
            raise BadInput(f"{prefix}_API_KEY is not set; set it, or name another address in {prefix}_BASE_URL", where=card.name)

    def _address(self, given: str, maker: str) -> str:
        if not given and self._card.provider == "local":
            raise BadInput("a local model needs the address of its server", where=self._card.name)
        if given and not given.startswith(("http://", "https://")):
            raise BadInput(f"the address {given!r} does not begin with http:// or https://", where=self._card.name)
        return (given or _HOSTS[maker]).rstrip("/")

    def _url(self, wire: WireName) -> str:
        base = self._base.removesuffix("/v1") if wire == "anthropic" else self._base
        return base + _PATHS[wire]

    async def __aenter__(self) -> Self:
        self._client = self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, request: Sendable) -> AsyncIterator[str | ModelReplied]:
        """Text as it comes, and last the whole reply."""
        import httpx  # noqa: PLC0415 - it takes 150 ms to import, and only a real call needs it

        wire = _known(request.wire, self._card)
        client = self._client or self._open()
        try:
            async with client.stream("POST", self._url(wire), content=request.body, headers=self._head(wire)) as response:
                async for piece in self._read(wire, response):
                    yield piece
        except httpx.TimeoutException as error:
            raise ProviderError(f"{self._base} did not answer in time; ask again, or wait longer", where=self._card.provider) from error
        except httpx.HTTPError as error:
            raise ProviderError(self._hide(f"{self._base} cannot be reached: {error}"), where=self._card.provider) from error
        finally:
            if client is not self._client:
                await client.aclose()

    async def _read(self, wire: WireName, response: "httpx.Response") -> AsyncIterator[str | ModelReplied]:
        if not response.is_success:
            body = self._hide((await response.aread()).decode("utf-8", "replace")).encode()
            raise refused(response.status_code, body, self._card.provider, retry_after=_seconds(response.headers.get("retry-after", "")))
        if "event-stream" not in response.headers.get("content-type", ""):
            reply = decode_response(wire, await response.aread(), self._card)
            for part in reply.parts:
                if isinstance(part, Text):
                    yield part.text
            yield reply
            return
        decoding = decoder(wire, self._card)
        async for chunk in response.aiter_bytes():
            for delta in decoding.feed(chunk):
                if isinstance(delta, TextDelta) and delta.text:
                    yield delta.text
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

    def _hide(self, text: str) -> str:
        # A key of a few letters is a placeholder, and would tear holes into any text.
        return text.replace(self._key, "***") if len(self._key) >= _SECRET else text


def _known(wire: str, card: ModelCard) -> WireName:
    for name in get_args(WireName):
        if name == wire:
            found: WireName = name
            return found
    raise BadInput(f"no wire is called {wire!r}", where=card.name)


def _seconds(header: str) -> float | None:
    try:
        return float(header)
    except ValueError:
        return None
