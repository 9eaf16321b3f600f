"""The budget of a day for background work of memory: counts the tokens of each request, and lets none through that would exceed it."""

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from palimpsest.core.errors import BudgetSpent, OverBudget, PalimpsestError, ProviderError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.policy import Answer, Ask, EventSpan, Want, span
from palimpsest.core.ports import Clock
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate
from palimpsest.core.tokens.spending import total_of
from palimpsest.stores.config.memory_config import MemoryConfig

if TYPE_CHECKING:
    from palimpsest.stores.notes.spending import DaySpending, Tokens

Result = TypeVar("Result")
# The reasons are the same at every turn, so that each is recorded once.
JOBS_OFF: Final = "memory.jobs is off, so no model is asked"
DAY_SPENT: Final = "the tokens of a day for memory are spent (memory.day_tokens_read, memory.day_tokens_written)"
# How far the tokens of a request may lie above their estimate, and tokens that every request has beside its prompt.
_MARGIN: Final = 1.3
_OVERHEAD: Final = 500
# Tokens of a reply that has no limit of its own.
_LONGEST_REPLY: Final = 4_000
_NEWEST: Final = 2**53


class DayBudget:
    """What jobs of memory may use on a day (UTC), counted in the home for all processes together."""

    def __init__(self, folder: Path, clock: Clock, config: MemoryConfig) -> None:
        self._folder = folder
        self._clock = clock
        self._config = config

    def check_jobs(self) -> None:
        """Raise `OverBudget` if jobs of memory may ask no model at all."""
        if self._config.jobs == "off":
            raise OverBudget(JOBS_OFF, where="memory")

    def metered(
        self, steps: Generator[Want, Answer, Result], *, cached_is_free: bool = False, after: int = -1
    ) -> Generator[Want, Answer, Result]:
        """Run steps and count their requests, for `yield from`. Raises `OverBudget` before a request that the day has no tokens for.

        With `cached_is_free`, the prefix that a request shares with its session is not counted, nor what is read from a cache, also
        where a server does not report that. `after` is the event behind which the replies to a want of several turns are found. A request
        that the provider refused has used nothing. What another failed request has used, or one whose reply does not say it, is not
        known; it counts with what was reserved.
        """
        given: Answer = None
        error: PalimpsestError | None = None
        while True:
            try:
                want = steps.send(given) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            given, error = None, None
            reserved = self._reserve(want) if isinstance(want, Ask) else None
            turns = want.turns if isinstance(want, Ask) else 1
            try:
                given = yield want
            except PalimpsestError as raised:
                error = raised
            if reserved is not None and isinstance(given, ModelReplied) and given.usage.prompt and given.usage.output:
                replies = (given,) if turns == 1 else (yield from _replies_of_turns(given, after))
                # What was reserved for a turn is its request without the prefix, which the session has paid for.
                most = reserved[1].read * len(replies) // turns if cached_is_free else None
                self._settle(reserved, total_of(reply.usage for reply in replies), most)
            elif reserved is not None and isinstance(error, ProviderError) and error.is_refusal:
                self._settle(reserved, Usage(), None)

    def _reserve(self, want: Ask) -> "tuple[str, Tokens]":
        from palimpsest.stores.notes.spending import Tokens  # SQLite; a start is measured in milliseconds

        self.check_jobs()
        day = datetime.fromtimestamp(self._clock.now() / 1000, UTC).date().isoformat()
        # The schema is sent too, and a model may count more tokens than the estimate: what was used must not exceed what was allowed.
        read = estimate(f"{want.system}{want.prompt}{want.schema}", max(FAMILY_FACTORS.values()))
        tokens = Tokens((int(read * _MARGIN) + _OVERHEAD) * want.turns, (want.reply or _LONGEST_REPLY) * want.turns)
        if not self._spending().reserve(day, tokens, Tokens(self._config.day_tokens_read, self._config.day_tokens_written)):
            raise BudgetSpent(DAY_SPENT, where="memory")
        return day, tokens

    def _settle(self, reserved: "tuple[str, Tokens]", usage: Usage, most_read: int | None) -> None:
        """Count what was used in place of what was reserved; at most `most_read` if what is cached is free."""
        from palimpsest.stores.notes.spending import Tokens

        day, tokens = reserved
        read = usage.prompt if most_read is None else min(usage.prompt - usage.cache_read, most_read)
        self._spending().add(day, Tokens(read - tokens.read, usage.output - tokens.written))

    def _spending(self) -> "DaySpending":
        from palimpsest.stores.notes.spending import DaySpending

        return DaySpending(self._folder)


def _replies_of_turns(last: ModelReplied, after: int) -> Generator[Want, Answer, tuple[ModelReplied, ...]]:
    """Return all replies to a want of several turns: its last one, and those before it in the log."""
    events = yield from span(EventSpan(after + 1, _NEWEST))
    return tuple(event.body for event in events if isinstance(event.body, ModelReplied) and event.body.purpose == last.purpose)
