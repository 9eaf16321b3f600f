"""Codec for the lines of a log: encodes and decodes events, links them, and upgrades older formats."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import accumulate
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, BadLog, NewerFormat
from palimpsest.core.events import Body, Event, SessionOpened, Unknown
from palimpsest.core.events.calls import NULL, ModelReplied, Usage
from palimpsest.core.events.context import EditRefused
from palimpsest.core.events.tools import ToolRefused
from palimpsest.core.format.declared_types import has_declared_types
from palimpsest.core.items import Text

FORMAT = 1
MAX_LINE = 64 * 1024 * 1024
_ENVELOPE = 1024
_SHORT = 512
GENESIS = ""

Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
# By format version: a function that turns a body of that version into one of the next.
UPCASTERS: Mapping[int, Upcaster] = {}

TAGS: frozenset[str] = frozenset(str(body.__struct_config__.tag) for body in get_args(Body))

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_bodies = msgspec.json.Decoder(Body)
_BODY = b',"body":'


class _Envelope(Struct, frozen=True):
    """A line whose body is not decoded yet."""

    seq: int
    parent: int
    at: int
    prev: str
    body: Raw
    v: int = FORMAT
    digest: str = ""


class _Tag(Struct, frozen=True):
    type: str


_envelopes = msgspec.json.Decoder(_Envelope)
_tags = msgspec.json.Decoder(_Tag)


def encode_body(body: Body) -> bytes:
    """Return a body as the bytes that are hashed and written, always on one line."""
    data = bytes(body.raw) if isinstance(body, Unknown) else _encoder.encode(body)
    return msgspec.json.format(data, indent=-1) if b"\n" in data else data


def encode_checked(body: Body) -> bytes:
    """Return the encoded body. Raises `BadInput` if it could not be decoded again, or is too long for a line."""
    try:
        data = encode_body(body)
        # Decoding costs as much as encoding, so the field types of a long body are checked first.
        short = len(data) < _SHORT
        if (short or not has_declared_types(body)) and (not isinstance(body, Unknown) or _tags.decode(data).type in TAGS):
            _bodies.decode(data)
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise BadInput(f"{type(body).__name__} cannot be recorded: {error}") from error
    if len(data) > MAX_LINE - _ENVELOPE:
        raise BadInput(f"{type(body).__name__} of {len(data):,} bytes is too long for a line; put its content into a blob")
    return data


def digest_of(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return sha256(data).hexdigest()


def link_of(prev: str, seq: int, parent: int, at: int, digest: str) -> str:
    """Return the link of an event: a hash over its envelope, the previous link, and the digest of its body, so a body can be redacted."""
    return sha256(f"{prev}\n{seq}\n{parent}\n{at}\n{digest}".encode()).hexdigest()


def encode_line(seq: int, parent: int, at: int, prev: str, body: bytes, *, digest: str = "") -> bytes:
    """Return one line of a log; the body is the last field, so that its bytes can be found without parsing.

    A `digest` marks the body as redacted; it is the digest of the original body.
    """
    redacted = b'"digest":"%s",' % digest.encode() if digest else b""
    return b"".join((b'{"seq":%d,"parent":%d,"at":%d,"prev":"%s",%s"body":' % (seq, parent, at, prev.encode(), redacted), body, b"}\n"))


def body_bytes(line: bytes) -> bytes:
    """Return the exact bytes of the body in a line that this codec wrote."""
    start = line.find(_BODY) + len(_BODY)
    return line[start : line.rindex(b"}")]


def link_of_line(line: bytes, event: Event) -> str:
    """Return the link of the event on this line."""
    digest = event.digest or digest_of(body_bytes(line))
    return link_of(event.prev, event.seq, event.parent, event.at, digest)


def decode_chunk(chunk: bytes, where: str, offset: int = 0) -> list[Event]:
    """Return all events of a chunk of complete lines; `where` and `offset` locate the chunk in errors. Raises `BadLog`."""
    try:
        return _events.decode_lines(chunk)
    except (msgspec.DecodeError, UnicodeDecodeError):
        lines = chunk.splitlines(keepends=True)
        starts = accumulate(map(len, lines), initial=offset)
        return [decode_line(line, where, start) for line, start in zip(lines, starts, strict=False) if line.strip()]


def decode_line(line: bytes, where: str, offset: int = 0, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> Event:
    """Return the event on a line of this or an older format; new event types become `Unknown`. Raises `BadLog` or `NewerFormat`."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_slowly(line, f"{where}, byte {offset}", upcasters)


