"""Passes requests on to a provider and its replies back, byte for byte, with the headers that belong to each connection left out."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, NamedTuple

import httpx

# Headers of one connection, which the next connection has its own of; the host is that of the provider.
_OF_CONNECTION: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
        "expect",
    }
)
_ACCEPT_ENCODING: Final = "accept-encoding"
_CONNECT_SECONDS: Final = 30.0
# The clients have time limits of their own, and a model may think for minutes before its first byte.
_READ_SECONDS: Final = 3600.0
_IDLE_CONNECTIONS: Final = 32


class Upstreams(NamedTuple):
    """The addresses of the providers, without a slash at the end."""

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"

    def url_of(self, path: str, query: str, headers: Mapping[str, str]) -> str:
        """Return the address of a request: that of Anthropic if the path or a header is one of theirs, else that of OpenAI."""
        is_anthropic = path.startswith("/v1/messages") or "anthropic-version" in headers
        return f"{self.anthropic if is_anthropic else self.openai}{path}{'?' if query else ''}{query}"


def upstream_of(given: str, default: str) -> str:
    """Return an address of a provider as its own clients take it, without `/v1` at the end; the default if it is empty."""
    return given.strip().rstrip("/").removesuffix("/v1") or default


def connect() -> httpx.AsyncClient:
    """Return the client for all providers; proxies of the environment are used, but not for this machine."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS)
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    direct: dict[str, httpx.AsyncBaseTransport | None] = {"all://127.0.0.1": None, "all://localhost": None}
    return httpx.AsyncClient(limits=limits, timeout=timeout, mounts=direct, follow_redirects=False)


def forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as they are sent on. A reply is asked for without compression, so that it can be recorded."""
    kept = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in _OF_CONNECTION | {_ACCEPT_ENCODING}]
    return [*kept, (_ACCEPT_ENCODING.encode(), b"identity")]


def returned_headers(headers: httpx.Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers of a reply as they are sent back; its length stays, because its bytes do."""
    dropped = _OF_CONNECTION - {"content-length"}
    return [(name.lower(), value) for name, value in headers.raw if name.decode("latin-1").lower() not in dropped]


async def read_body(stream: AsyncIterator[bytes], most: int) -> bytes | AsyncIterator[bytes]:
    """Return a body as bytes; if it has more than `most`, as a stream that begins with what was read. Not all bodies tell their length."""
    read, size = list[bytes](), 0
    async for chunk in stream:
        read.append(chunk)
        size += len(chunk)
        if size > most:
            return _continued(read, stream)
    return b"".join(read)


async def _continued(read: list[bytes], stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while read:
        yield read.pop(0)
    async for chunk in stream:
        yield chunk


async def send(
    client: httpx.AsyncClient, method: str, url: str, headers: Iterable[tuple[bytes, bytes]], body: bytes | AsyncIterator[bytes]
) -> httpx.Response:
    """Send a request and return the reply when its headers have arrived; its body is read by `aiter_raw`. Raises `httpx.HTTPError`."""
    # A request that is made by hand has no headers of the client library.
    listed = list(headers)
    sent = forwarded_headers(listed)
    if not isinstance(body, bytes):
        sent += [(name, value) for name, value in listed if name.lower() == b"content-length"]
    return await client.send(httpx.Request(method, url, headers=sent, content=body), stream=True)
