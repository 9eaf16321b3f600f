"""Ledger: token usage of a log, on all branches, kept apart by all that decides what a call costs."""

from bisect import bisect_left
from operator import add
from typing import ClassVar, Final

from msgspec.structs import astuple

from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied, ModelSwitched, SessionOpened, Usage
from palimpsest.core.projections.projection import Scope, StateProjection
from palimpsest.core.tokens.estimate import learn
from palimpsest.core.tokens.spending import PRICE_STEPS, Ledger, OpenCall, Spending, SpendingKey, spending_key

# The most open calls that are remembered; older calls without an outcome are dropped.
MAX_OPEN_CALLS: Final = 64
_DAY_MS: Final = 86_400_000


class LedgerProjection(StateProjection):
    """Projection of the ledger, over all events of the file, because every branch costs money."""

    name: ClassVar = "ledger"
    version: ClassVar = 2
    watches: ClassVar = frozenset({ModelReplied, CallStarted, Interrupted, Failed, SessionOpened, ModelSwitched})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = Ledger

    __slots__ = ("_calibration", "_model", "_open", "_sums", "_value")

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.start_from(Ledger() if ledger is None else ledger)

    def start_from(self, ledger: Ledger) -> None:
        """Replace the state by a ledger."""
        # Calls, unmeasured calls, the six parts of the usage.
        self._sums: dict[SpendingKey, list[int]] = {
            spending_key(spending): [spending.calls, spending.unmeasured, *astuple(spending.usage)] for spending in ledger.spendings
        }
        self._calibration = ledger.calibration
        self._open: dict[int, OpenCall] = {call.seq: call for call in ledger.open}
        self._model = ledger.model
        self._value: Ledger | None = ledger

    def take(self, event: Event) -> None:
        """Count one event; events that are no calls are ignored."""
        body = event.body
        if isinstance(body, ModelReplied):
            self._count_reply(body, event.at)
        elif isinstance(body, CallStarted):
            # Calls of version 0.2 do not say how much of their prompt is tools, so that they teach nothing about the view.
            estimate = body.estimate if body.tools_estimate or not body.tools else 0
            ours = bool(body.digest)
            self._open[event.seq] = OpenCall(event.seq, body.model, body.purpose, estimate, body.tools_estimate, ours)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        elif isinstance(body, Interrupted):
            self._count_interrupted(body, event.at)
        elif isinstance(body, Failed) and body.what == "call":
            self._close(body.call)
        elif isinstance(body, SessionOpened | ModelSwitched):
            self._model = body.model
        else:
            return
        self._value = None

    def value(self) -> Ledger:
        """Return the ledger after the last event."""
        if self._value is None:
            spendings = tuple(
                Spending(model, purpose, sums[0], Usage(*sums[2:]), asked, day, above, sums[1])
                for (model, purpose, asked, day, above), sums in self._sums.items()
            )
            self._value = Ledger(spendings, self._calibration, tuple(self._open.values()), self._model)
        return self._value

    def _count_reply(self, reply: ModelReplied, at: int) -> None:
        call = self._close(reply.call, reply.purpose)
        if call is None:
            self._add(reply.model, "", reply.purpose, reply.usage, at=at)
            return
        unmeasured = int(call.is_ours and not reply.usage.total)
        self._add(reply.model, call.model, call.purpose, reply.usage, at=at, unmeasured=unmeasured)
        if call.estimate:
            self._calibration = learn(self._calibration, call.model, call.estimate, reply.usage.prompt, call.tools)

    def _count_interrupted(self, interrupted: Interrupted, at: int) -> None:
        """Count the known usage of an interrupted call, without using it for the calibration."""
        call = self._close(interrupted.call, interrupted.purpose)
        if interrupted.usage != Usage():
            asked = "" if call is None else call.model
            self._add(interrupted.model, asked, interrupted.purpose, interrupted.usage, at=at)

    def _close(self, seq: int | None, purpose: str = "") -> OpenCall | None:
        """Remove and return an open call: call `seq`, or the newest of that purpose if `seq` is `None`; `None` if there is none."""
        if seq is not None:
            return self._open.pop(seq, None)
        newest = next((call.seq for call in reversed(self._open.values()) if not purpose or call.purpose == purpose), None)
        return None if newest is None else self._open.pop(newest)

    def _add(self, model: str, asked: str, purpose: str, usage: Usage, *, at: int, unmeasured: int = 0) -> None:
        step = bisect_left(PRICE_STEPS, usage.prompt)
        key = (model or asked or self._model, purpose, asked, max(0, at) // _DAY_MS, PRICE_STEPS[step - 1] if step else 0)
        sums = self._sums.setdefault(key, [0] * 8)
        sums[:] = map(add, sums, (1, unmeasured, *astuple(usage)))
