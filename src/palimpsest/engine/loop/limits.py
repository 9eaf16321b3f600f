"""Limits of a turn: model calls, tool calls, seconds and US dollars, measured against the log."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Interrupted, ModelReplied, Usage
from palimpsest.core.log.log import Log
from palimpsest.core.projections.jobs import is_job_purpose
from palimpsest.core.projections.ledger import total_of
from palimpsest.engine.session import Session
from palimpsest.wire.models.cards import ModelCard, recorded_card
from palimpsest.wire.models.prices import cost

LimitName: TypeAlias = Literal["max_calls", "max_tools", "max_seconds", "max_usd"]
"""The stop reason of a turn that reached a limit."""


class Limits(Struct, frozen=True):
    """The most that one turn may use; `None` means no limit. `calls` counts model calls, `tools` tool calls."""

    calls: int | None = None
    tools: int | None = None
    seconds: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("calls", "tools", "seconds", "usd"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"the limit {name} must be more than 0, not {value}")


NO_LIMITS: Final = Limits()


def cost_of_events(session: Session, first: int, last: int, *, jobs: bool = True) -> float:
    """US dollars of the calls that ended in the events `first` to `last`, each at the prices of its model; unknown models cost nothing.

    With `jobs` those of background jobs are included.
    """
    return spent_in_events(session.log, tuple(session.environment.cards), first, last, jobs=jobs)[1]


def spent_in_events(log: Log, cards: tuple[ModelCard, ...], first: int, last: int, *, jobs: bool = True) -> tuple[Usage, float]:
    """Tokens and US dollars of the calls that ended in the events `first` to `last`; unknown models cost nothing."""
    ended = [event.body for event in log.reader.run(first, last) if isinstance(event.body, ModelReplied | Interrupted)]
    calls = [body for body in ended if jobs or not is_job_purpose(body.purpose)]
    # One by one, because prices of long prompts depend on the single call.
    return total_of(body.usage for body in calls), sum(cost(body.usage, recorded_card(body.model, cards)).total for body in calls)


class TurnMeter:
    """What a turn has used since it started: the counters of the log now, less those at the start.

    `children_usd` returns the US dollars that the sub-agents of the session have cost so far.
    """

    def __init__(self, session: Session, limits: Limits, children_usd: Callable[[], float] = lambda: 0.0) -> None:
        self._session = session
        self._limits = limits
        self._children_usd = children_usd
        self._children_before = children_usd()
        self._calls = session.log.health.calls
        self._priced_to = session.log.tip
        self._usd = 0.0
        self.tools = 0

    @property
    def tools_left(self) -> int | None:
        """How many more tool calls the turn may make; `None` means any number."""
        return None if self._limits.tools is None else max(0, self._limits.tools - self.tools)

    def reached(self) -> LimitName | None:
        """Return the first limit that the turn has reached, or `None`; the loop itself keeps the time limit, also within a call."""
        limits, session = self._limits, self._session
        if limits.calls is not None and session.log.health.calls - self._calls >= limits.calls:
            return "max_calls"
        if limits.tools is not None and self.tools >= limits.tools:
            return "max_tools"
        if limits.usd is not None and self.usd() >= limits.usd:
            return "max_usd"
        return None

    def usd(self) -> float:
        """US dollars that the turn has cost so far, side calls and sub-agents included; jobs beside it have budgets of their own."""
        tip = self._session.log.tip
        if tip > self._priced_to:
            # Prices of long prompts depend on the single call, so the calls are priced one by one, each once.
            self._usd += cost_of_events(self._session, self._priced_to + 1, tip, jobs=False)
            self._priced_to = tip
        return self._usd + self._children_usd() - self._children_before


async def within_seconds(seconds: float | None, work: Coroutine[Any, Any, str]) -> str:
    """Return the stop reason of a turn, or `max_seconds` if it takes longer: a call or a tool that runs then is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        return "max_seconds"
