"""Budgets of model calls: what a call may cost at most is reserved before it, for a run in dollars and for a day in tokens."""

import math
from collections.abc import Generator
from datetime import UTC, datetime
from threading import Lock
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from palimpsest.core.errors import OverBudget, PalimpsestError, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import text_of
from palimpsest.core.policy import Answer, Ask, Want
from palimpsest.core.ports import Clock
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate, family_of
from palimpsest.engine.loop.limits import price_of_limit
from palimpsest.stores.notes.spending import DaySpending, Tokens
from palimpsest.wire.models.cards import ModelCard

Result = TypeVar("Result")
# How far the tokens of a request may lie above their estimate, and tokens that every request has beside its prompt.
_MARGIN: Final = 1.3
_OVERHEAD: Final = 500


class RunCost(Struct, frozen=True):
    """What a run has used: calls, tokens, and US dollars by the prices of its model."""

    calls: int = 0
    read: int = 0
    written: int = 0
    usd: float = 0.0


class Meter(Protocol):
    """Counts model calls against budgets."""

    def reserve(self, want: Ask) -> "Reservation":
        """Reserve the most that a call can use. Raises `OverBudget` if a budget does not allow it."""
        ...

    def settle(self, reservation: "Reservation", usage: Usage | None) -> None:
        """Replace a reservation by the use; `None` if the call failed before any use is known."""
        ...

    def give_back(self, reservation: "Reservation") -> None:
        """Give back the reservation of a call that was refused, and so has used nothing."""
        ...


class Reservation(Struct, frozen=True):
    """The most that one call can use."""

    day: str
    tokens: Tokens
    usd: float


class RunMeter:
    """The budgets of one run: US dollars of the run, and tokens of the day, which all processes of a home share. Safe in threads.

    A call that uses more than was reserved for it counts in full, and later reservations grow by as much: a model that reads more tokens
    than estimated exceeds a budget by the excess of the calls that were under way when that was found out, and by no other call. Raises
    `BadInput` if no price of the model is known.
    """

    def __init__(self, card: ModelCard, spending: DaySpending, clock: Clock, *, usd: float, day: Tokens) -> None:
        self._card = card
        self._tariff = price_of_limit(card, usd, "run without a model (--no-model)", "memory.run_usd")
        self._spending = spending
        self._clock = clock
        self._usd = usd
        self._day = day
        self._lock = Lock()
        self._reserved = 0.0
        # By how much calls used more than was estimated for them at most: read and written.
        self._excess = (1.0, 1.0)
        self.spent = RunCost()

    def with_budget(self, usd: float) -> "RunMeter":
        """Return a meter of the same model and day with another budget, which has spent nothing yet."""
        return RunMeter(self._card, self._spending, self._clock, usd=usd, day=self._day)

    def reserve(self, want: Ask) -> Reservation:
        """Reserve the most that a call can use. Raises `OverBudget` if the run or the day does not allow it."""
        tokens = self._with_excess(most_tokens(want, self._card))
        usd = self._tariff.bill(Usage(input=tokens.read, output=tokens.written)).total
        day = datetime.fromtimestamp(self._clock.now() / 1000, UTC).strftime("%Y-%m-%d")
        with self._lock:
            if self.spent.usd + self._reserved + usd > self._usd:
                raise OverBudget(f"the budget of ${self._usd:g} for a run does not allow another call of up to ${usd:.4f}", where="memory")
            if not self._spending.reserve(day, tokens, self._day):
                raise OverBudget(
                    f"the tokens of memory for {day} are used up; memory.day_tokens_read and day_tokens_written", where="memory"
                )
            self._reserved += usd
        return Reservation(day, tokens, usd)

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Replace a reservation by the use. Of a failed call nothing is known, so that its tokens count as used.

        The same holds for a reply that does not say what was read or written.
        """
        with self._lock:
            self._reserved -= reservation.usd
            if usage is None or not (usage.prompt and usage.output):
                used, usd = reservation.tokens, reservation.usd
            else:
                used, usd = Tokens(usage.prompt, usage.output), self._tariff.bill(usage).total
                self._learn_excess(used, reservation.tokens)
                difference = Tokens(used.read - reservation.tokens.read, used.written - reservation.tokens.written)
                self._spending.add(reservation.day, difference)
            spent = self.spent
            self.spent = RunCost(spent.calls + 1, spent.read + used.read, spent.written + used.written, spent.usd + usd)

    def give_back(self, reservation: Reservation) -> None:
        """Give back the reservation of a call that was refused, and so has used nothing."""
        with self._lock:
            self._reserved -= reservation.usd
            self._spending.add(reservation.day, Tokens(-reservation.tokens.read, -reservation.tokens.written))

    def _with_excess(self, estimated: Tokens) -> Tokens:
        read, written = self._excess
        return Tokens(math.ceil(estimated.read * read), math.ceil(estimated.written * written))

    def _learn_excess(self, used: Tokens, reserved: Tokens) -> None:
        """Let later reservations grow as far as a call exceeded its own."""
        read, written = self._excess
        over_read, over_written = used.read / max(1, reserved.read), used.written / max(1, reserved.written)
        self._excess = (read * max(1.0, over_read), written * max(1.0, over_written))


def most_tokens(want: Ask, card: ModelCard) -> Tokens:
    """Return the most tokens that a call reads and writes, as far as an estimate tells."""
    shown = "\n".join(text_of(item.content) for item in want.items)
    text = estimate(f"{want.system}{want.prompt}{want.schema}{shown}", FAMILY_FACTORS[family_of(card.name)])
    return Tokens(int(text * _MARGIN) + _OVERHEAD, min(want.reply or card.reply, card.reply))


def metered(steps: Generator[Want, Answer, Result], meter: Meter) -> Generator[Want, Answer, Result]:
    """Run steps so that each of their calls is reserved before and settled after it; `OverBudget` is thrown into them."""
    given: Answer | PalimpsestError = None
    while True:
        try:
            want = steps.throw(given) if isinstance(given, PalimpsestError) else steps.send(given)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        try:
            given = (yield want) if not isinstance(want, Ask) else (yield from _counted(want, meter))
        except PalimpsestError as error:
            given = error


def _counted(want: Ask, meter: Meter) -> Generator[Want, Answer, Answer]:
    reservation = meter.reserve(want)
    try:
        answer = yield want
    except BaseException as error:
        if isinstance(error, ProviderError) and error.is_refusal:
            meter.give_back(reservation)
        else:
            # Also after an interrupt: what was sent may have to be paid.
            meter.settle(reservation, None)
        raise
    meter.settle(reservation, answer.usage if isinstance(answer, ModelReplied) else None)
    return answer
