"""Passes requests on to a provider and its replies back, byte for byte, with the headers that belong to each connection left out."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

import httpx

from palimpsest.apps.gateway.admission import values_of
from palimpsest.core.errors import BadInput

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
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy"})
_ACCEPT_ENCODING: Final = "accept-encoding"
_CONNECT_SECONDS: Final = 30.0
# The clients have time limits of their own, and a model may think for minutes before its first byte.
_READ_SECONDS: Final = 3600.0
_IDLE_CONNECTIONS: Final = 32
# A client that stops in the middle of its request for so long is gone.
_BODY_SECONDS: Final = 60.0


class ForwardedRequest(NamedTuple):
    """A request on its way to a provider: its method, address and headers, and its body, as bytes or as a stream."""

    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes | AsyncIterator[bytes]


class Upstreams(NamedTuple):
    """The addresses of the providers, without a slash at the end."""

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"

    def of(self, path: str, headers: Mapping[str, str]) -> str:
        """Return the address of the provider whose key a request has, or without one of whose API its path or a header is.

        Raises `BadInput` if neither tells it, or if they contradict each other: a key must not go to another provider.
        """
        if self.anthropic == self.openai:
            return self.anthropic
        keys, signs = _keys_of(headers), _signs_of(path, headers)
        found = keys or signs
        if found not in ({"anthropic"}, {"openai"}) or (keys and signs and keys != signs and "anthropic" not in keys):
            raise BadInput(
                "it cannot be told whose key this request has, so that it was not sent; give `x-api-key` and `anthropic-version` for "
                "Anthropic, or `Authorization: Bearer` for OpenAI, and a path of the same API",
                where=path,
            )
        return self.anthropic if "anthropic" in found else self.openai


_ANTHROPIC_PATHS: Final = ("/v1/messages", "/v1/complete")
_OPENAI_PATHS: Final = ("/v1/responses", "/v1/chat/", "/v1/completions", "/v1/embeddings", "/v1/audio", "/v1/images", "/v1/realtime")
# Keys of Anthropic, and those of OpenAI that cannot be of another provider.
_ANTHROPIC_KEY: Final = "sk-ant-"
_OPENAI_KEYS: Final = ("sk-proj-", "sk-svcacct-", "sk-admin-")
# Keys of OpenAI and of many others; next to one of Anthropic it is another provider's.
_COMMON_KEY: Final = "sk-"
# Headers in which other providers take their keys.
_OTHER_KEYS: Final = ("api-key", "x-goog-api-key")


def _keys_of(headers: Mapping[str, str]) -> frozenset[str]:
    """The providers whose keys a request has, as far as the keys tell it."""
    found = {"unknown" for name in _OTHER_KEYS if values_of(headers, name)}
    own = values_of(headers, "x-api-key") - {""}
    for key in own:
        found.add("openai" if key.startswith(_OPENAI_KEYS) else "anthropic")
    for value in values_of(headers, "authorization"):
        scheme, _, token = value.partition(" ")
        token = token.strip()
        if token.startswith(_ANTHROPIC_KEY):
            found.add("anthropic")
        elif token.startswith(_OPENAI_KEYS) or (token.startswith(_COMMON_KEY) and any(key.startswith(_ANTHROPIC_KEY) for key in own)):
            found.add("openai")
        elif scheme and scheme != "bearer":
            found.add("unknown")
    return frozenset(found)


def _signs_of(path: str, headers: Mapping[str, str]) -> frozenset[str]:
    """The providers whose API a request is written for."""
    found = {"anthropic" for name in headers if name.startswith("anthropic-")} | {
        "openai" for name in headers if name.startswith("openai-")
    }
    if path.startswith(_ANTHROPIC_PATHS):
        found.add("anthropic")
    elif path.startswith(_OPENAI_PATHS) or ("anthropic" not in found and headers.get("authorization")):
        found.add("openai")
    return frozenset(found)


def upstream_of(given: str, default: str) -> str:
    """Return an address of a provider as its own clients take it, without `/v1` at the end; the default if it is empty."""
    return given.strip().rstrip("/").removesuffix("/v1") or default


def require_other(upstreams: Upstreams, port: int) -> None:
    """Raise `BadInput` if an address of a provider is that of the gateway itself, which listens on a port of the loopback."""
    for name, address in upstreams._asdict().items():
        url = httpx.URL(address)
        if (url.port or {"http": 80, "https": 443}.get(url.scheme)) == port and _is_loopback(url.host):
            raise BadInput(
                f"{address} is the address of this gateway itself, to which it would send every request again; give that of the provider "
                f"as --{name}, or unset {name.upper()}_BASE_URL",
                where="pal gateway",
            )


def _is_loopback(host: str) -> bool:
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return any(ip_address(str(each).partition("%")[0]).is_loopback or str(each) in ("0.0.0.0", "::") for each in found)  # noqa: S104 - compared


def connect() -> httpx.AsyncClient:
    """Return the client for all providers; proxies of the environment are used, but not for this machine.

    Raises `BadInput` if a proxy of the environment cannot be used: past it, requests would go where they should not.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS)
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    direct: dict[str, httpx.AsyncBaseTransport | None] = {"all://127.0.0.1": None, "all://localhost": None}
    try:
        return httpx.AsyncClient(limits=limits, timeout=timeout, mounts=direct, follow_redirects=False)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        names = ", ".join(sorted(name for name in os.environ if name.lower() in _PROXIES and os.environ[name]))
        raise BadInput(
            f"a proxy of the environment ({names}) cannot be used: {str(error).partition('.')[0]}; set it to one of http:// or https://, "
            "or for SOCKS install it with `pip install 'httpx[socks]'`",
            where="pal gateway",
        ) from error


def forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as they are sent on. A reply is asked for without compression, so that it can be recorded."""
    kept = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in _OF_CONNECTION | {_ACCEPT_ENCODING}]
    return [*kept, (_ACCEPT_ENCODING.encode(), b"identity")]


def returned_headers(headers: httpx.Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers of a reply as they are sent back; its length stays, because its bytes do."""
    dropped = _OF_CONNECTION - {"content-length"}
    return [(name.lower(), value) for name, value in headers.raw if name.decode("latin-1").lower() not in dropped]


async def read_body(stream: AsyncIterator[bytes], most: int) -> bytes | AsyncIterator[bytes]:
    """Return a body as bytes; if it has more than `most`, as a stream that begins with what was read. Not all bodies tell their length.

    Raises `TimeoutError` if nothing of it comes for a minute.
    """
    read, size = list[bytes](), 0
    async for chunk in timely(stream):
        read.append(chunk)
        size += len(chunk)
        if size > most:
            return _continued(read, stream)
    return b"".join(read)


async def timely(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what a client sends. Raises `TimeoutError` if nothing comes for a minute."""
    chunks = aiter(stream)
    while (chunk := await asyncio.wait_for(anext(chunks, None), _BODY_SECONDS)) is not None:
        yield chunk


async def _continued(read: list[bytes], stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while read:
        yield read.pop(0)
    async for chunk in timely(stream):
        yield chunk


async def send(
    client: httpx.AsyncClient, method: str, url: str, headers: Iterable[tuple[bytes, bytes]], body: bytes | AsyncIterator[bytes]
) -> httpx.Response:
    """Send a request and return the reply when its headers have arrived; its body is read by `aiter_raw`. Raises `httpx.HTTPError`.

    The path is sent as it is written in the address, also where it has escapes or dots that a library would resolve.
    """
    # A request that is made by hand has no headers of the client library.
    listed = list(headers)
    sent = forwarded_headers(listed)
    if not isinstance(body, bytes):
        sent += [(name, value) for name, value in listed if name.lower() == b"content-length"]
    request = httpx.Request(method, url, headers=sent, content=body)
    request.url = _WrittenUrl(url)
    return await client.send(request, stream=True)


class _WrittenUrl(httpx.URL):
    """An address whose path is sent as it is written."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._written = f"/{url.partition('://')[2].partition('/')[2]}"

    @property
    def raw_path(self) -> bytes:
        """Path and query."""
        return self._written.encode("latin-1")
