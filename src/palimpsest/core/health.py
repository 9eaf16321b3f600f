"""How a session fares along its path: failures, folds, turns, calls, and what nobody has answered yet."""

from typing import ClassVar, Self

from palimpsest.core.edits import Fold
from palimpsest.core.events import Event, Failed, ModelReplied, Refused, ToolReturned, ToolStarted, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import ToolCall, Value

CIRCUIT = 3


class Health(Value, frozen=True):
    """What policies and a resuming engine must know.

    `failures` counts in a row per policy; `called` is the round in which each tool was last called; times are in milliseconds.
    `started` are tools that began and did not return. `folds` are those of this turn, without those that the user asked for; `folded` is
    how many calls there were at the last.
    """

    failures: dict[str, int] = {}
    folds: int = 0
    folded: int = 0
    turns: int = 0
    calls: int = 0
    replied_at: int | None = None
    overflow: bool = False
    open_calls: tuple[str, ...] = ()
    called: dict[str, int] = {}
    started: tuple[str, ...] = ()

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


class HealthProjection:
    """A health that is being counted, event by event."""

    WATCHES: ClassVar[frozenset[type]] = frozenset(
        {UserSaid, ModelReplied, ToolStarted, ToolReturned, ViewEdited, Failed, Refused, TurnEnded}
    )

    __slots__ = ("_called", "_calls", "_failures", "_folded", "_folds", "_open", "_overflow", "_replied_at", "_started", "_turns", "_value")

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._folds = 0
        self._folded = 0
        self._turns = 0
        self._calls = 0
        self._replied_at: int | None = None
        self._overflow = False
        # A dictionary, because calls are answered in any order and shown in the order they were made.
        self._open: dict[str, None] = {}
        self._called: dict[str, int] = {}
        self._started: dict[str, None] = {}
        self._value: Health | None = None

    @classmethod
    def of(cls, health: Health) -> Self:
        """A tally that goes on from a health."""
        tally = cls()
        tally._failures = dict(health.failures)
        tally._folds = health.folds
        tally._folded = health.folded
        tally._turns = health.turns
        tally._calls = health.calls
        tally._replied_at = health.replied_at
        tally._overflow = health.overflow
        tally._open = dict.fromkeys(health.open_calls)
        tally._called = dict(health.called)
        tally._started = dict.fromkeys(health.started)
        return tally

    def take(self, event: Event) -> None:
        """Count one event; those that say nothing about health are passed over."""
        body = event.body
        if isinstance(body, ToolReturned):
            self._open.pop(body.result.call_id, None)
            self._started.pop(body.result.call_id, None)
        elif isinstance(body, ModelReplied):
            self._reply(event.at, body)
        elif isinstance(body, ToolStarted):
            self._started[body.call_id] = None
        elif isinstance(body, UserSaid):
            self._say(body)
        elif isinstance(body, ViewEdited):
            self._edit(body)
        elif isinstance(body, Failed):
            self._fail(body)
        elif isinstance(body, Refused):
            if body.of:
                self._failures[body.of] = self._failures.get(body.of, 0) + 1
        elif isinstance(body, TurnEnded):
            self._folds = 0
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
                open_calls=tuple(self._open),
                called=dict(self._called),
                started=tuple(self._started),
            )
        return self._value

    def _reply(self, at: int, reply: ModelReplied) -> None:
        self._calls += 1
        self._replied_at = at
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._open[part.call_id] = None
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
        if failed.error == "too_long":
            self._overflow = True
