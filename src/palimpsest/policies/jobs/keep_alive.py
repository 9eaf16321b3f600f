"""Keep-alive of the provider's prompt cache: a small request that reads the cached prefix before it expires, while that pays."""

from dataclasses import dataclass
from typing import Final

from palimpsest.audit.pricing.price import Rates, rates_of
from palimpsest.core.policy import Ask, JobLimits, JobPlan, JobSteps, ask
from palimpsest.core.situation import CachedPrefix, JobMoment, JobSituation
from palimpsest.policies.prompt import prompt

# Tokens of a prefix from which on its reading costs more than the rest of the request.
_SMALLEST: Final = 8_000
_LIMITS: Final = JobLimits(usd=0.5, calls=1, seconds=60.0)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Reads the cached prefix once before it expires, at most `most` times in a row while the user is away.

    It rents or buys: all reads in a row together cost no more than writing the prefix again would have cost more than a read, so the loss
    is bounded if the user does not come back. `interval_ms` is the time until the next moment `idle`, in milliseconds. Only models with
    known prices are asked, because only there it is known that anything is saved.
    """

    most: int = 3
    interval_ms: int = 240_000
    limits: JobLimits = _LIMITS
    name: str = "keep_alive"
    moments: frozenset[JobMoment] = frozenset({"idle"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return `None` unless the prefix expires before the next moment and one more read pays."""
        live = [prefix for prefix in situation.cache.prefixes if prefix.live(situation.now)]
        prefix = max(live, key=lambda each: each.tokens, default=None)
        if prefix is None or not self._is_due(prefix, situation) or not situation.card.prices.input:
            return None
        reads = situation.job.repeats + 1
        return _read_prefix(situation) if reads <= min(self.most, reads_that_pay(rates_of(situation.card, situation.cache))) else None

    def _is_due(self, prefix: CachedPrefix, situation: JobSituation) -> bool:
        expires = prefix.at + prefix.ttl
        return prefix.tokens >= _SMALLEST and situation.now + self.interval_ms >= expires and situation.health.turn is None


def reads_that_pay(rates: Rates) -> int:
    """Return how many reads of a prefix together cost at most what writing it costs more than one read."""
    # Prices are decimals, and (2.0 - 0.1) / 0.1 is a little below 19.
    return int((rates.write - rates.read) / rates.read + 1e-9) if rates.read > 0 else 0


def _read_prefix(situation: JobSituation) -> JobSteps:
    # The same head, items and tools as the last request of the turn: its bytes are those that the provider has cached. The limit of the
    # reply stays, too, for a smaller one may change the thinking budget, on which caches depend.
    yield from ask(Ask(situation.view.items, prompt("keep_alive"), "keep_alive"))
    return ()
