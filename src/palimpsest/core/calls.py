"""Calls of a session as projections: unique tool call ids, pending tool calls, open model calls, session health, and queued input."""

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec import structs
from msgspec.structs import force_setattr

from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    ChildOpened,
    ContextStated,
    EditRefused,
    EditUndone,
    Event,
    Failed,
    HookRan,
    InputWithdrawn,
    Interrupted,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    PermissionAsked,
    Permitted,
    Pinned,
    ProcessStarted,
    ProfileChanged,
    Recalled,
    Rewound,
    SessionOpened,
    ToolRefused,
    ToolReturned,
    ToolsChanged,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import EMPTY_MAPPING, Content, Fold, ToolCall, Value, frozen
from palimpsest.core.view import Scope, StateProjection

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

    def pending(self) -> tuple[str, ...]:
        """Return the recorded ids of the calls without a result, in the order in which they were made."""
        return tuple(self._pending)

    def started(self) -> tuple[str, ...]:
        """Return those of them whose tool was started."""
        return tuple(call_id for call_id, (_, _, bodies) in self._pending.items() if ToolStarted.__name__ in bodies)

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


# Consecutive failures after which a policy is no longer tried.
CIRCUIT = 3


class Health(Value, frozen=True):
    """Counters of a session for policies and for recovery.

    `failures` are consecutive, by policy. `folds` counts the folds of this turn without those that the user requested; `folded` is the
    value of `calls` at the last of them. `calls` counts model replies, and `called` is its value when each tool was last called.
    `replied_at` is in milliseconds. `overflow` is true after a request that was too long, until the next fold. `turn` is the event that
    started the open turn.
    """

    failures: Mapping[str, int] = EMPTY_MAPPING
    folds: int = 0
    folded: int = 0
    turns: int = 0
    calls: int = 0
    replied_at: int | None = None
    overflow: bool = False
    called: Mapping[str, int] = EMPTY_MAPPING
    turn: int | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "failures", frozen(self.failures))
        force_setattr(self, "called", frozen(self.called))

    def is_circuit_open(self, policy: str, limit: int = CIRCUIT) -> bool:
        """Whether a policy failed at least `limit` times in a row, so that only the user may run it again."""
        return self.failures.get(policy, 0) >= limit

    def may_fold(self, limit: int, *, forced: bool = False) -> bool:
        """Whether this turn may fold once more; `limit` is the number of folds for each turn, 0 for any number.

        If no request can be sent without a fold (`forced`), one more is allowed after each reply, because a turn may take hours.
        """
        return not limit or self.folds < limit or (forced and self.calls > self.folded)


class HealthProjection(StateProjection):
    """Projection of the health of a session."""

    name: ClassVar = "health"
    version: ClassVar = 1
    watches: ClassVar = frozenset({ModelReplied, UserSaid, ViewEdited, Failed, EditRefused, TurnStarted, TurnEnded})
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = Health

    __slots__ = ("_called", "_calls", "_failures", "_folded", "_folds", "_overflow", "_replied_at", "_turn", "_turns", "_value")

    def __init__(self, health: Health | None = None) -> None:
        self.start_from(Health() if health is None else health)

    def start_from(self, health: Health) -> None:
        """Replace the state by a health."""
        self._failures = dict(health.failures)
        self._folds = health.folds
        self._folded = health.folded
        self._turns = health.turns
        self._calls = health.calls
        self._replied_at = health.replied_at
        self._overflow = health.overflow
        self._called = dict(health.called)
        self._turn = health.turn
        self._value: Health | None = health

    def take(self, event: Event) -> None:
        """Count one event; events that do not affect health are ignored."""
        body = event.body
        if isinstance(body, ModelReplied):
            if body.purpose != TURN:
                return
            self._count_reply(event.at, body)
        elif isinstance(body, UserSaid):
            self._count_message(body)
        elif isinstance(body, ViewEdited):
            self._count_edit(body)
        elif isinstance(body, Failed):
            self._count_failure(body)
        elif isinstance(body, EditRefused):
            self._failures[body.policy] = self._failures.get(body.policy, 0) + 1
        elif isinstance(body, TurnStarted):
            self._turn = event.seq
        elif isinstance(body, TurnEnded):
            self._folds = 0
            self._turn = None
        else:
            return
        self._value = None

    def value(self) -> Health:
        """Return the health after the last event."""
        if self._value is None:
            self._value = Health(
                failures=dict(self._failures),
                folds=self._folds,
                folded=self._folded,
                turns=self._turns,
                calls=self._calls,
                replied_at=self._replied_at,
                overflow=self._overflow,
                called=dict(self._called),
                turn=self._turn,
            )
        return self._value

    def _count_reply(self, at: int, reply: ModelReplied) -> None:
        self._calls += 1
        self._replied_at = at
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._called[part.tool] = self._calls

    def _count_message(self, message: UserSaid) -> None:
        if not message.steering:
            self._turns += 1
            self._folds = 0

    def _count_edit(self, edited: ViewEdited) -> None:
        self._failures.pop(edited.by, None)
        if any(isinstance(edit, Fold) for edit in edited.edits):
            self._overflow = False
            # A fold that the user requested does not count against the limit of the turn.
            if edited.moment != "asked":
                self._folds += 1
                self._folded = self._calls

    def _count_failure(self, failed: Failed) -> None:
        if failed.by:
            self._failures[failed.by] = self._failures.get(failed.by, 0) + 1
        # A side call that is too long says nothing about the size of the view.
        if failed.error == "too_long" and failed.purpose in ("", TURN):
            self._overflow = True


