"""Health of a session along its current path: counts of failures, folds, turns and calls, and the pending tool calls."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import force_setattr

from palimpsest.core.edits import Fold
from palimpsest.core.events import Event
from palimpsest.core.events.calls import TURN, Failed, ModelReplied, TurnEnded, TurnStarted, UserSaid
from palimpsest.core.events.context import EditRefused, ViewEdited
from palimpsest.core.events.tools import ToolReturned, ToolStarted
from palimpsest.core.items import EMPTY_MAPPING, ToolCall, Value, frozen
from palimpsest.core.projections.projection import Scope, StateProjection

# Consecutive failures after which a policy is no longer tried.
CIRCUIT = 3


class Health(Value, frozen=True):
    """Counters of a session for policies and for recovery.

    `failures` are consecutive, by policy. `folds` counts the folds of this turn without those that the user requested; `folded` is the
    value of `calls` at the last of them. `calls` counts model replies, and `called` is its value when each tool was last called.
    `replied_at` is in milliseconds. `overflow` is true after a request that was too long, until the next fold. `pending_calls` have no
    result; `started` are those of them whose tool was started. `turn` is the event that started the open turn.
    """

    failures: Mapping[str, int] = EMPTY_MAPPING
    folds: int = 0
    folded: int = 0
    turns: int = 0
    calls: int = 0
    replied_at: int | None = None
    overflow: bool = False
    pending_calls: tuple[str, ...] = ()
    called: Mapping[str, int] = EMPTY_MAPPING
    started: tuple[str, ...] = ()
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
    watches: ClassVar = frozenset(
        {ToolReturned, ModelReplied, ToolStarted, UserSaid, ViewEdited, Failed, EditRefused, TurnStarted, TurnEnded}
    )
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = Health

    __slots__ = (
        *("_called", "_calls", "_failures", "_folded", "_folds", "_overflow", "_pending"),
        *("_replied_at", "_started", "_turn", "_turns", "_value"),
    )

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
        # A dictionary, because results come in any order and the calls are listed in the order in which they were made.
        self._pending = dict.fromkeys(health.pending_calls)
        self._called = dict(health.called)
        self._started = dict.fromkeys(health.started)
        self._turn = health.turn
        self._value: Health | None = health

    def take(self, event: Event) -> None:
        """Count one event; events that do not affect health are ignored."""
        body = event.body
        if isinstance(body, ToolReturned):
            self._pending.pop(body.result.call_id, None)
            self._started.pop(body.result.call_id, None)
        elif isinstance(body, ModelReplied):
            if body.purpose != TURN:
                return
            self._count_reply(event.at, body)
        elif isinstance(body, ToolStarted):
            self._started[body.call_id] = None
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
                pending_calls=tuple(self._pending),
                called=dict(self._called),
                started=tuple(self._started),
                turn=self._turn,
            )
        return self._value

    def _count_reply(self, at: int, reply: ModelReplied) -> None:
        self._calls += 1
        self._replied_at = at
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._pending[part.call_id] = None
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
