"""Lines of a log file: encoding of events, the hash chain, checkpoints, paths to the tip of a branch, and stored side requests."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, Self, TypeAlias, cast, get_args

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.errors import BadInput, BadLog, NewerFormat, PalimpsestError
from palimpsest.core.events import (
    NULL,
    Body,
    CallStarted,
    EditRefused,
    EditUndone,
    Event,
    ModelReplied,
    SessionOpened,
    ToolRefused,
    ToolReturned,
    Unknown,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Edit, Form, Item, Role, Signature, Text, Thinking, ToolCall, ToolResult, Value
from palimpsest.core.ports import LogFile
from palimpsest.core.view import View

_ROLES = frozenset(get_args(Role))
_FORMS = frozenset(get_args(Form))
_THINKING_FORMS = frozenset({"whole", "digest", "sealed"})
_read_raw = msgspec.json.Decoder(Raw).decode


def has_declared_types(body: Body) -> bool:
    """Whether all fields of a body have their declared types; false also for bodies that this fast check does not cover."""
    check = _BODIES.get(type(body))
    return check is not None and check(body) and (body.foreign is NULL or _is_json(body.foreign))


def _is_json(raw: Any) -> bool:
    """Whether raw JSON, which is written unchanged, is one valid value; parsing it creates no objects and is cheap."""
    if type(raw) is not Raw:
        return False
    try:
        _read_raw(raw)
    except msgspec.DecodeError:
        return False
    return True


# The arguments are `Any`, because callers without a type checker may pass values of any type.
def _tool_returned(body: Any) -> bool:
    if type(body.tool) is not str or type(body.took_ms) is not int or type(body.result) is not ToolResult:
        return False
    if body.exit is not None and type(body.exit) is not int:
        return False
    return type(body.paths) is tuple and all(type(path) is str for path in body.paths) and _is_plain_result(body.result)


def _model_replied(body: Any) -> bool:
    usage = body.usage
    if not (type(body.stop) is type(body.model) is type(body.message) is type(body.error) is type(body.provider_stop) is str):
        return False
    if type(usage) is not Usage:
        return False
    if not (type(usage.input) is type(usage.cache_read) is type(usage.cache_write) is type(usage.cache_write_long) is int):
        return False
    if not (type(usage.output) is type(usage.reasoning) is int) or (body.call is not None and type(body.call) is not int):
        return False
    return type(body.parts) is tuple and all(map(_is_plain_content, body.parts))


def _user_said(body: Any) -> bool:
    if (body.typed is not None and type(body.typed) is not int) or type(body.steering) is not bool:
        return False
    return type(body.parts) is tuple and all(map(_is_plain_text, body.parts))


def _is_plain_content(content: Any) -> bool:
    check = _CONTENTS.get(type(content))
    return check is not None and check(content)


def _is_plain_text(part: Any) -> bool:
    return type(part) is Text and _has_plain_text(part)


def _has_plain_text(text: Any) -> bool:
    strings = type(text.text) is type(text.phase) is type(text.ref) is type(text.role) is str
    return strings and text.role in _ROLES and type(text.attached) is bool


def _call(call: Any) -> bool:
    strings = type(call.call_id) is type(call.tool) is type(call.args) is type(call.ref) is type(call.form) is str
    return strings and type(call.given) is type(call.kind) is str and call.form in _FORMS


def _is_plain_result(result: Any) -> bool:
    strings = type(result.call_id) is type(result.blob) is type(result.ref) is type(result.form) is str
    if not strings or type(result.error) is not bool or result.form not in _FORMS or type(result.parts) is not tuple:
        return False
    return all(map(_is_plain_text, result.parts))


def _thinking(thinking: Any) -> bool:
    signature = thinking.signature
    if signature is not None:
        if type(signature) is not Signature:
            return False
        if not (type(signature.provider) is type(signature.model) is type(signature.data) is str):
            return False
    return type(thinking.text) is type(thinking.ref) is type(thinking.form) is str and thinking.form in _THINKING_FORMS


_BODIES: Mapping[type, Callable[[Any], bool]] = {ToolReturned: _tool_returned, ModelReplied: _model_replied, UserSaid: _user_said}
_CONTENTS: Mapping[type, Callable[[Any], bool]] = {
    Text: _has_plain_text,
    ToolCall: _call,
    ToolResult: _is_plain_result,
    Thinking: _thinking,
}


FORMAT = 1
MAX_LINE = 64 * 1024 * 1024
_ENVELOPE = 1024
_SHORT = 512
GENESIS = ""

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


def decode_line(line: bytes, where: str, offset: int = 0) -> Event:
    """Return the event on a line; new event types become `Unknown`. Raises `BadLog` or `NewerFormat`."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_slowly(line, f"{where}, byte {offset}")


