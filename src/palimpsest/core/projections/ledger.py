"""Ledger: token usage of a log, on all branches, kept apart by all that decides what a call costs."""

from bisect import bisect_left
from collections.abc import Mapping
from operator import add
from typing import ClassVar, Final

import msgspec
from msgspec.structs import astuple, replace

from palimpsest.core.events import CallStarted, Event, Failed, Interrupted, ModelReplied, ModelSwitched, SessionOpened, Usage
from palimpsest.core.events.calls import UNOBSERVED
from palimpsest.core.items import Text, Thinking, ToolCall, text_of
from palimpsest.core.projections.projection import Scope, StateProjection
from palimpsest.core.tokens.estimate import estimate, learn
from palimpsest.core.tokens.spending import PRICE_STEPS, Ledger, OpenCall, Spending, SpendingKey, spending_key

# The most open calls that are remembered; older calls without an outcome are dropped.
MAX_OPEN_CALLS: Final = 64
_DAY_MS: Final = 86_400_000
# By how much a prompt may exceed its estimate, and the fewest bytes of a request that are one token.
_MARGIN: Final = 1.3
_BYTES_PER_TOKEN: Final = 3
# Parameters of a request that change its price, also as `extra` fields, and their values that do not. `auto` is what no value means: the
# reply says what it was.
_PRICED_APART: Final = ("service_tier", "speed", "inference_geo")
_LISTED: Final = ("", "auto", "default", "standard", "standard_only", "on_demand", "global", "not_available")


