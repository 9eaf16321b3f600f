"""Makes the ids of tool calls unique in a session, whatever ids providers and imported files use."""

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec import structs

from palimpsest.core.events import Body, Event
from palimpsest.core.events.calls import TURN, Interrupted, ModelReplied
from palimpsest.core.events.records import ChildOpened
from palimpsest.core.events.tools import HookRan, PermissionAsked, Permitted, ProcessStarted, ToolRefused, ToolReturned, ToolStarted
from palimpsest.core.items import Content, ToolCall
from palimpsest.core.projections.projection import Scope

# A Bloom filter of 8 KiB with four hashes: the rate of false positives is 1 in 80,000 after 1,000 calls and 1 in 25 after 10,000. A false
# positive only gives a call an id of ours. A set of all ids would make checkpoints grow with the session.
_BITS: Final = 65_536
_OURS: Final = "pal_"
# The most pending and answered calls that are remembered, so that the cost of a result does not grow with the session.
_MAX_CALLS: Final = 4_096
# The most calls of which a copy is remembered for going back; with more, going back reads the log again.
_MAX_REMEMBERED: Final = 64
# Bodies that are recorded at most once for each pending call.
_ONCE: Final = (ToolStarted, PermissionAsked, Permitted, ToolRefused)

# Pending calls by recorded id: the provider's id, the event of the reply, and the bodies recorded since. Answered ones by provider's id.
_Pending: TypeAlias = dict[str, tuple[str, int, frozenset[str]]]
_Answered: TypeAlias = dict[str, tuple[str, int]]

_encode = msgspec.json.Encoder().encode
_texts = msgspec.json.Decoder(str)
_snapshots = msgspec.json.Decoder(tuple[_Pending, _Answered])