def _decode_slowly(line: bytes, place: str) -> Event:
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
    if envelope.v < FORMAT:
        raise BadLog(f"event {envelope.seq} has format {envelope.v}, which never was", where=place)
    try:
        body = _decode_body(envelope, tag)
    except UnicodeDecodeError as error:
        raise BadLog(f"event {envelope.seq} ({tag}) is not UTF-8 ({error.reason})", where=place) from error
    except msgspec.DecodeError as error:
        raise BadLog(f"event {envelope.seq} ({tag}) is malformed ({error})", where=place) from error
    return Event(envelope.seq, envelope.parent, envelope.at, envelope.prev, body, digest=envelope.digest)


def _decode_body(envelope: _Envelope, tag: str) -> Body:
    if tag in LEGACY:
        return LEGACY[tag](bytes(envelope.body))
    if tag not in TAGS:
        return Unknown(Raw(bytes(envelope.body)), tag)
    return cast("Body", _bodies.decode(envelope.body))


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


# The undone edits: by event, the indexes of its edits; an empty set means all of them.
UndoneEdits: TypeAlias = Mapping[int, frozenset[int]]
NOTHING_UNDONE: Final[UndoneEdits] = {}


class EventRange(Value, frozen=True):
    """Consecutive events `first` to `last`, both included."""

    first: int
    last: int


_first = attrgetter("first")


class Path(Value, frozen=True):
    """The events from the first to the tip of a branch, as ranges in order."""

    ranges: tuple[EventRange, ...] = ()

    @property
    def tip(self) -> int:
        """The last event, or -1 if the path is empty."""
        return self.ranges[-1].last if self.ranges else -1

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self.ranges, seq, key=_first) - 1
        return place >= 0 and seq <= self.ranges[place].last

    def upto(self, seq: int) -> Self:
        """Return the part of the path up to event `seq`."""
        return type(self)(tuple(EventRange(part.first, min(part.last, seq)) for part in self.ranges if part.first <= seq))

    def then(self, seq: int, parent: int) -> Self:
        """Return the path to event `seq`, which follows `parent`."""
        ranges = self.ranges
        if ranges and parent == ranges[-1].last:
            if seq == parent + 1:
                return type(self)((*ranges[:-1], EventRange(ranges[-1].first, seq)))
            return type(self)((*ranges, EventRange(seq, seq)))
        return type(self)((*self.upto(parent).ranges, EventRange(seq, seq)))


def path_to(seq: int, first: int, jumps: Iterable[tuple[int, int]]) -> Path:
    """Return the path to `seq` in a file that begins with event `first`; a jump is an event and its parent."""
    parents = dict(jumps)
    starts = sorted(parents)
    ranges: list[EventRange] = []
    last = seq
    while True:
        place = bisect_right(starts, last)
        start = starts[place - 1] if place else first
        ranges.append(EventRange(start, last))
        parent = parents.get(start)
        if parent is None or parent < first:
            return Path(tuple(reversed(ranges)))
        last = parent


class SideRequest(Value, frozen=True):
    """Head and items of a side request; an item that equals the one in the view is stored as its id."""

    head: tuple[str | Item, ...] = ()
    items: tuple[str | Item, ...] = ()


_decoder = msgspec.json.Decoder(SideRequest)
_encode = msgspec.json.Encoder().encode


def encode_side_request(asked: View, view: View) -> bytes:
    """Return the contents of the request that shows `asked`, encoded relative to the `view` at that time."""
    visible = {item.id: item for item in (*view.head, *view.items)}

    def by_id(items: tuple[Item, ...]) -> tuple[str | Item, ...]:
        return tuple(item.id if visible.get(item.id) == item else item for item in items)

    return _encode(SideRequest(by_id(asked.head), by_id(asked.items)))


def decode_side_request(data: bytes, call: CallStarted, view: View) -> View:
    """Return the view that a side request showed; `view` is that of the conversation at that time.

    Raises `BadLog` if the blob cannot be decoded or refers to an item that the view lacks.
    """
    try:
        request = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadLog(f"the contents of a side request cannot be read ({error})", where=f"blob {call.request}") from error
    visible = {item.id: item for item in (*view.head, *view.items)}

    def items_of(items: tuple[str | Item, ...]) -> tuple[Item, ...]:
        return tuple(visible[item] if isinstance(item, str) else item for item in items)

    try:
        return View(head=items_of(request.head), items=items_of(request.items), call=view.call, model=call.model)
    except KeyError as error:
        raise BadLog(f"a side request shows item {error}, which the view before it lacks", where=f"blob {call.request}") from error


VERSION = 2


class Snapshot(Struct, frozen=True, array_like=True):
    """The state of one projection as JSON, and the version of its schema."""

    version: int
    data: Raw


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """The state of a log after event `seq`, whose line begins at byte `last_line` and ends at byte `offset`.

    `snapshots` are keyed by the names of the projections. `jumps` are pairs of an event and its parent, for each event whose parent is
    not the event before it.
    """

    seq: int
    offset: int
    last_line: int
    link: str
    snapshots: dict[str, Snapshot]
    jumps: tuple[tuple[int, int], ...] = ()
    undone: tuple[tuple[int, EditUndone], ...] = ()
    v: int = 1