class LedgerProjection(StateProjection):
    """Projection of the ledger, over all events of the file, because every branch costs money."""

    name: ClassVar = "ledger"
    version: ClassVar = 3
    watches: ClassVar = frozenset({ModelReplied, CallStarted, Interrupted, Failed, SessionOpened, ModelSwitched})
    scope: ClassVar[Scope] = "file"
    state_type: ClassVar = Ledger

    __slots__ = ("_calibration", "_model", "_open", "_sums", "_value")

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.start_from(Ledger() if ledger is None else ledger)

    def start_from(self, ledger: Ledger) -> None:
        """Replace the state by a ledger."""
        # Calls, unmeasured and estimated calls, the six parts of the usage.
        self._sums: dict[SpendingKey, list[int]] = {
            spending_key(spending): [spending.calls, spending.unmeasured, spending.estimated, *astuple(spending.usage)]
            for spending in ledger.spendings
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
            self._start_call(body, event.seq)
        elif isinstance(body, Interrupted):
            self._count_interrupted(body, event.at)
        elif isinstance(body, Failed) and body.what == "call":
            self._count_failed(body, event.at)
        elif isinstance(body, SessionOpened | ModelSwitched):
            self._model = body.model
        else:
            return
        self._value = None

    def value(self) -> Ledger:
        """Return the ledger after the last event."""
        if self._value is None:
            spendings = tuple(
                Spending(model, purpose, sums[0], Usage(*sums[3:]), asked, day, above, sums[1], sums[2])
                for (model, purpose, asked, day, above), sums in self._sums.items()
            )
            self._value = Ledger(spendings, self._calibration, tuple(self._open.values()), self._model)
        return self._value

    def _start_call(self, body: CallStarted, seq: int) -> None:
        # Calls of version 0.2 do not say how much of their prompt is tools, so that they teach nothing about the view.
        is_whole = bool(body.tools_estimate or not body.tools)
        is_ours = bool(body.digest)
        by_text = int((body.estimate + body.tools_estimate) * self._calibration.factor(body.model) * _MARGIN)
        prompt = by_text if is_whole and by_text else max(by_text, body.size // _BYTES_PER_TOKEN)
        known = body.estimate if is_whole else 0
        has_tier, cached = is_priced_apart(bytes(body.params)), min(body.cached, prompt)
        sent = prompt if is_ours else 0
        self._open[seq] = OpenCall(seq, body.model, body.purpose, known, body.tools_estimate, is_ours, sent, cached, has_tier)
        if len(self._open) > MAX_OPEN_CALLS:
            del self._open[next(iter(self._open))]

    def _count_reply(self, reply: ModelReplied, at: int) -> None:
        call = self._close(reply.call, reply.purpose)
        if call is None:
            self._add(reply.model, "", reply.purpose, reply.usage, at=at, unmeasured=int(bool(reply.tier)))
            self._add_beside(reply, "", reply.purpose, at)
            return
        # Of a call whose view was counted we have seen the reply, in whatever program.
        unmeasured = int(((call.is_ours or call.estimate) and not is_measured(reply)) or call.has_tier or bool(reply.tier))
        self._add(reply.model, call.model, call.purpose, reply.usage, at=at, unmeasured=unmeasured)
        self._add_beside(reply, call.model, call.purpose, at)
        if call.estimate and reply.usage.prompt:
            self._calibration = learn(self._calibration, call.model, call.estimate, reply.usage.prompt, call.tools)

    def _add_beside(self, reply: ModelReplied, asked: str, purpose: str, at: int) -> None:
        """Count what a reply was billed for beside its message; each has a price by its own model and size, and none is another call."""
        for each in reply.beside:
            self._add(each.model or reply.model, asked, purpose, each.usage, at=at, calls=0)

    def _count_interrupted(self, interrupted: Interrupted, at: int) -> None:
        """Count the usage of an interrupted call, without using it for the calibration: as reported, or estimated if the call was ours."""
        call, usage = self._close(interrupted.call, interrupted.purpose), interrupted.usage
        if call is not None and call.is_ours:
            factor = self._calibration.factor(call.model)
            written = sum(estimate(text_of(part), factor) for part in interrupted.parts)
            if not usage.prompt:
                usage = replace(usage, input=call.prompt - call.cached, cache_read=call.cached)
            usage = replace(usage, output=max(usage.output, written))
        if usage != Usage():
            asked = "" if call is None else call.model
            # A tier has another price, whether the provider or an estimate has counted what was read.
            unmeasured, estimated = int(call is not None and call.has_tier), int(usage != interrupted.usage)
            self._add(interrupted.model, asked, interrupted.purpose, usage, at=at, unmeasured=unmeasured, estimated=estimated)

    def _count_failed(self, failed: Failed, at: int) -> None:
        """A call that failed has cost nothing; what one has cost whose reply was not observed is unknown."""
        call = self._close(failed.call)
        if call is not None and failed.error == UNOBSERVED:
            self._add("", call.model, call.purpose, Usage(), at=at, unmeasured=1)

    def _close(self, seq: int | None, purpose: str = "") -> OpenCall | None:
        """Remove and return an open call: call `seq`, or the newest of that purpose if `seq` is `None`; `None` if there is none."""
        if seq is not None:
            return self._open.pop(seq, None)
        newest = next((call.seq for call in reversed(self._open.values()) if not purpose or call.purpose == purpose), None)
        return None if newest is None else self._open.pop(newest)

    def _add(
        self, model: str, asked: str, purpose: str, usage: Usage, *, at: int, unmeasured: int = 0, estimated: int = 0, calls: int = 1
    ) -> None:
        # No request is empty: where a program counts its replies alone, what it has read is not known.
        unmeasured = max(unmeasured, int(usage.output > 0 and not usage.prompt))
        step = bisect_left(PRICE_STEPS, usage.prompt)
        key = (model or asked or self._model, purpose, asked, max(0, at) // _DAY_MS, PRICE_STEPS[step - 1] if step else 0)
        sums = self._sums.setdefault(key, [0] * 9)
        sums[:] = map(add, sums, (calls, unmeasured, estimated, *astuple(usage)))


def is_measured(reply: ModelReplied) -> bool:
    """Whether a reply says what all of it used: no request is empty, and a server that reports an empty one has not measured it.

    A message without usage is one only if it is nothing but what was billed beside it, such as a compaction.
    """
    usage, is_beside_alone = reply.usage, not any(isinstance(part, Text | Thinking | ToolCall) for part in reply.parts)
    is_counted = usage.prompt and (usage.output or not reply.parts)
    return bool(is_counted or (reply.beside and is_beside_alone and not usage.total)) and all(each.usage.prompt for each in reply.beside)


def is_priced_apart(params: bytes) -> bool:
    """Whether the parameters of a request ask for what has another price than the listed one."""
    if not any(name.encode() in params for name in _PRICED_APART):
        return False
    try:
        given = msgspec.json.decode(params)
    except msgspec.DecodeError:
        return True
    tables = [each for each in (given, given.get("extra") if isinstance(given, dict) else None) if isinstance(each, dict)]
    return any(map(priced_apart, tables))


def priced_apart(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a request, as values or as JSON, that ask for what has another price than the listed one."""
    found = {name: fields[name] for name in _PRICED_APART if name in fields}
    values = {name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value for name, value in found.items()}
    return {name: value for name, value in values.items() if value not in (None, *_LISTED)}
