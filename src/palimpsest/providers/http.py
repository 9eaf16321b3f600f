"""Provider for models over HTTP in all three wire formats, with address checks, rate limits, and errors without credentials."""

import asyncio
import base64
import html
import json
import math
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import SplitResult, quote, quote_plus, unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.deltas import Delta, deltas_of
from palimpsest.core.errors import BadInput, ConnectionLost, PalimpsestError, ProviderError, ReplyTooLong, ThinkingRefused, TimedOut
from palimpsest.core.events import ModelReplied, RateLimit
from palimpsest.core.ports import Sendable, closing
from palimpsest.wire.encoding import Names, offered_names
from palimpsest.wire.models import ModelCard, WireName
from palimpsest.wire.reply import http_error, mismatch_facts
from palimpsest.wire.stream import Decoder, decode_response, decoder
from palimpsest.wire.wires import WIRES, Wire, wire_called

if TYPE_CHECKING:
    import ssl

    import httpx


def checked_address(given: str, where: str) -> SplitResult:
    """Return the parts of a valid HTTP address. Raises `BadInput` for any other text; the message contains no password."""
    if not given.startswith(("http://", "https://")):
        raise BadInput(f"the address {_printable(given)!r} does not begin with http:// or https://", where=where)
    # `urlsplit` silently drops line breaks, which could change the host.
    if not given.isprintable() or " " in given:
        raise BadInput("the address has a space, a line break or a control character in it", where=where)
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname or "", parts.port
        if ":" not in host:
            host.encode("idna")
    except ValueError:
        # The original error is not chained, because it may contain a part of a password.
        raise BadInput(f"the address {_printable(given)!r} has an invalid host or port", where=where) from None
    if not host:
        raise BadInput(f"the address {_printable(given)!r} names no host", where=where)
    if parts.query or parts.fragment:
        raise BadInput(
            f"the address {without_credentials(parts)!r} must end with its path: what follows '?' or '#' has no place in it", where=where
        )
    return parts


def without_credentials(parts: SplitResult) -> str:
    """Return the address without user name, password, query and trailing slash."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def checked_header(value: str, name: str, where: str) -> str:
    """Return a valid header value without surrounding spaces. Raises `BadInput`, with `name` instead of the value, which may be secret."""
    stripped = value.strip()
    if not stripped.isascii() or not stripped.isprintable():
        raise BadInput(f"{name} contains a character that is invalid in a header; copy only the value", where=where)
    return stripped


def _printable(given: str) -> str:
    """Return the part of an invalid address that cannot contain a password."""
    scheme, mark, rest = given.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else given.rpartition("@")[2]


_BETA = "anthropic-beta"
_VERSION_HEADER = "anthropic-version"


def version_in(headers: Mapping[str, str]) -> str:
    """Return the version of Anthropic's API that headers name, in any spelling; empty if they name none."""
    return next((value.strip() for name, value in headers.items() if name.lower() == _VERSION_HEADER), "")


def with_betas(headers: Mapping[str, str], betas: tuple[str, ...]) -> dict[str, str]:
    """Return the headers of a request to Anthropic with the beta values that its body needs; values of the user stay."""
    if not betas:
        return dict(headers)
    name = next((each for each in headers if each.lower() == _BETA), _BETA)
    given = [value for part in headers.get(name, "").split(",") if (value := part.strip())]
    return {**headers, name: ",".join(dict.fromkeys((*given, *betas)))}


_MARK = "***"
# Shorter keys are placeholders; redacting them would damage ordinary text.
_MIN_SECRET = 8
# A truncated message may end within a key: this many characters of its beginning count as the key.
_BEGINNING = 12
_PERCENT = re.compile(r"%[0-9A-F]{2}")


class Redactor:
    """Replaces the given secrets in texts and errors, in each of their likely encodings."""

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _MIN_SECRET for form in _forms(secret)}
        # The longest first: replacing a shorter form inside a longer one would leave the rest of it.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def redact(self, text: str) -> str:
        """Return the text with `***` for each secret, or for the beginning of a truncated one."""
        for form in self._forms:
            text = text.replace(form, _MARK)
        for form in self._forms:
            text = _without_beginnings(text, form)
        return text

    def redact_error(self, error: BaseException) -> None:
        """Redact the messages of an error and of all its causes and contexts in place, because a traceback prints them all."""
        for linked in _chain(error):
            linked.args = tuple(self.redact(arg) if isinstance(arg, str) else arg for arg in linked.args)
            if isinstance(linked, PalimpsestError):
                linked.message = self.redact(linked.message)


