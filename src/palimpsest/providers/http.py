"""Provider for models over HTTP, in any of the three wire formats."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Self, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError, TimedOut
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.deltas import Delta
from palimpsest.core.ports import Sendable, closing
from palimpsest.providers.address import checked_address, checked_header, with_betas, without_credentials
from palimpsest.providers.redactor import Redactor, credential_forms
from palimpsest.providers.responses import (
    DEFAULT_LIMITS,
    OpenResponse,
    ReplyLimits,
    ReplyMeter,
    first_bytes,
    provider_errors,
    read_reply,
    status_error,
)
from palimpsest.wire.encoding.tools import Names, offered_names
from palimpsest.wire.models.cards import ModelCard, WireName

if TYPE_CHECKING:
    import ssl

    import httpx

_PATHS: Mapping[str, str] = {"anthropic": "/v1/messages", "responses": "/responses", "chat": "/chat/completions"}
_HOSTS: Mapping[str, str] = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1", "xai": "https://api.x.ai/v1"}
# Providers of built-in cards that are reached only at a configured address.
_WITHOUT_HOST = frozenset({"google", "deepseek", "moonshot", "zai", "alibaba"})
_VERSION = "2023-06-01"
# Seconds.
_READ_TIMEOUT = 600.0
_CONNECT_TIMEOUT = 15.0
# An idle connection is not used for longer: routers drop those without a word, and a request over one would wait for the read timeout.
_IDLE_SECONDS = 60.0
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


class _Counted(Struct):
    input_tokens: int


class HttpProvider:
    """A model at an HTTP address. Address and API key default to the environment variables of the official clients.

    `timeout` is the longest silence in seconds, `limits` bound a whole reply. `is_direct` says that the address is the one of the maker of
    the model, who knows every documented field. As an async context manager, or from `keep_open` on until
    `aclose`, it keeps connections open between requests.
    """

    def __init__(
        self,
        card: ModelCard,
        base_url: str = "",
        api_key: str = "",
        *,
        timeout: float = _READ_TIMEOUT,
        limits: ReplyLimits = DEFAULT_LIMITS,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        variables = os.environ if environment is None else environment
        maker = card.provider if card.provider in _HOSTS else "openai"
        # A local server must never get the API key or the base URL of a remote provider.
        prefix = "" if card.provider == "local" else maker.upper()
        self._card = card
        key_name = f"{prefix}_API_KEY" if prefix and not api_key else "the API key"
        self._key = checked_header(api_key or (variables.get(f"{prefix}_API_KEY", "") if prefix else ""), key_name, card.name)
        given = base_url or (variables.get(f"{prefix}_BASE_URL", "") if prefix else "")
        if not given and card.provider == "local":
            raise BadInput("a local model needs the address of its server", where=card.name)
        if not given and card.provider in _WITHOUT_HOST:
            raise BadInput(f"no address is known for {card.provider}; set providers.{card.provider}.base_url", where=card.name)
        parts = checked_address(given.strip() or _HOSTS[maker], card.name)
        self._base = parts.geturl().rstrip("/")
        self.is_direct = card.provider in _HOSTS and parts.hostname == urlsplit(_HOSTS[maker]).hostname
        self._printable_base = without_credentials(parts)
        self._timeout = timeout
        self._limits = limits
        self._headers = {name: checked_header(value, f"the header {name}", card.name) for name, value in (headers or {}).items()}
        self._redactor = Redactor((self._key, *credential_forms(parts.username or "", parts.password or ""), *_secrets(self._headers)))
        self._keeps_open = False
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if not self._key and self._base == _HOSTS[maker]:
            raise BadInput(f"{prefix}_API_KEY is not set; set it, or name another address in {prefix}_BASE_URL", where=card.name)

    def _url(self, wire: WireName, endpoint: str = "") -> str:
        base = self._base.removesuffix("/v1") if wire == "anthropic" else self._base
        return base + _PATHS[wire] + (f"/{endpoint}" if endpoint and wire != "anthropic" else "")

    def keep_open(self) -> Self:
        """Keep connections open between requests, until `aclose`."""
        self._keeps_open = True
        return self

    async def aclose(self) -> None:
        """Close the connections; a later request opens one of its own."""
        self._keeps_open = False
        client, self._client = self._client, None
        # What belongs to an event loop that has ended was closed with it.
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self.keep_open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def _opened_client(self) -> "httpx.AsyncClient":
        """Return the client of this event loop if connections are kept, else a new one."""
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return self._client
        client = await self._new_client()
        if self._keeps_open and (self._client is None or self._loop is not loop):
            self._client, self._loop = client, loop
        return client

    async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
        """Yield deltas as they arrive, then the complete reply. Cancelling or closing the stream closes the connection.

        Raises `ProviderError` or `WireError`; their messages and those of their causes contain no credentials.
        """
        wire = _wire_name(request.wire, self._card)
        url = self._url(wire, getattr(request, "endpoint", ""))
        client, meter = await self._opened_client(), ReplyMeter(self._limits, self._card.provider)
        try:
            with provider_errors(self._redactor, self._as_provider_error):
                async with (
                    meter.opened(
                        client.stream("POST", url, content=request.body, headers=self._request_headers(wire, getattr(request, "betas", ())))
                    ) as response,
                    closing(self._read(wire, response, offered_names(request), meter)) as pieces,
                ):
                    async for piece in pieces:
                        yield piece
        finally:
            if client is not self._client:
                await client.aclose()

    async def count_tokens(self, body: bytes) -> int:
        """Return the tokens that Anthropic counts for a request, without asking a model. Raises `ProviderError`."""
        client, meter = await self._opened_client(), ReplyMeter(self._limits, self._card.provider)
        url = f"{self._url('anthropic')}/count_tokens?beta=true"
        try:
            with provider_errors(self._redactor, self._as_provider_error):
                async with client.stream("POST", url, content=body, headers=self._request_headers("anthropic")) as response:
                    data = await first_bytes(meter.chunks(response.aiter_bytes()))
                    if not response.is_success:
                        raise status_error(response.status_code, data, response.headers, self._redactor, self._card.provider)
        finally:
            if client is not self._client:
                await client.aclose()
        try:
            return msgspec.json.decode(data, type=_Counted).input_tokens
        except msgspec.DecodeError as error:
            raise ProviderError("the answer to count_tokens is not a count", where=self._card.provider) from error

    def _as_provider_error(self, error: Exception) -> ProviderError | None:
        """Map an error of httpx or the network to a `ProviderError`; `None` for all other errors."""
        import httpx  # noqa: PLC0415 - it takes 150 ms to import, and only a real call needs it

        kind: type[ProviderError] = ProviderError
        if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            kind, what = ConnectionLost, "cannot be reached: no connection was made in time"
        elif isinstance(error, httpx.TimeoutException):
            kind, what = (
                TimedOut,
                f"did not answer in time: it was silent for {self._timeout:g} seconds; ask again, or allow a longer timeout",
            )
        elif isinstance(error, httpx.InvalidURL | UnicodeError):
            what = f"cannot be reached: {_reason(error)}"
        elif isinstance(error, httpx.HTTPError | OSError | ExceptionGroup):
            kind, what = ConnectionLost, f"cannot be reached: {_reason(error)}"
        else:
            return None
        return kind(self._redactor.redact(f"{self._printable_base} {what}"), where=self._card.provider)

    async def _read(
        self, wire: WireName, response: "httpx.Response", names: Names, meter: ReplyMeter
    ) -> AsyncGenerator[Delta | ModelReplied, None]:
        if not response.is_success:
            body = await first_bytes(meter.chunks(response.aiter_bytes()))
            raise status_error(response.status_code, body, response.headers, self._redactor, self._card.provider)
        opened = OpenResponse(response.headers, response.aiter_bytes)
        async with closing(read_reply(opened, wire, self._card, names, meter)) as pieces:
            async for piece in pieces:
                yield piece

    async def _new_client(self) -> "httpx.AsyncClient":
        # Reading the root certificates takes 30 ms, in which a user interface would take no keys.
        certificates = await asyncio.to_thread(_certificates)
        import httpx  # noqa: PLC0415 - as above

        timeout = httpx.Timeout(self._timeout, connect=min(_CONNECT_TIMEOUT, self._timeout))
        return httpx.AsyncClient(timeout=timeout, verify=certificates, limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS))

    def _request_headers(self, wire: WireName, betas: tuple[str, ...] = ()) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json", "user-agent": "palimpsest"}
        if wire == "anthropic":
            headers["anthropic-version"] = _VERSION
            if self._key:
                headers["x-api-key"] = self._key
        elif self._key:
            headers["authorization"] = f"Bearer {self._key}"
        own = {name.lower() for name in self._headers}
        headers = {name: value for name, value in headers.items() if name not in own} | self._headers
        return with_betas(headers, betas) if wire == "anthropic" else headers


class HttpProviders:
    """The providers of a session by model, with the addresses and keys of the environment; connections stay open until `aclose`."""

    def __init__(self) -> None:
        self._known: dict[ModelCard, HttpProvider] = {}

    def __call__(self, model: ModelCard, purpose: str) -> HttpProvider:
        """Return the provider of a model, for any purpose. Raises `BadInput` if its address or key is missing."""
        if model not in self._known:
            self._known[model] = HttpProvider(model).keep_open()
        return self._known[model]

    async def aclose(self) -> None:
        """Close all connections."""
        for provider in self._known.values():
            await provider.aclose()


@cache
def _certificates() -> "ssl.SSLContext":
    """Return the root certificates that servers are checked by, read once in a process."""
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context()


def _secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values of headers, with and without their authentication scheme."""
    for name, value in headers.items():
        if any(word in name.lower() for word in _SECRET_HEADERS):
            yield value
            yield value.rpartition(" ")[2]


def _reason(error: Exception) -> str:
    """Return one line for an error; for an exception group, that of its first error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__


def _wire_name(wire: str, card: ModelCard) -> WireName:
    for name in get_args(WireName):
        if name == wire:
            found: WireName = name
            return found
    raise BadInput(f"no wire is called {wire!r}", where=card.name)