_ENTERS_VIEW = frozenset({UserSaid, ToolReturned, ToolsChanged, ContextStated, Recalled, ViewEdited, EditUndone, Rewound})
_CHANGES_VIEW = _ENTERS_VIEW | {ModelSwitched, ProfileChanged, ModeChanged, Pinned}
# The most open calls that are remembered; crashes leave side calls without an outcome.
_MOST_OPEN = 64


class OpenCalls(StateProjection):
    """The calls without an outcome, as the events that started them, with their purposes; `turn` is the open turn call."""

    name: ClassVar = "open_calls"
    watches: ClassVar = _ENTERS_VIEW | {CallStarted, ModelReplied, Interrupted, Failed, SessionOpened}
    version: ClassVar = 1
    # A call ends on whatever branch the session is by then.
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = dict[int, str]

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self.turn: int | None = None

    def forbids(self, body: Body) -> bool:
        """Whether a body would change the view during a turn call without being its outcome."""
        if self.turn is None or self._ends_turn(body):
            return False
        return type(body) in _CHANGES_VIEW or (isinstance(body, CallStarted | ModelReplied | Interrupted) and body.purpose == TURN)

    def ended(self, body: Body) -> int | None:
        """Return the call that a body claims to be the outcome of if that call is not open, else `None`."""
        if isinstance(body, ModelReplied | Interrupted | Failed) and body.call is not None and body.call not in self._open:
            return body.call
        return None

    def take(self, event: Event) -> None:
        """Apply one event. Imported files and forks may continue without an outcome; that ends a turn call too."""
        body = event.body
        if isinstance(body, CallStarted):
            self._open[event.seq] = body.purpose
            if body.purpose == TURN:
                self._end(self.turn)
                self.turn = event.seq
            elif len(self._open) > _MOST_OPEN:
                del self._open[next(seq for seq in self._open if seq != self.turn)]
        elif isinstance(body, ModelReplied | Interrupted | Failed) and body.call is not None and body.call != self.turn:
            self._open.pop(body.call, None)
        elif self.turn is not None and (self._ends_turn(body) or type(body) in _ENTERS_VIEW or isinstance(body, SessionOpened)):
            self._end(self.turn)

    def _end(self, turn: int | None) -> None:
        if turn is not None:
            self._open.pop(turn, None)
            self.turn = None

    def _ends_turn(self, body: Body) -> bool:
        match body:
            case ModelReplied(call=call, purpose=purpose) | Interrupted(call=call, purpose=purpose):
                return purpose == TURN and call in (None, self.turn)
            case Failed(what="call", call=call, purpose=purpose):
                return purpose in ("", TURN) and call in (None, self.turn)
            case _:
                return False

    def value(self) -> dict[int, str]:
        """Return the open calls with their purposes."""
        return self._open

    def start_from(self, calls: dict[int, str]) -> None:
        """Replace the open calls."""
        self._open = calls
        self.turn = next((seq for seq, purpose in calls.items() if purpose == TURN), None)


class InboxProjection(StateProjection):
    """Sequence numbers of queued input, oldest first. A rewind keeps them."""

    name: ClassVar = "inbox"
    version: ClassVar = 1
    watches: ClassVar = frozenset({UserTyped, UserSaid, InputWithdrawn})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = tuple[int, ...]

    def __init__(self) -> None:
        self._queued: dict[int, None] = {}

    def take(self, event: Event) -> None:
        """Queue typed input, and remove input that entered the conversation or was withdrawn."""
        body = event.body
        if isinstance(body, UserTyped):
            self._queued[event.seq] = None
        elif isinstance(body, UserSaid | InputWithdrawn) and body.typed is not None:
            self._queued.pop(body.typed, None)

    def value(self) -> tuple[int, ...]:
        """Return the sequence numbers of queued input, oldest first."""
        return tuple(self._queued)

    def start_from(self, queued: tuple[int, ...]) -> None:
        """Replace the queue."""
        self._queued = dict.fromkeys(queued)