def _decode_slowly(line: bytes, place: str, upcasters: Mapping[int, Upcaster]) -> Event:
    try:
        envelope = _envelopes.decode(line)
        tag = _tags.decode(envelope.body).type
    except UnicodeDecodeError as error:
        raise BadLog(f"the line is not UTF-8 ({error.reason})", where=place) from error
    except msgspec.DecodeError as error:
        raise BadLog(f"the line is not an event ({error})", where=place) from error
    if envelope.v > FORMAT:
        raise NewerFormat(
            f"event {envelope.seq} has format {envelope.v}, this version reads up to {FORMAT}; update palimpsest", where=place
        )
    try:
        body = _decode_body(envelope, tag, upcasters)
    except UnicodeDecodeError as error:
        raise BadLog(f"event {envelope.seq} ({tag}) is not UTF-8 ({error.reason})", where=place) from error
    except msgspec.DecodeError as error:
        raise BadLog(f"event {envelope.seq} ({tag}) is malformed ({error})", where=place) from error
    return Event(envelope.seq, envelope.parent, envelope.at, envelope.prev, body, digest=envelope.digest)


def _decode_body(envelope: _Envelope, tag: str, upcasters: Mapping[int, Upcaster]) -> Body:
    if envelope.v == FORMAT:
        if tag in LEGACY:
            return LEGACY[tag](bytes(envelope.body))
        if tag not in TAGS:
            return Unknown(Raw(bytes(envelope.body)), tag)
        return cast("Body", _bodies.decode(envelope.body))
    content: dict[str, Any] = msgspec.json.decode(envelope.body)
    for version in range(envelope.v, FORMAT):
        content = upcasters[version](content)
    return cast("Body", msgspec.convert(content, Body))


class _SideCalled(Struct, frozen=True):
    """Body of 0.1.0: a side call, with request and reply in one event."""

    purpose: str
    model: str
    usage: Usage = Usage()
    text: str = ""
    ask: str = ""
    foreign: Raw = NULL


class _Refused(Struct, frozen=True):
    """Body of 0.1.0: a rejected edit or tool call."""

    what: str
    by: str
    why: str
    call_id: str = ""
    edits: tuple[Edit, ...] = ()
    of: str = ""
    foreign: Raw = NULL


_side_calls = msgspec.json.Decoder(_SideCalled)
_refusals = msgspec.json.Decoder(_Refused)


def _upgrade_side_call(data: bytes) -> Body:
    """Return a reply without a recorded start; the prompt is kept in `foreign`."""
    old = _side_calls.decode(data)
    foreign = Raw(_encoder.encode({"ask": old.ask})) if old.ask and bytes(old.foreign) == b"null" else old.foreign
    parts = (Text(old.text, "assistant"),) if old.text else ()
    return ModelReplied(parts, usage=old.usage, model=old.model, purpose=old.purpose, foreign=foreign)


def _upgrade_refusal(data: bytes) -> Body:
    old = _refusals.decode(data)
    if old.edits or old.of or old.what == "edit":
        return EditRefused(old.edits, old.of, old.by, old.why, foreign=old.foreign)
    return ToolRefused(old.call_id, old.what, old.by, old.why, foreign=old.foreign)


LEGACY: Mapping[str, Callable[[bytes], Body]] = {"side_called": _upgrade_side_call, "refused": _upgrade_refusal}


def first_event(opened: SessionOpened, now: int) -> Event:
    """Return the first event of a log at a time in milliseconds; that of a fork follows the event of its base."""
    base = opened.base
    seq, prev = (0, GENESIS) if base is None else (base.seq + 1, base.link)
    return Event(seq, seq - 1, now, prev, opened)


def first_line(event: Event) -> bytes:
    """Return the first line of a log."""
    return encode_line(event.seq, event.parent, event.at, event.prev, encode_checked(event.body))
