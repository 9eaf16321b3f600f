"""Routes a request: admission, the conversation that it belongs to, its bytes, and the way to the provider and back."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import msgspec
from msgspec import Raw

from palimpsest.audit.cache import Block, Breakpoint
from palimpsest.audit.two_bills import BilledRequest
from palimpsest.core.errors import BadInput
from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.tokens import FAMILY_FACTORS, estimate_bytes, family_of
from palimpsest.follow.shapes import BREAKPOINT, digest_of_message, is_whole_list
from palimpsest.wire.binding import thinking_key
from palimpsest.wire.json_reading import is_json, tables_at, text
from palimpsest.wire.models import WireName
from palimpsest.wire.wires import WIRES

# Paths that carry conversations, and their wires.
WIRE_PATHS: Final = {f"/v1{wire.path.removeprefix('/v1')}": wire.name for wire in WIRES.values()}
_SESSION_HEADERS: Final = ("x-claude-code-session-id", "thread-id", "session-id")
_AGENT_HEADER: Final = "x-claude-code-agent-id"
_SYSTEM_ROLES: Final = ("system", "developer")


class ConversationName(NamedTuple):
    """The id of the session in which a conversation is recorded, and the ids that its client and its sub-agent gave, if they did."""

    session: str
    client: str = ""
    agent: str = ""


def conversation_name(wire: WireName, headers: Mapping[str, str], fields: Mapping[str, Raw]) -> ConversationName:
    """Return the name of the conversation of a request.

    A client that names its session may rewrite the beginning of its list, so that the first message says nothing there: model and system
    prompt tell its side calls apart, such as those for titles. Of the system prompt only the longest part counts, because clients change
    short ones in the middle of a session. Raises `BadInput` if the messages cannot be read.
    """
    model, client, agent = _value(fields, "model"), _client(headers, fields), headers.get(_AGENT_HEADER, "")
    system, leading, first = _opening(wire, fields)
    if not client:
        opening = digest_of_message({"content": system, "first": [*leading, *first]})
        return ConversationName(_id("list", str(model), opening))
    longest = max((*_texts(system), *(part for message in leading for part in _texts(message.get("content")))), key=len, default="")
    return ConversationName(_id(client, agent, str(model), longest), client, agent)


def continuation_name(headers: Mapping[str, str], fields: Mapping[str, Raw], previous: str) -> ConversationName:
    """Return the name of what follows a reply that is not known, in a conversation that the provider holds.

    What arrives of such a conversation never names it: neither a first message nor, mostly, a system prompt is there.
    """
    client, agent = _client(headers, fields), headers.get(_AGENT_HEADER, "")
    return ConversationName(_id("thread", client, agent, previous), client, agent)


def _id(*parts: str) -> str:
    digest = blake2b("\0".join(parts).encode(errors="replace"), digest_size=8).hexdigest()
    return f"gateway-{digest}"


def _client(headers: Mapping[str, str], fields: Mapping[str, Raw]) -> str:
    """The id that a client gives its session; empty if it gives none."""
    named = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), "")
    if named:
        return named
    key = _value(fields, "prompt_cache_key")
    metadata = _value(fields, "metadata")
    user = text(metadata, "user_id") if is_json(metadata) else ""
    return key if isinstance(key, str) and key else user


def _opening(wire: WireName, fields: Mapping[str, Raw]) -> tuple[Any, list[dict[str, Any]], list[Any]]:
    """The system prompt, the leading system messages, and the first other message of a list."""
    if WIRES[wire].system_beside_list:
        return _value(fields, WIRES[wire].system), [], _decoded(_listed(fields, WIRES[wire].messages)[:1])
    system = _value(fields, WIRES[wire].system) if WIRES[wire].system else None
    leading: list[dict[str, Any]] = []
    for raw in _listed(fields, WIRES[wire].messages):
        message = msgspec.json.decode(raw)
        if not is_json(message) or text(message, "role") not in _SYSTEM_ROLES:
            return system, leading, [message]
        leading.append(message)
    return system, leading, []


def _listed(fields: Mapping[str, Raw], name: str) -> list[Raw]:
    try:
        return msgspec.json.decode(fields[name], type=list[Raw])
    except (KeyError, msgspec.DecodeError) as error:
        raise BadInput(f"the messages of a request cannot be read ({error})", where=name) from error


def _decoded(raw: Sequence[Raw]) -> list[Any]:
    return [msgspec.json.decode(each) for each in raw]


def _value(fields: Mapping[str, Raw], name: str) -> Any:
    try:
        return msgspec.json.decode(fields[name]) if name in fields else ""
    except msgspec.DecodeError:
        return ""


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [text(block, "text") for block in content if is_json(block)] if isinstance(content, list) else []


LOOP_HEADER: Final = "x-pal-gateway"
"""Header of forwarded requests: the gateways that a request passed, so that one that comes back is known."""
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# What a browser says of a request that no page of another site has made.
_OWN_SITES: Final = frozenset({"", "none", "same-origin"})
# What a page may send to another site without asking it, but for the forms that upload files, which are sent with an `Origin`.
_OF_PAGES: Final = frozenset({"text/plain", "application/x-www-form-urlencoded"})
_JSON: Final = "application/json"
_LONGEST_WAY: Final = 16


class DoorRefusal(NamedTuple):
    """The status and the sentence with which a request is refused."""

    status: int
    message: str


class Door:
    """The door of one gateway; `name` is its own in the header of the requests that it sends on."""

    def __init__(self) -> None:
        self.name = uuid4().hex

    def refusal(self, headers: Mapping[str, str], *, is_conversation: bool) -> DoorRefusal | None:
        """Return why a request is not taken, or `None`."""
        host = headers.get("host", "").lower()
        if _host(f"//{host}") not in _LOCAL_HOSTS:
            # A page of another site that has its name resolve to this machine.
            return DoorRefusal(403, "this gateway answers programs of this machine only; use 127.0.0.1 as its host")
        # A page of another program of this machine, on another port, is no program either.
        if values_of(headers, "origin") - {f"http://{host}"} or values_of(headers, "sec-fetch-site") - _OWN_SITES:
            return DoorRefusal(403, "this gateway answers programs of this machine only, and not web pages")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _OF_PAGES or (is_conversation and kind not in ("", _JSON)):
            return DoorRefusal(415, f"the content type of a request must be {_JSON}, not {kind[:80]}")
        passed = self._passed(headers)
        if self.name in passed:
            return DoorRefusal(
                508, "this gateway would send the request to itself; give it the address of the provider as --anthropic or --openai"
            )
        if len(passed) >= _LONGEST_WAY:
            return DoorRefusal(508, f"the request has passed {len(passed)} gateways")
        return None

    def marked(self, headers: Mapping[str, str]) -> tuple[bytes, bytes]:
        """Return the header that says by which gateways a request has come, this one included."""
        return LOOP_HEADER.encode(), ", ".join((*self._passed(headers), self.name)).encode()

    def _passed(self, headers: Mapping[str, str]) -> list[str]:
        return [name for name in headers.get(LOOP_HEADER, "").replace(",", " ").split() if name.isalnum()]


def values_of(headers: Mapping[str, str], name: str) -> set[str]:
    """Return what all headers of a name say, in lower case: a request may have more than one, of which others read the last."""
    return {value.strip().lower() for key, value in headers.items() if key.lower() == name}


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


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


# Fields that name a list which the provider holds.
_HELD: Final = ("thread", "previous_response_id", "conversation")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode
_MARK: Final = BREAKPOINT.encode()
# Blocks that a provider refuses to set a breakpoint at.
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking"})
_THINKING: Final = _UNMARKABLE | {"reasoning"}


class GivenRequest(NamedTuple):
    """A request: its bytes, its fields, and each message as bytes and as a value. `system` and `tools` are values.

    `breakpoints` is the number of its cache breakpoints, or more if a text speaks of them.
    """

    wire: WireName
    body: bytes
    fields: Mapping[str, Raw]
    raw_messages: Sequence[bytes]
    messages: list[Any]
    system: Any
    tools: list[Any]
    breakpoints: int

    def body_with(self, messages: Sequence[Any], lifetime: str = "", more: Mapping[str, bytes] = EMPTY_MAPPING) -> bytes:
        """Return the bytes with other messages, and another lifetime of all cache entries unless it is empty.

        All else but the values of fields in `more`, and the messages that are the client's own, stay byte for byte.
        """
        if messages is self.messages and not lifetime and not more:
            return self.body
        given = {id(message): raw for message, raw in zip(self.messages, self.raw_messages, strict=True)}
        listed = b",".join(_relived(given.get(id(message)) or _encode(message), lifetime) for message in messages)
        field = WIRES[self.wire].messages
        fields = {key: _relived(bytes(raw), lifetime) for key, raw in self.fields.items()} | {field: b"[" + listed + b"]", **more}
        return b"{" + b",".join(_encode(key) + b":" + value for key, value in fields.items()) + b"}"


def _relived(raw: bytes, lifetime: str) -> bytes:
    """A part of a request with another lifetime at its breakpoints; the same bytes if it has none or the lifetime is empty."""
    if not lifetime or _MARK not in raw:
        return raw
    return _encode(_with_lifetime(msgspec.json.decode(raw), lifetime))


def _with_lifetime(value: Any, lifetime: str) -> Any:
    if isinstance(value, list):
        return [_with_lifetime(entry, lifetime) for entry in value]
    if not is_json(value):
        return value
    # Only what a breakpoint can be set at is looked at, so that a text or an argument of that name stays as it is.
    changed = {key: _with_lifetime(entry, lifetime) if key == "content" else entry for key, entry in value.items()}
    mark = changed.get(BREAKPOINT)
    if is_json(mark):
        changed[BREAKPOINT] = {**{key: entry for key, entry in mark.items() if key != "ttl"}, **({"ttl": "1h"} if lifetime == "1h" else {})}
    return changed


def with_breakpoint(message: Any, lifetime: str, at: int = -1) -> Any | None:
    """Return a message with a cache breakpoint at a block, by default its last; `None` if it has one there already or cannot have one."""
    content = message.get("content") if is_json(message) else None
    if not isinstance(content, list) or not -len(content) <= at < len(content):
        return None
    block = content[at]
    if not is_json(block) or BREAKPOINT in block or text(block, "type") in _UNMARKABLE:
        return None
    mark = {"type": "ephemeral", **({"ttl": "1h"} if lifetime == "1h" else {})}
    marked = list(content)
    marked[at] = {**block, BREAKPOINT: mark}
    return {**message, "content": marked}


class RequestReader:
    """Reads the successive requests of one conversation; a message with the same bytes as before is the same object as before."""

    def __init__(self) -> None:
        self._raw: list[bytes] = []
        self._messages: list[Any] = []
        self._values: dict[str, tuple[bytes, Any]] = {}

    def read(self, wire: WireName, body: bytes, fields: Mapping[str, Raw]) -> GivenRequest:
        """Return the request of these fields. Raises `BadInput` if its messages are not a list or not JSON."""
        field, system = WIRES[wire].messages, WIRES[wire].system
        try:
            listed = _decode_list(fields[field])
            raw, messages = [], []
            for index, entry in enumerate(listed):
                data = bytes(entry)
                known = index < len(self._raw) and self._raw[index] == data
                raw.append(self._raw[index] if known else data)
                messages.append(self._messages[index] if known else msgspec.json.decode(data))
            prompt, tools = self._value(fields, system), self._value(fields, "tools") or []
            read = GivenRequest(wire, body, fields, raw, messages, prompt, tools, body.count(_MARK))
        except (KeyError, msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"the messages of a request cannot be read ({error})", where=field) from error
        self._raw, self._messages = raw, list(messages)
        return read

    def _value(self, fields: Mapping[str, Raw], name: str) -> Any:
        if not name or name not in fields:
            return None
        data = bytes(fields[name])
        known = self._values.get(name)
        if known is None or known[0] != data:
            known = self._values[name] = (data, msgspec.json.decode(data))
        return known[1]


def fields_of(body: bytes) -> dict[str, Raw] | None:
    """Return the fields of a request, each as its bytes; `None` if the body is no object."""
    try:
        return _decode_fields(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def is_followed(wire: WireName, fields: Mapping[str, Raw]) -> bool:
    """Whether a request has its whole conversation as a list; one that goes on from what the provider holds has not."""
    listed = fields.get(WIRES[wire].messages)
    if listed is None or bytes(memoryview(listed)[:1]) != b"[":
        return False
    held = {name: value_at(fields, name) for name in _HELD if name in fields}
    # Most lists have no references, and are long.
    messages = value_at(fields, WIRES[wire].messages) if b"item_reference" in bytes(listed) else ()
    return is_whole_list(held, messages if isinstance(messages, list) else ())


def value_at(fields: Mapping[str, Raw], name: str) -> object:
    """Return the value of a field; `None` if it is missing or cannot be read."""
    try:
        return msgspec.json.decode(fields[name]) if name in fields else None
    except (msgspec.DecodeError, RecursionError):
        return None


def text_at(fields: Mapping[str, Raw], name: str) -> str:
    """Return a field that is a text; empty if it is missing or something else."""
    value = value_at(fields, name)
    return value if isinstance(value, str) else ""


class _Part(NamedTuple):
    """A message or another part of a request as blocks, and its breakpoints: the number of the block, and whether it is for an hour."""

    blocks: tuple[Block, ...]
    marks: tuple[Breakpoint, ...]


class RequestBlocks:
    """The requests of one conversation as blocks of a bill: each tool, then the parts of the system prompt, then those of each message.

    What a block says is its digest, whatever breakpoints are in it; each is computed once. Sizes are estimates.
    """

    def __init__(self, model: str, thinking_tokens: Callable[[str], int | None] = lambda _key: None) -> None:
        self._factor = FAMILY_FACTORS[family_of(model)]
        # The reported tokens of a thinking block by its key: a signature says nothing of them.
        self._thinking_tokens = thinking_tokens
        # By the identity of the object, which is kept with it so that no other object can get the same one.
        self._known: dict[int, tuple[Any, _Part]] = {}

    def of(self, request: GivenRequest, messages: Sequence[Any], lifetime: str = "") -> BilledRequest:
        """Return the blocks of a request with these messages, and its breakpoints with this lifetime; empty is that of the client."""
        blocks: list[Block] = []
        breakpoints: list[Breakpoint] = []
        starts: list[int] = []
        heads = self._heads(request)
        for number, value in enumerate((*heads, *messages), -len(heads)):
            known = self._known.get(id(value))
            if known is None or known[0] is not value:
                known = self._known[id(value)] = (value, self._part(value, request.wire))
            part = known[1]
            if number >= 0:
                starts.append(len(blocks))
            if part.marks:
                breakpoints += [Breakpoint(len(blocks) + mark.at, lifetime == "1h" if lifetime else mark.long) for mark in part.marks]
            blocks += part.blocks
        if len(self._known) > 2 * (len(heads) + len(messages)) + 64:
            self._known = {id(value): self._known[id(value)] for value in (*heads, *messages)}
        return BilledRequest(blocks, breakpoints, starts, len(request.tools))

    def _heads(self, request: GivenRequest) -> list[Any]:
        system = request.system
        return [*request.tools, *(system if isinstance(system, list) else [system] if system else [])]

    def _part(self, value: Any, wire: WireName) -> _Part:
        content = value.get("content") if is_json(value) and wire == "anthropic" else None
        if not isinstance(content, list) or not content:
            plain = value if is_json(value) else {"content": value}
            found = lifetime_of(plain)
            return _Part(((digest_of_message(plain), self._size(value)),), (Breakpoint(0, found == "1h"),) if found else ())
        role = value.get("role")
        blocks = [(digest_of_message({"role": role, "content": [block]}), self._size(block)) for block in content]
        marks = [(at, mark) for at, block in enumerate(content) if is_json(block) and is_json(mark := block.get(BREAKPOINT))]
        return _Part(tuple(blocks), tuple(Breakpoint(at, text(mark, "ttl") == "1h") for at, mark in marks))

    def _size(self, value: Any) -> int:
        if is_json(value) and text(value, "type") in _THINKING and (tokens := self._thinking_tokens(thinking_key(value))):
            return tokens
        return max(1, round(self._factor * estimate_bytes(_encode(value))))


def lifetime_of(value: Any) -> str:
    """Return the lifetime of the last breakpoint in a message, a part of the system prompt or the tools; empty if there is none."""
    if not is_json(value):
        return ""
    entries = [value, *tables_at(value, "content"), *tables_at(value, "tools")]
    marks = [mark for entry in entries if is_json(mark := entry.get(BREAKPOINT))]
    return text(marks[-1], "ttl") or "5m" if marks else ""


_STREAM: Final = "text/event-stream"
# The events after which a client has the whole reply, at the beginning of a line: inside of a text a line break is escaped.
_LAST_EVENTS: Final = (
    b"\nevent: message_stop",
    b'\ndata: {"type":"message_stop"',
    b'\ndata: {"type": "message_stop"',
    b"\nevent: response.completed",
    b"\nevent: response.incomplete",
    b"\nevent: response.failed",
    b'\ndata: {"type":"response.completed"',
    b"\ndata: [DONE]",
)
_LONGEST_EVENT: Final = max(map(len, _LAST_EVENTS))


class KeptReply:
    """The bytes of a reply. Of a stream its last event is held back, of any other reply all of it, until `rest` is asked for."""

    def __init__(self, headers: Mapping[str, str], most: int) -> None:
        self.content_type = headers.get("content-type", "")
        self._is_stream = self.content_type.startswith(_STREAM)
        self._most = most
        self._kept: list[bytes] = []
        self._size = 0
        self._held: list[bytes] = []
        # A stream begins as a line does.
        self._end = b"\n"
        self._is_over = False

    @property
    def data(self) -> bytes | None:
        """The reply so far; `None` if it is too long to be recorded."""
        return b"".join(self._kept) if self._size <= self._most else None

    @property
    def has_ended(self) -> bool:
        """Whether what was held back is the whole last event of a stream."""
        return self._is_stream and bool(self._held) and self._end.endswith((b"\n\n", b"\r\n\r\n"))

    def taken(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that may pass now."""
        if self._is_over:
            return chunk
        self._size += len(chunk)
        if self._size > self._most:
            self._kept.clear()
            return self.rest() + chunk
        self._kept.append(chunk)
        seen, before = self._end + chunk, len(self._end)
        self._end = seen[-_LONGEST_EVENT:]
        if not self._held:
            found = [place for event in _LAST_EVENTS if (place := seen.find(event)) >= 0] if self._is_stream else [-1]
            if not found:
                return chunk
            # The line break before the event ends the one before it.
            passed = max(0, min(found) + 1 - before)
            self._held.append(chunk[passed:])
            return chunk[:passed]
        self._held.append(chunk)
        return b""

    def rest(self) -> bytes:
        """Return what was held back; from now on everything passes."""
        held, self._held, self._is_over = self._held, [], True
        return b"".join(held)
