"""Tool-call ids that are unique in a session, whatever providers and files say."""

import zlib
from base64 import b64decode, b64encode
from typing import ClassVar, Final
from zlib import crc32

import msgspec
from msgspec import structs

from palimpsest.core.events import Body, Event
from palimpsest.core.events.calls import TURN, Interrupted, ModelReplied
from palimpsest.core.events.records import ChildOpened
from palimpsest.core.events.tools import HookRan, PermissionAsked, Permitted, ProcessStarted, ToolRefused, ToolReturned, ToolStarted
from palimpsest.core.items import Content, ToolCall
from palimpsest.core.projections.projection import Scope

# A Bloom filter of 8 KiB with four hashes: one in 80,000 fresh ids is taken for used after 1,000 calls, one in 25 after 10,000. Such a
# call gets an id of ours for no need, and loses nothing. A set of all ids would make checkpoints grow with the session.
_BITS: Final = 65_536
_OURS: Final = "pal_"
# Calls that were never answered are forgotten beyond so many, so that a result costs the same in a session of any length.
_PENDING: Final = 4_096
# Bodies that are recorded of a pending call, at most once each.
_ONCE: Final = (ToolStarted, PermissionAsked, Permitted, ToolRefused)

_encode = msgspec.json.Encoder().encode
_texts = msgspec.json.Decoder(str)
_snapshots = msgspec.json.Decoder(tuple[dict[str, tuple[str, int, frozenset[str]]], dict[str, tuple[str, int]]])


