"""The budget of a day for background work of memory: counts the tokens of each request, and lets none through that would exceed it."""

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from palimpsest.core.errors import OverBudget, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.policy import Answer, Ask, Want
from palimpsest.core.ports import Clock
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, estimate
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

    def metered(self, steps: Generator[Want, Answer, Result], *, cached_is_free: bool = False) -> Generator[Want, Answer, Result]:
        """Run steps and count their requests, for `yield from`. Raises `OverBudget` before a request that the day has no tokens for.

        With `cached_is_free`, the prefix that a request shares with its session is not counted, nor what is read from a cache. What a
        failed request has used is not known; it counts with what was reserved for it.
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
            try:
                given = yield want
            except PalimpsestError as raised:
                error = raised
            if reserved is not None and isinstance(given, ModelReplied):
                self._settle(reserved, given, cached_is_free=cached_is_free)

    def _reserve(self, want: Ask) -> "tuple[str, Tokens]":
        from palimpsest.stores.notes.spending import Tokens  # SQLite; a start is measured in milliseconds

        self.check_jobs()
        day = datetime.fromtimestamp(self._clock.now() / 1000, UTC).date().isoformat()
        # The schema is sent too, and a model may count more tokens than the estimate: what was used must not exceed what was allowed.
        read = estimate(f"{want.system}{want.prompt}{want.schema}", max(FAMILY_FACTORS.values()))
        tokens = Tokens(int(read * _MARGIN) + _OVERHEAD, want.reply or _LONGEST_REPLY)
        if not self._spending().reserve(day, tokens, Tokens(self._config.day_tokens_read, self._config.day_tokens_written)):
            raise OverBudget(DAY_SPENT, where="memory")
        return day, tokens

    def _settle(self, reserved: "tuple[str, Tokens]", reply: ModelReplied, *, cached_is_free: bool) -> None:
        from palimpsest.stores.notes.spending import Tokens

        day, tokens = reserved
        read = reply.usage.prompt - (reply.usage.cache_read if cached_is_free else 0)
        self._spending().add(day, Tokens(read - tokens.read, reply.usage.output - tokens.written))

    def _spending(self) -> "DaySpending":
        from palimpsest.stores.notes.spending import DaySpending

        return DaySpending(self._folder)