class UsedCallIds:
    """The ids of all tool calls so far, on every branch of the file, as a Bloom filter."""

    name: ClassVar = "used_call_ids"
    watches: ClassVar = frozenset({ModelReplied, Interrupted})
    version: ClassVar = 2
    scope: ClassVar[Scope] = "file"

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)

    def __contains__(self, call_id: str) -> bool:
        bits = self._bits
        return all(bits[place >> 3] & 1 << (place & 7) for place in _places(call_id))

    def add(self, call_id: str) -> None:
        """Add an id."""
        for place in _places(call_id):
            self._bits[place >> 3] |= 1 << (place & 7)

    @property
    def bits(self) -> bytes:
        """The bits of the filter."""
        return bytes(self._bits)

    def start_from(self, bits: bytes) -> None:
        """Copy the filter of another log, which is faster than a snapshot."""
        self._bits = bytearray(bits)

    def take(self, event: Event) -> None:
        """Add the call ids of a complete or interrupted reply."""
        body = event.body
        if isinstance(body, ModelReplied | Interrupted):
            for part in body.parts:
                if isinstance(part, ToolCall) and part.call_id:
                    self.add(part.call_id)

    def snapshot(self) -> bytes:
        """Return the compressed filter as a JSON string."""
        return _encode(b64encode(zlib.compress(self._bits, level=1)).decode())

    def restore(self, data: bytes) -> None:
        """Replace the filter by a snapshot. Raises `msgspec.DecodeError` if it is invalid."""
        try:
            bits = bytearray(zlib.decompress(b64decode(_texts.decode(data)), bufsize=_BITS // 8))
        except (ValueError, zlib.error) as error:
            raise msgspec.DecodeError(str(error)) from error
        if len(bits) != _BITS // 8:
            raise msgspec.DecodeError("a filter of another size")
        self._bits = bits

    def reset(self) -> None:
        """Remove all ids."""
        self._bits = bytearray(_BITS // 8)


def _places(call_id: str) -> tuple[int, int, int, int]:
    """Return the four bit positions of an id, 16 bits each, from two checksums."""
    data = call_id.encode("utf-8", "surrogatepass")
    # With two seeds the checksums of all ids of one length would differ by the same bits; of the reversed id they are independent.
    one, two = crc32(data), crc32(data[::-1])
    return one & 0xFFFF, one >> 16, two & 0xFFFF, two >> 16


class PendingCalls:
    """The tool calls of the path without a result, oldest first.

    Each has the id of the provider if that differs, the event of its reply, and the names of the bodies recorded for it since. Answered
    calls are remembered only if their recorded id differs from the provider's.
    """

    name: ClassVar = "pending_calls"
    watches: ClassVar = frozenset({ModelReplied, ToolReturned, *_ONCE})
    version: ClassVar = 3
    scope: ClassVar[Scope] = "path"

    def __init__(self) -> None:
        self._pending: _Pending = {}
        self._answered: _Answered = {}
        # Events after which the calls changed, in order, with a copy of the calls; both lists are empty unless `remember` was called.
        self._changed_at: list[int] = []
        self._copies: list[tuple[_Pending, _Answered] | None] = []

    def remember(self, seq: int) -> None:
        """Keep the calls after event `seq` and after each later change in memory, for `go_back`."""
        self._changed_at, self._copies = [seq], [self._copy()]

    def _copy(self) -> tuple[_Pending, _Answered] | None:
        few = len(self._pending) + len(self._answered) <= _MAX_REMEMBERED
        return (dict(self._pending), dict(self._answered)) if few else None

    def go_back(self, to: int, seq: int) -> bool:
        """Take back the calls to those after event `to`, which event `seq` follows. Returns false if they are not remembered."""
        # Between two jumps the events of a path are next to each other in the file, so the last change before `to` is on its path.
        place = bisect_right(self._changed_at, to) - 1
        copy = self._copies[place] if place >= 0 else None
        if copy is None:
            return False
        self._pending, self._answered = dict(copy[0]), dict(copy[1])
        self._note_change(seq)
        return True

    def replace_by(self, other: "PendingCalls", seq: int) -> None:
        """Take over the calls of another projection, which are those after event `seq`."""
        self._pending, self._answered = other.calls()
        self._note_change(seq)

    def calls(self) -> tuple[_Pending, _Answered]:
        """Return the calls without a result, and the answered ones whose recorded id differs from the provider's."""
        return self._pending, self._answered

    def _note_change(self, seq: int) -> None:
        if self._changed_at:
            self._changed_at.append(seq)
            self._copies.append(self._copy())

    def resolve(self, call_id: str, body: str = "") -> str:
        """Return the recorded id of the pending call for an id of a provider or file; the id itself if there is none.

        If several calls match, the first of the newest reply wins; with the name of a `body`, the first for which no such body was
        recorded. A result without an id belongs to a call without one.
        """
        found, newest, is_recorded = call_id, -1, False
        for recorded, (given, reply, bodies) in self._pending.items():
            if reply < newest or (reply == newest and not (is_recorded and body not in bodies)):
                continue
            if call_id == recorded or (call_id == given and (given or recorded.startswith(_OURS))):
                found, newest, is_recorded = recorded, reply, body in bodies
        return found

    def resolve_any(self, call_id: str) -> str:
        """Return the recorded id of the newest matching call, answered or not; the id itself if there is none."""
        found = self.resolve(call_id)
        recorded, reply = self._answered.get(call_id, (found, -1))
        return recorded if found not in self._pending or reply > self._pending[found][1] else found

    def take(self, event: Event) -> None:
        """Add the calls of a reply, note the bodies that are recorded for them, and remove the call of a result."""
        self._apply(event)
        self._note_change(event.seq)

    def _apply(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ToolReturned):
            call = self._pending.pop(body.result.call_id, None)
            if call is not None and call[0]:
                self._answered.pop(call[0], None)
                self._answered[call[0]] = body.result.call_id, call[1]
                if len(self._answered) > _MAX_CALLS:
                    del self._answered[next(iter(self._answered))]
        elif isinstance(body, _ONCE):
            if body.call_id in self._pending:
                given, reply, bodies = self._pending[body.call_id]
                self._pending[body.call_id] = given, reply, bodies | {type(body).__name__}
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            for part in body.parts:
                if isinstance(part, ToolCall) and part.call_id:
                    self._pending[part.call_id] = part.given, event.seq, frozenset()
            while len(self._pending) > _MAX_CALLS and next(iter(self._pending.values()))[1] != event.seq:
                del self._pending[next(iter(self._pending))]

    def snapshot(self) -> bytes:
        """Return the pending and the remembered answered calls as JSON."""
        return _encode((self._pending, self._answered))

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` if it is invalid."""
        self._pending, self._answered = _snapshots.decode(data)
        self._changed_at, self._copies = [], []

    def reset(self) -> None:
        """Remove all calls, and forget those to go back to."""
        self._pending, self._answered = {}, {}
        self._changed_at, self._copies = [], []


def with_unique_ids(seq: int, body: Body, used: UsedCallIds, pending: PendingCalls) -> Body:
    """Return the body to record as event `seq`: tool calls get unique ids, and other bodies the recorded ids of their calls."""
    match body:
        case ToolReturned():
            call_id = pending.resolve(body.result.call_id)
            return body if call_id == body.result.call_id else structs.replace(body, result=structs.replace(body.result, call_id=call_id))
        case ModelReplied() | Interrupted():
            if not any(isinstance(part, ToolCall) for part in body.parts):
                return body
            parts = _with_unique_call_ids(seq, body.parts, used)
            return body if parts == body.parts else structs.replace(body, parts=parts)
        case ToolStarted() | PermissionAsked() | Permitted() | ToolRefused():
            call_id = pending.resolve(body.call_id, type(body).__name__)
            return body if call_id == body.call_id else structs.replace(body, call_id=call_id)
        case HookRan() | ProcessStarted() | ChildOpened() if body.call_id:
            call_id = pending.resolve_any(body.call_id)
            return body if call_id == body.call_id else structs.replace(body, call_id=call_id)
        case _:
            return body


def with_tool_classes(body: Body, classes: Mapping[str, str]) -> Body:
    """Return the body to record: calls of tools in `classes` get the class of their tool."""
    if not classes or not isinstance(body, ModelReplied | Interrupted):
        return body
    if not any(isinstance(part, ToolCall) and part.tool in classes for part in body.parts):
        return body
    parts = [structs.replace(part, kind=classes.get(part.tool, "")) if isinstance(part, ToolCall) else part for part in body.parts]
    return structs.replace(body, parts=tuple(parts))


def _with_unique_call_ids(seq: int, parts: tuple[Content, ...], used: UsedCallIds) -> tuple[Content, ...]:
    ids_of_reply: set[str] = set()
    unique: list[Content] = []
    for number, part in enumerate(parts):
        if not isinstance(part, ToolCall):
            unique.append(part)
            continue
        call = part
        # A search without an id is run by the provider itself and never gets a result.
        is_missing = not part.call_id and part.form != "search"
        if is_missing or (part.call_id and (part.call_id in ids_of_reply or part.call_id in used)):
            call_id = _new_call_id(seq, number, ids_of_reply, used)
            call = structs.replace(part, call_id=call_id, given=part.given or part.call_id)
        ids_of_reply.add(call.call_id)
        unique.append(call)
    return tuple(unique)


def _new_call_id(seq: int, number: int, ids_of_reply: set[str], used: UsedCallIds) -> str:
    """Return an unused id from the position of the call; an `x` is appended while a provider has used it already."""
    call_id = f"{_OURS}{seq}_{number}"
    while call_id in ids_of_reply or call_id in used:
        call_id += "x"
    return call_id
