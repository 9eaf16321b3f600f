"""Provider over a client object of the official SDKs: AsyncAnthropic, AsyncOpenAI, and their Bedrock, Vertex, Azure and Foundry kin."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from palimpsest.core.deltas import Delta
from palimpsest.core.errors import BadInput, ConnectionLost, ProviderError, TimedOut
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import Sendable, closing
from palimpsest.providers.http import (
    DEFAULT_LIMITS,
    OpenResponse,
    Redactor,
    ReplyLimits,
    ReplyMeter,
    provider_errors,
    read_reply,
    status_error,
    version_in,
    with_betas,
)
from palimpsest.wire.encoding import offered_names
from palimpsest.wire.models import ModelCard
from palimpsest.wire.wires import WIRES, Wire


class ClientProvider:
    """Sends requests through a client that the caller has made. Keys, addresses, proxies and cloud accounts are those of the client.

    The client encodes the request again, so its bytes may differ from the recorded ones; their JSON value does not. The client is not
    closed here, and its own retries are turned off, because the engine records each attempt. `limits` bound a whole reply. `api_version` is
    the version of Anthropic's API that the client speaks.
    """

    def __init__(
        self, client: Any, card: ModelCard, *, limits: ReplyLimits = DEFAULT_LIMITS
    ) -> None:  # the SDKs are optional and have no common type
        missing = _missing_method(client, WIRES[card.wire].method)
        if missing:
            raise BadInput(f"the client {type(client).__name__} has no {missing}, which the wire {card.wire} needs", where=card.name)
        self._client = client.with_options(max_retries=0) if hasattr(client, "with_options") else client
        self._card = card
        self._limits = limits
        headers = getattr(client, "default_headers", None)
        self.api_version = version_in(headers) if isinstance(headers, Mapping) else ""
        secrets = (getattr(client, name, None) for name in ("api_key", "auth_token"))
        self._redactor = Redactor(tuple(secret for secret in secrets if isinstance(secret, str) and secret))

    async def stream(self, request: Sendable) -> AsyncGenerator[Delta | ModelReplied, None]:
        """Yield deltas as they arrive, then the complete reply. Raises `ProviderError` or `WireError`, without credentials."""
        wire = WIRES[self._card.wire]
        if getattr(request, "endpoint", "") and wire.has_endpoints:
            raise BadInput("a client object has no method for a dedicated endpoint; use an address and a key", where=self._card.name)
        meter = ReplyMeter(self._limits, self._card.provider)
        with provider_errors(self._redactor, self._as_provider_error):
            async with meter.opened(self._open(request, wire)) as response:
                opened = OpenResponse(response.headers, response.iter_bytes)
                async with closing(read_reply(opened, self._card.wire, self._card, offered_names(request), meter)) as pieces:
                    async for piece in pieces:
                        yield piece

    def _open(self, request: Sendable, wire: Wire) -> AbstractAsyncContextManager[Any]:
        body: dict[str, Any] = msgspec.json.decode(request.body)
        method = self._client
        for name in wire.method:
            method = getattr(method, name)
        # All other fields pass through `extra_body`, so that none is dropped.
        given = {name: body.pop(name) for name in wire.arguments if name in body}
        headers = with_betas({}, getattr(request, "betas", ()))
        if headers:
            given["extra_headers"] = headers
        opened: AbstractAsyncContextManager[Any] = method.with_streaming_response.create(**given, extra_body=body)
        return opened

    def _as_provider_error(self, error: Exception) -> ProviderError | None:
        """Map an error of an SDK or of its transport to a `ProviderError`; `None` for all others."""
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and response is not None:
            body = msgspec.json.encode(getattr(error, "body", None) or {"message": str(error)})
            return status_error(status, body, response.headers, self._redactor, self._card.provider)
        names = {each.__name__ for each in type(error).__mro__}
        reason = self._redactor.redact(" ".join(str(error.__cause__ or error).split()) or type(error).__name__)
        if names & {"APITimeoutError", "TimeoutException"}:
            return TimedOut(f"did not answer in time ({reason}); ask again, or give the client a longer timeout", where=self._card.provider)
        if names & {"APIConnectionError", "TransportError"}:
            return ConnectionLost(f"cannot be reached: {reason}", where=self._card.provider)
        return None


def _missing_method(client: object, method: Iterable[str]) -> str:
    """Return the path of the method, as far as a client lacks it; empty if it has it."""
    found, path = client, ""
    for name in method:
        path = f"{path}.{name}" if path else name
        found = getattr(found, name, None)
        if found is None:
            return path
    return ""
