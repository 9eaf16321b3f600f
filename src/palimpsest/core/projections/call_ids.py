"""Tool-call ids that are unique in a session, whatever providers and files say."""

import zlib
from base64 import b64decode, b64encode
from typing import ClassVar, Final
from zlib import crc32

import msgspec
from msgspec import structs

from palimpsest.core.bodies.calls import TURN, ModelReplied
from palimpsest.core.bodies.tools import ToolReturned
from palimpsest.core.events import Body, Event
from palimpsest.core.items import Content, ToolCall
from palimpsest.core.projections.projection import Scope

# A Bloom filter of 8 KiB with four hashes: one in 80,000 fresh ids is taken for used after 1,000 calls, one in 25 after 10,000. Such a
# call gets an id of ours for no need, and loses nothing. A set of all ids would make checkpoints grow with the session.
_BITS: Final = 65_536
_OURS: Final = "pal_"
# Calls that were never answered are forgotten beyond so many, so that a result costs the same in a session of any length.
_PENDING: Final = 256

_encode = msgspec.json.Encoder().encode
_texts = msgspec.json.Decoder(str)
_pending = msgspec.json.Decoder(dict[str, tuple[str, int]])


class UsedCallIds:
    """The ids that tool calls had so far, on any branch of the file."""

    name: ClassVar = "used_call_ids"
    watches: ClassVar = frozenset({ModelReplied})
    version: ClassVar = 1
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
        """Remember the ids of a reply."""
        body = event.body
        if isinstance(body, ModelReplied):
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
    """The tool calls of the path that have no result yet, oldest first, with the id that the provider gave each and its reply."""

    name: ClassVar = "pending_calls"
    watches: ClassVar = frozenset({ModelReplied, ToolReturned})
    version: ClassVar = 2
    scope: ClassVar[Scope] = "path"

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, int]] = {}

    def resolve(self, call_id: str) -> str:
        """The recorded id of the pending call that a provider or file means by an id; the id itself if there is none.

        Of several it is the first of the newest reply: an older one was left unanswered. A result without an id answers a call without one.
        """
        found, newest = call_id, -1
        for recorded, (given, reply) in self._given.items():
            if reply > newest and (call_id == recorded or (call_id == given and (given or recorded.startswith(_OURS)))):
                found, newest = recorded, reply
        return found

    def take(self, event: Event) -> None:
        """Add the calls of a reply, and take off the one that a result answers."""
        body = event.body
        if isinstance(body, ToolReturned):
            self._given.pop(body.result.call_id, None)
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            for part in body.parts:
                if isinstance(part, ToolCall) and part.call_id:
                    self._given[part.call_id] = part.given, event.seq
            while len(self._given) > _PENDING:
                del self._given[next(iter(self._given))]

    def snapshot(self) -> bytes:
        """The pending calls as JSON."""
        return _encode(self._given)

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self._given = _pending.decode(data)

    def reset(self) -> None:
        """Forget all calls."""
        self._given = {}


def with_unique_ids(seq: int, body: Body, used: UsedCallIds, pending: PendingCalls) -> Body:
    """A body as it is recorded as event `seq`: each call with an id of its own, each result with the id of the call that it answers."""
    if isinstance(body, ToolReturned):
        call_id = pending.resolve(body.result.call_id)
        if call_id == body.result.call_id:
            return body
        return structs.replace(body, result=structs.replace(body.result, call_id=call_id))
    if isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) for part in body.parts):
        parts = _named(seq, body.parts, used)
        return body if parts == body.parts else structs.replace(body, parts=parts)
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
