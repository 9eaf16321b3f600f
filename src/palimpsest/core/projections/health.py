"""Health of a session along its current path: counts of failures, folds, turns and calls, and the tools that began and did not return."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr

from palimpsest.core.edits import Fold
from palimpsest.core.events import Event
from palimpsest.core.events.calls import TURN, Failed, ModelReplied, TurnEnded, TurnStarted, UserSaid
from palimpsest.core.events.context import EditRefused, ViewEdited
from palimpsest.core.events.tools import ToolReturned, ToolStarted
from palimpsest.core.items import EMPTY, ToolCall, Value, frozen
from palimpsest.core.projections.projection import Scope

CIRCUIT = 3


class Health(Value, frozen=True):
    """What policies and a resuming engine must know.

    `failures` counts in a row per policy; `called` is the round in which each tool was last called; times are in milliseconds.
    `started` are tools that began and did not return. `folds` are those of this turn, without those that the user asked for; `folded` is
    how many calls there were at the last. `turn` is the event that started a turn which has not ended.
    """

    failures: Mapping[str, int] = EMPTY
    folds: int = 0
    folded: int = 0
    turns: int = 0
    calls: int = 0
    replied_at: int | None = None
    overflow: bool = False
    pending_calls: tuple[str, ...] = ()
    called: Mapping[str, int] = EMPTY
    started: tuple[str, ...] = ()
    turn: int | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "failures", frozen(self.failures))
        force_setattr(self, "called", frozen(self.called))

    def is_open(self, policy: str, limit: int = CIRCUIT) -> bool:
        """Whether a policy failed so often in a row that it is not tried again by itself."""
        return self.failures.get(policy, 0) >= limit

    def may_fold(self, limit: int, *, forced: bool = False) -> bool:
        """Whether a turn that may have so many folds (0: any number) may have one more now.

        Where nothing could be sent without it (`forced`) it may, but never twice without a reply between: a turn may work for hours.
        """
        return not limit or self.folds < limit or (forced and self.calls > self.folded)

    def rounds_since(self, tool: str) -> int:
        """Model replies since one that called the tool; all of them when none did."""
        return self.calls - self.called.get(tool, 0)

    @property
    def rounds(self) -> dict[str, int]:
        """The same for every tool that was ever called."""
        return {tool: self.calls - at for tool, at in self.called.items()}


_healths = msgspec.json.Decoder(Health)
_encode = msgspec.json.Encoder().encode


class HealthProjection:
    """A health that is counted event by event."""

    name: ClassVar = "health"
    version: ClassVar = 1
    watches: ClassVar = frozenset(
        {ToolReturned, ModelReplied, ToolStarted, UserSaid, ViewEdited, Failed, EditRefused, TurnStarted, TurnEnded}
    )
    scope: ClassVar[Scope] = "path"

    __slots__ = (
        *("_called", "_calls", "_failures", "_folded", "_folds", "_overflow", "_pending"),
        *("_replied_at", "_started", "_turn", "_turns", "_value"),
    )

    def __init__(self, health: Health | None = None) -> None:
        self.start_from(Health() if health is None else health)

    def start_from(self, health: Health) -> None:
        """Go on from a health that was counted before."""
        self._failures = dict(health.failures)
        self._folds = health.folds
        self._folded = health.folded
        self._turns = health.turns
        self._calls = health.calls
        self._replied_at = health.replied_at
        self._overflow = health.overflow
        # A dictionary, because calls are answered in any order and shown in the order they were made.
        self._pending = dict.fromkeys(health.pending_calls)
        self._called = dict(health.called)
        self._started = dict.fromkeys(health.started)
        self._turn = health.turn
        self._value: Health | None = health

    def reset(self) -> None:
        """Go back to a session in which nothing happened."""
        self.start_from(Health())

    def snapshot(self) -> bytes:
        """The health as JSON."""
        return _encode(self.value())

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot."""
        self.start_from(_healths.decode(data))

    def take(self, event: Event) -> None:
        """Count one event; those that say nothing about health are passed over."""
        body = event.body
        if isinstance(body, ToolReturned):
            self._pending.pop(body.result.call_id, None)
            self._started.pop(body.result.call_id, None)
        elif isinstance(body, ModelReplied):
            if body.purpose != TURN:
                return
            self._reply(event.at, body)
        elif isinstance(body, ToolStarted):
            self._started[body.call_id] = None
        elif isinstance(body, UserSaid):
            self._say(body)
        elif isinstance(body, ViewEdited):
            self._edit(body)
        elif isinstance(body, Failed):
            self._fail(body)
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
        """The health up to the last event taken."""
        if self._value is None:
            self._value = Health(
                failures=dict(self._failures),
                folds=self._folds,
                folded=self._folded,
                turns=self._turns,
                calls=self._calls,
                replied_at=self._replied_at,
                overflow=self._overflow,
                pending_calls=tuple(self._pending),
                called=dict(self._called),
                started=tuple(self._started),
                turn=self._turn,
            )
        return self._value

    def _reply(self, at: int, reply: ModelReplied) -> None:
        self._calls += 1
        self._replied_at = at
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._pending[part.call_id] = None
                self._called[part.tool] = self._calls

    def _say(self, said: UserSaid) -> None:
        if not said.steering:
            self._turns += 1
            self._folds = 0

    def _edit(self, edited: ViewEdited) -> None:
        self._failures.pop(edited.by, None)
        if any(isinstance(edit, Fold) for edit in edited.edits):
            self._overflow = False
            # A fold that the user asked for does not use up the folds of a turn.
            if edited.moment != "asked":
                self._folds += 1
                self._folded = self._calls

    def _fail(self, failed: Failed) -> None:
        if failed.by:
            self._failures[failed.by] = self._failures.get(failed.by, 0) + 1
        # A summary that is too long says nothing about the conversation itself.
        if failed.error == "too_long" and failed.purpose in ("", TURN):
            self._overflow = True