def credential_forms(user: str, password: str) -> tuple[str, str, str]:
    """Return the forms in which user name and password of an address are sent: raw, decoded, and as Basic authentication."""
    pair = f"{unquote(user)}:{unquote(password)}"
    return password, unquote(password), base64.b64encode(pair.encode()).decode()


def _forms(secret: str) -> Iterator[str]:
    escaped = json.dumps(secret)[1:-1]
    percent = quote(secret, safe="")
    yield from (secret, escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1], html.escape(secret), repr(secret)[1:-1])
    yield from (percent, _PERCENT.sub(lambda found: found[0].lower(), percent), quote_plus(secret), quote(secret))


def _without_beginnings(text: str, form: str) -> str:
    if len(form) <= _BEGINNING:
        return text
    place = text.find(form[:_BEGINNING])
    while place >= 0:
        end = _BEGINNING
        while end < len(form) and text[place : place + end + 1] == form[: end + 1]:
            end += 1
        text = text[:place] + _MARK + text[place + end :]
        place = text.find(form[:_BEGINNING], place)
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    queue, seen = [error], set[int]()
    while queue:
        linked = queue.pop()
        if id(linked) in seen:
            continue
        seen.add(id(linked))
        yield linked
        queue += [other for other in (linked.__cause__, linked.__context__) if other is not None]
        if isinstance(linked, BaseExceptionGroup):
            queue += linked.exceptions


_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+(?:\.\d+)?)ms)?")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ANTHROPIC = "anthropic-ratelimit-"
_OPENAI = "x-ratelimit-"
_USED = "x-codex-"
_MOST_LIMITS = 12