class UsedCallIds:
    """The ids that tool calls had so far, on any branch of the file."""

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
        """Remember an id."""
        for place in _places(call_id):
            self._bits[place >> 3] |= 1 << (place & 7)

    @property
    def bits(self) -> bytes:
        """The filter, as it is."""
        return bytes(self._bits)

    def start_from(self, bits: bytes) -> None:
        """Go on from the filter of another log; much quicker than through a snapshot."""
        self._bits = bytearray(bits)

    def take(self, event: Event) -> None:
        """Remember the ids of a reply, whole or not."""
        body = event.body
        if isinstance(body, ModelReplied | Interrupted):
            for part in body.parts:
                if isinstance(part, ToolCall) and part.call_id:
                    self.add(part.call_id)

    def snapshot(self) -> bytes:
        """The filter, compressed, as a JSON string."""
        return _encode(b64encode(zlib.compress(self._bits, level=1)).decode())

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot. Raises `msgspec.DecodeError` if it is not one."""
        try:
            bits = bytearray(zlib.decompress(b64decode(_texts.decode(data)), bufsize=_BITS // 8))
        except (ValueError, zlib.error) as error:
            raise msgspec.DecodeError(str(error)) from error
        if len(bits) != _BITS // 8:
            raise msgspec.DecodeError("a filter of another size")
        self._bits = bits

    def reset(self) -> None:
        """Forget all ids."""
        self._bits = bytearray(_BITS // 8)


def _places(call_id: str) -> tuple[int, int, int, int]:
    """Four places of the filter, 16 bits each, from two checksums."""
    data = call_id.encode("utf-8", "surrogatepass")
    # Checksums with two seeds would differ by the same bits for all ids of one length; backwards they are independent.
    one, two = crc32(data), crc32(data[::-1])
    return one & 0xFFFF, one >> 16, two & 0xFFFF, two >> 16


class PendingCalls:
    """The tool calls of the path that have no result yet, oldest first.

    Each with the id that the provider gave it, the event of its reply, and the bodies that were recorded of it since. Of
    calls that were answered only those are remembered whose recorded id is not the one given.
    """

    name: ClassVar = "pending_calls"
    watches: ClassVar = frozenset({ModelReplied, ToolReturned, *_ONCE})
    version: ClassVar = 3
    scope: ClassVar[Scope] = "path"

    def __init__(self) -> None:
        self._pending: dict[str, tuple[str, int, frozenset[str]]] = {}
        self._answered: dict[str, tuple[str, int]] = {}

    def resolve(self, call_id: str, body: str = "") -> str:
        """The recorded id of the pending call that a provider or file means by an id; the id itself if there is none.

        Of several it is the first of the newest reply: an older one was left unanswered. With the name of a `body` it is the first of
        which no such body was recorded. A result without an id answers a call without one.
        """
        found, newest, is_recorded = call_id, -1, False
        for recorded, (given, reply, bodies) in self._pending.items():
            if reply < newest or (reply == newest and not (is_recorded and body not in bodies)):
                continue
            if call_id == recorded or (call_id == given and (given or recorded.startswith(_OURS))):
                found, newest, is_recorded = recorded, reply, body in bodies
        return found

    def resolve_any(self, call_id: str) -> str:
        """The recorded id of the newest call that an id means, answered or not; the id itself if there is none."""
        found = self.resolve(call_id)
        recorded, reply = self._answered.get(call_id, (found, -1))
        return recorded if found not in self._pending or reply > self._pending[found][1] else found

    def take(self, event: Event) -> None:
        """Add the calls of a reply, note what is said of them, and take off the one that a result answers."""
        body = event.body
        if isinstance(body, ToolReturned):
            call = self._pending.pop(body.result.call_id, None)
            if call is not None and call[0]:
                self._answered.pop(call[0], None)
                self._answered[call[0]] = body.result.call_id, call[1]
                if len(self._answered) > _PENDING:
                    del self._answered[next(iter(self._answered))]
        elif isinstance(body, _ONCE):
            if body.call_id in self._pending:
                given, reply, bodies = self._pending[body.call_id]
                self._pending[body.call_id] = given, reply, bodies | {type(body).__name__}
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            for part in body.parts:
                if isinstance(part, ToolCall) and part.call_id:
                    self._pending[part.call_id] = part.given, event.seq, frozenset()
            while len(self._pending) > _PENDING and next(iter(self._pending.values()))[1] != event.seq:
                del self._pending[next(iter(self._pending))]

    def snapshot(self) -> bytes:
        """The pending calls, and the answered ones that are remembered, as JSON."""
        return _encode((self._pending, self._answered))

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self._pending, self._answered = _snapshots.decode(data)

    def reset(self) -> None:
        """Forget all calls."""
        self._pending, self._answered = {}, {}


def with_unique_ids(seq: int, body: Body, used: UsedCallIds, pending: PendingCalls) -> Body:
    """A body as it is recorded as event `seq`: each call with an id of its own, all else with the id of the call that it names."""
    match body:
        case ToolReturned():
            call_id = pending.resolve(body.result.call_id)
            return body if call_id == body.result.call_id else structs.replace(body, result=structs.replace(body.result, call_id=call_id))
        case ModelReplied() | Interrupted():
            if not any(isinstance(part, ToolCall) for part in body.parts):
                return body
            parts = _named(seq, body.parts, used)
            return body if parts == body.parts else structs.replace(body, parts=parts)
        case ToolStarted() | PermissionAsked() | Permitted() | ToolRefused():
            call_id = pending.resolve(body.call_id, type(body).__name__)
            return body if call_id == body.call_id else structs.replace(body, call_id=call_id)
        case HookRan() | ProcessStarted() | ChildOpened() if body.call_id:
            call_id = pending.resolve_any(body.call_id)
            return body if call_id == body.call_id else structs.replace(body, call_id=call_id)
        case _:
            return body


def _named(seq: int, parts: tuple[Content, ...], used: UsedCallIds) -> tuple[Content, ...]:
    here: set[str] = set()
    named: list[Content] = []
    for number, part in enumerate(parts):
        if not isinstance(part, ToolCall):
            named.append(part)
            continue
        call_id = part.call_id
        # The provider runs a search without an id by itself: no result will ever name it.
        if (not call_id and part.form != "search") or (call_id and (call_id in here or call_id in used)):
            call_id = _own(seq, number, here, used)
            part = structs.replace(part, call_id=call_id, given=part.given or part.call_id)  # noqa: PLW2901 - the call as it is recorded
        here.add(call_id)
        named.append(part)
    return tuple(named)


def _own(seq: int, number: int, here: set[str], used: UsedCallIds) -> str:
    """An id of ours that no call has: by the place of the call, and a letter more where a provider happened to use that."""
    own = f"{_OURS}{seq}_{number}"
    while own in here or own in used:
        own += "x"
    return own
