"""Ledger: token usage by model and purpose, on all branches of a log."""

from collections.abc import Iterable
from operator import add
from typing import ClassVar, Final

from msgspec.structs import astuple

from palimpsest.core.events import Event
from palimpsest.core.events.calls import CallStarted, Failed, Interrupted, ModelReplied, Usage
from palimpsest.core.items import Value
from palimpsest.core.projections.projection import Scope, StateProjection
from palimpsest.core.tokens.estimate import MIN_CALIBRATION_TOKENS, Calibration, CalibrationSums, decayed_sums

# The most open calls that are remembered; older calls without an outcome are dropped.
MAX_OPEN_CALLS: Final = 64


class Spending(Value, frozen=True):
    """Usage of one model for one purpose. `estimated` are the unscaled estimates of the prompts and `measured` their reported tokens."""

    model: str
    purpose: str
    calls: int = 0
    usage: Usage = Usage()
    estimated: int = 0
    measured: int = 0


class OpenCall(Value, frozen=True):
    """A call without an outcome; `estimate` is the unscaled estimate of its prompt, in tokens."""

    seq: int
    model: str
    purpose: str
    estimate: int = 0


class Ledger(Value, frozen=True):
    """All usage of a log, the calibration of token estimates that follows from it, and the open calls."""

    spendings: tuple[Spending, ...] = ()
    calibration: Calibration = Calibration()
    open: tuple[OpenCall, ...] = ()

    @property
    def calls(self) -> int:
        """Number of replies, and of interrupted calls with usage; side calls are included."""
        return sum(spending.calls for spending in self.spendings)

    @property
    def usage(self) -> Usage:
        """Usage of all calls together."""
        return total_of(spending.usage for spending in self.spendings)


def total_of(usages: Iterable[Usage]) -> Usage:
    """Return the sum of usages."""
    rows = [astuple(usage) for usage in usages]
    return Usage(*(sum(column) for column in zip(*rows, strict=True))) if rows else Usage()


class LedgerProjection(StateProjection):
    """Projection of the ledger, over all events of the file, because every branch costs money."""

    name: ClassVar = "ledger"
    version: ClassVar = 1
    watches: ClassVar = frozenset({ModelReplied, CallStarted, Interrupted, Failed})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = Ledger

    __slots__ = ("_calibration", "_open", "_sums", "_value")

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.start_from(Ledger() if ledger is None else ledger)

    def start_from(self, ledger: Ledger) -> None:
        """Replace the state by a ledger."""
        # Calls, the six parts of the usage, estimated, measured.
        self._sums: dict[tuple[str, str], list[int]] = {
            (spending.model, spending.purpose): [spending.calls, *astuple(spending.usage), spending.estimated, spending.measured]
            for spending in ledger.spendings
        }
        self._calibration: dict[str, CalibrationSums] = dict(ledger.calibration.models)
        self._open: dict[int, OpenCall] = {call.seq: call for call in ledger.open}
        self._value: Ledger | None = ledger

    def take(self, event: Event) -> None:
        """Count one event; events that are no calls are ignored."""
        body = event.body
        if isinstance(body, ModelReplied):
            self._count_reply(body)
        elif isinstance(body, CallStarted):
            self._open[event.seq] = OpenCall(event.seq, body.model, body.purpose, body.estimate)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        elif isinstance(body, Interrupted):
            self._count_interrupted(body)
        elif isinstance(body, Failed) and body.what == "call":
            self._close(body.call)
        else:
            return
        self._value = None

    def value(self) -> Ledger:
        """Return the ledger after the last event."""
        if self._value is None:
            spendings = tuple(
                Spending(model, purpose, sums[0], Usage(*sums[1:7]), sums[7], sums[8]) for (model, purpose), sums in self._sums.items()
            )
            self._value = Ledger(spendings, Calibration(dict(self._calibration)), tuple(self._open.values()))
        return self._value

    def _count_reply(self, reply: ModelReplied) -> None:
        call = self._close(reply.call, reply.purpose)
        if call is None:
            self._add(reply.model, reply.purpose, reply.usage)
            return
        sums = self._add(reply.model or call.model, call.purpose, reply.usage)
        measured = reply.usage.prompt
        if call.estimate and measured:
            sums[7] += call.estimate
            sums[8] += measured
            if call.estimate >= MIN_CALIBRATION_TOKENS:
                self._calibration[call.model] = decayed_sums(self._calibration.get(call.model), call.estimate, measured)

    def _count_interrupted(self, interrupted: Interrupted) -> None:
        """Count the known usage of an interrupted call, without using it for the calibration."""
        call = self._close(interrupted.call, interrupted.purpose)
        if interrupted.usage != Usage():
            model = interrupted.model or (call.model if call is not None else "")
            self._add(model, interrupted.purpose, interrupted.usage)

    def _close(self, seq: int | None, purpose: str = "") -> OpenCall | None:
        """Remove and return an open call: call `seq`, or the newest of that purpose if `seq` is `None`; `None` if there is none."""
        if seq is not None:
            return self._open.pop(seq, None)
        newest = next((call.seq for call in reversed(self._open.values()) if not purpose or call.purpose == purpose), None)
        return None if newest is None else self._open.pop(newest)

    def _add(self, model: str, purpose: str, usage: Usage) -> list[int]:
        sums = self._sums.setdefault((model, purpose), [0] * 9)
        sums[:7] = map(add, sums, (1, *astuple(usage)))
        return sums