def retry_after(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until the request may be retried, or `None` if the headers do not say; header names are in lower case.

    Absolute times are compared with the `date` header, because the local clock may be wrong; `now`, in seconds since 1970, is the
    fallback. The reset times of rate limits are used only for status 429.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    clock = _date(headers.get("date", ""))
    clock = now if clock is None else clock
    given = headers.get("retry-after", "")
    seconds = _number(given)
    if seconds is not None:
        return seconds
    moment = _date(given)
    if moment is not None:
        return max(0.0, moment - clock)
    return _seconds_until_reset(headers, clock) if status == HTTPStatus.TOO_MANY_REQUESTS else None


def _seconds_until_reset(headers: Mapping[str, str], clock: float) -> float | None:
    """Return the seconds until all exhausted limits are reset; until all limits are if none is reported as exhausted."""
    resets = list(_limit_resets(headers, clock))
    used_up = [seconds for seconds, remaining in resets if remaining == 0]
    return max(used_up or [seconds for seconds, _ in resets], default=None)


def _limit_resets(headers: Mapping[str, str], clock: float) -> Iterator[tuple[float, float | None]]:
    """Yield, for each limit, the seconds until its reset and what remains of it."""
    for name, value in headers.items():
        if name.startswith(_ANTHROPIC) and name.endswith("-reset"):
            limit = name.removeprefix(_ANTHROPIC).removesuffix("-reset")
            moment = _timestamp(value)
            if moment is not None:
                yield max(0.0, moment - clock), _number(headers.get(f"{_ANTHROPIC}{limit}-remaining", ""))
        elif name.startswith(f"{_OPENAI}reset-"):
            limit = name.removeprefix(f"{_OPENAI}reset-")
            seconds = _duration(value)
            if seconds is not None:
                yield seconds, _number(headers.get(f"{_OPENAI}remaining-{limit}", ""))


def rate_limits(headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
    """Return the limits that the headers of a response report, at most 12: of Codex by use, of OpenAI and Anthropic by what is left."""
    return tuple(islice(_limits(headers, now), _MOST_LIMITS))


def _limits(headers: Mapping[str, str], now: float) -> Iterator[RateLimit]:
    clock = _date(headers.get("date", ""))
    clock = now if clock is None else clock
    for name in ("primary", "secondary"):
        used, reset = _number(headers.get(f"{_USED}{name}-used-percent", "")), _number(headers.get(f"{_USED}{name}-reset-at", ""))
        if used is not None:
            minutes, reset = (
                _number(headers.get(f"{_USED}{name}-window-minutes", "")),
                _number(headers.get(f"{_USED}{name}-reset-at", "")),
            )
            yield RateLimit(name, used, None if reset is None else int(reset), None if minutes is None else int(minutes))
    for header, value in headers.items():
        openai, anthropic = header.startswith(f"{_OPENAI}limit-"), header.startswith(_ANTHROPIC) and header.endswith("-limit")
        if not (openai or anthropic):
            continue
        name = header.removeprefix(f"{_OPENAI}limit-") if openai else header.removeprefix(_ANTHROPIC).removesuffix("-limit")
        left = headers.get(f"{_OPENAI}remaining-{name}" if openai else f"{_ANTHROPIC}{name}-remaining", "")
        most, remaining = _number(value), _number(left)
        if most and remaining is not None:
            seconds = _duration(headers.get(f"{_OPENAI}reset-{name}", "")) if openai else None
            moment = _timestamp(headers.get(f"{_ANTHROPIC}{name}-reset", "")) if anthropic else None if seconds is None else clock + seconds
            yield RateLimit(name, round(100 * max(0.0, 1 - remaining / most), 1), None if moment is None else int(moment))


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    """Parse an HTTP date into seconds since 1970; `None` if it is invalid."""
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return _since_1970(moment)


def _timestamp(value: str) -> float | None:
    """Parse an RFC 3339 timestamp into seconds since 1970; `None` if it is invalid."""
    try:
        return _since_1970(datetime.fromisoformat(value))
    except ValueError:
        return None


def _since_1970(moment: datetime) -> float | None:
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(value: str) -> float | None:
    """Parse a duration such as `6m0s`, `1.5s` or `20ms` into seconds; `None` if it is invalid."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or not found.group(0):
        return _number(value)
    return sum(float(amount) * _SECONDS[unit] for unit, amount in found.groupdict().items() if amount)


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


_HOSTS: Mapping[str, str] = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1", "xai": "https://api.x.ai/v1"}
# Providers of built-in cards that are reached only at a configured address.
_WITHOUT_HOST = frozenset({"google", "deepseek", "moonshot", "zai", "alibaba"})
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
    the model, who knows every documented field; `api_version` is the version of Anthropic's API that its headers ask for, empty for the
    usual one. As an async context manager, or from `keep_open` on until `aclose`, it keeps connections open between requests.
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
        self.api_version = version_in(self._headers)
        self._redactor = Redactor((self._key, *credential_forms(parts.username or "", parts.password or ""), *_secrets(self._headers)))
        self._keeps_open = False
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if not self._key and self._base == _HOSTS[maker]:
            raise BadInput(f"{prefix}_API_KEY is not set; set it, or name another address in {prefix}_BASE_URL", where=card.name)

    def _url(self, wire: Wire, endpoint: str = "") -> str:
        base = self._base.removesuffix("/v1") if wire.path.startswith("/v1/") else self._base
        return base + wire.path + (f"/{endpoint}" if endpoint and wire.has_endpoints else "")

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
        wire = wire_called(request.wire)
        if wire is None:
            raise BadInput(f"no wire is called {request.wire!r}", where=self._card.name)
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
        wire = WIRES["anthropic"]
        url = f"{self._url(wire)}/count_tokens?beta=true"
        try:
            with provider_errors(self._redactor, self._as_provider_error):
                async with client.stream("POST", url, content=body, headers=self._request_headers(wire)) as response:
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
        self, wire: Wire, response: "httpx.Response", names: Names, meter: ReplyMeter
    ) -> AsyncGenerator[Delta | ModelReplied, None]:
        if not response.is_success:
            body = await first_bytes(meter.chunks(response.aiter_bytes()))
            raise status_error(response.status_code, body, response.headers, self._redactor, self._card.provider)
        opened = OpenResponse(response.headers, response.aiter_bytes)
        async with closing(read_reply(opened, wire.name, self._card, names, meter)) as pieces:
            async for piece in pieces:
                yield piece

    async def _new_client(self) -> "httpx.AsyncClient":
        # Reading the root certificates takes 30 ms, in which a user interface would take no keys.
        certificates = await asyncio.to_thread(_certificates)
        import httpx  # noqa: PLC0415 - as above

        timeout = httpx.Timeout(self._timeout, connect=min(_CONNECT_TIMEOUT, self._timeout))
        return httpx.AsyncClient(timeout=timeout, verify=certificates, limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS))

    def _request_headers(self, wire: Wire, betas: tuple[str, ...] = ()) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json", "user-agent": "palimpsest"}
        headers |= wire.headers
        if self._key:
            headers[wire.key_header] = wire.key_scheme + self._key
        own = {name.lower() for name in self._headers}
        headers = {name: value for name, value in headers.items() if name not in own} | self._headers
        return with_betas(headers, betas)


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