_checkpoint_encoder = msgspec.json.Encoder()
_checkpoint_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as bytes: its digest, a newline, and its JSON."""
    data = _checkpoint_encoder.encode(checkpoint)
    return sha256(data).hexdigest().encode() + b"\n" + data


def load_checkpoint(lines: LogFile) -> Checkpoint | None:
    """Return the checkpoint of a log, or `None` if it is missing, damaged, of another version or of another log.

    Raises `BadLog` if the line that it was made after was changed: nothing else protects the last line of a log.
    """
    checkpoint = stored_checkpoint(lines)
    return checkpoint if checkpoint is not None and _matches(checkpoint, lines) else None


def stored_checkpoint(lines: LogFile) -> Checkpoint | None:
    """Return the checkpoint beside a log, whether it matches the log or not; `None` if it is missing, damaged or of another version."""
    stored = lines.load_checkpoint()
    if stored is None:
        return None
    digest, _, data = stored.partition(b"\n")
    if sha256(data).hexdigest().encode() != digest:
        return None
    try:
        checkpoint = _checkpoint_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return checkpoint if checkpoint.v == VERSION else None


def lost_end(lines: LogFile, last: int) -> str:
    """Return a sentence if the checkpoint is of a later event than the last one of the log; else empty. Only this shows such a loss."""
    checkpoint = stored_checkpoint(lines)
    if checkpoint is None or checkpoint.seq <= last or checkpoint.offset <= lines.size:
        return ""
    # A writer may have appended lines, and saved a checkpoint after them, since the log was opened.
    with suppress(PalimpsestError):
        lines.refresh()
    if checkpoint.offset <= lines.size:
        return ""
    return f"the log ends with event {last}, and its checkpoint is of event {checkpoint.seq}: lines were cut from its end"


def _matches(checkpoint: Checkpoint, lines: LogFile) -> bool:
    """Whether the log has the event and the link of the checkpoint at its offset. Raises `BadLog` if that line was changed."""
    start, stop = checkpoint.last_line, checkpoint.offset
    # A log that is shorter, or has its lines at other offsets, is an older copy or another log.
    if stop > lines.size + lines.torn or (start and lines.read(start - 1, 1) != b"\n"):
        return False
    if stop <= lines.size:
        line = lines.read(start, stop - start)
        event = decode_line(line, lines.name, start) if line.endswith(b"\n") else None
        if event is not None and event.seq != checkpoint.seq:
            return False
        if event is not None and link_of_line(line, event) == checkpoint.link:
            return True
    where = f"{lines.name}, byte {start}"
    raise BadLog(f"event {checkpoint.seq} is not the one that the checkpoint was made after: it was changed; see `pal verify`", where=where)


_match_envelope = re.compile(
    rb'\{"seq":([0-9]{1,18}),"parent":(-?[0-9]{1,18}),"at":(-?[0-9]{1,18}),"prev":"([0-9a-f]*)",(?:"digest":"([0-9a-f]*)",)?"body":'
).match


def check_chain(chunk: bytes, where: str, offset: int, link: str | None) -> str | None:
    """Verify a chunk of complete lines at byte `offset`, and return the link of its last line.

    `link` is that of the line before the chunk, or `None` if it is unknown. Raises `BadLog` where a line does not continue the previous
    one.
    """
    view, start, size = memoryview(chunk), 0, len(chunk)
    while start < size:
        stop = chunk.find(b"\n", start)
        stop = size if stop < 0 else stop
        found = _match_envelope(chunk, start)
        if found is not None and chunk[stop - 1 : stop] == b"}":
            seq, parent, at, prev, redacted = found.groups()
            if link is not None and prev != link.encode():
                raise broken(int(seq), f"{where}, byte {offset + start}")
            digest = redacted or sha256(view[found.end() : stop - 1]).hexdigest().encode()
            link = sha256(b"%s\n%s\n%s\n%s\n%s" % (prev, seq, parent, at, digest)).hexdigest()
        elif chunk[start:stop].strip():
            # Another program wrote or reformatted this line.
            event = decode_line(chunk[start : stop + 1], where, offset + start)
            if link is not None and event.prev != link:
                raise broken(event.seq, f"{where}, byte {offset + start}")
            link = link_of_line(chunk[start : stop + 1], event)
        start = stop + 1
    return link


def prev_of(line: bytes) -> str | None:
    """Return the link of the previous line as a line states it, or `None` if the line is not formatted as this library writes it."""
    found = _match_envelope(line)
    return None if found is None else found[4].decode()


def broken(seq: int, where: str) -> BadLog:
    """Return the error for an event that does not continue the chain."""
    return BadLog(f"event {seq} does not continue the chain: it or the event before was changed; see `pal verify`", where=where)
