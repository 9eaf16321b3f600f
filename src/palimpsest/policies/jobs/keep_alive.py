"""Keep-alive of the provider's prompt cache: a small request that reads the cached prefix before it expires, while that pays."""

from dataclasses import dataclass
from typing import Final

from palimpsest.audit.pricing.keeping import KEEP_ALIVE_LOSS, MOST_READS, allowance, joined, reads_worth, reserve, room_of, tariff_of
from palimpsest.audit.pricing.pauses import KEEP_ALIVE
from palimpsest.core.items import Item
from palimpsest.core.policy import Ask, JobLimits, JobPlan, JobSteps, ask
from palimpsest.core.situation import CachedPrefix, JobMoment, JobSituation
from palimpsest.policies.prompt import prompt

# Tokens of a prefix from which on its reading costs more than the rest of the request.
_SMALLEST: Final = 8_000
# Tokens of a reply of one word and of the line that asks for it, at the price of a reply.
_SHORT_REPLY: Final = 40
# No limit in dollars: what may be lost is a share of what the session costs.
_LIMITS: Final = JobLimits(calls=1, seconds=60.0)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Reads the cached prefix once before it expires, at most `most` times in a row while no request comes.

    It rents or buys: it reads as long as the pauses seen so far make it likely that the next request comes in time, and never more than
    `loss` of what the session would have cost without it is lost. `interval_ms` is the time until the next moment `idle`, in milliseconds.
    Only models with known prices are asked, because only there it is known that anything is saved.
    """

    most: int = MOST_READS
    interval_ms: int = 270_000
    loss: float = KEEP_ALIVE_LOSS
    limits: JobLimits = _LIMITS
    name: str = KEEP_ALIVE
    moments: frozenset[JobMoment] = frozenset({"idle"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return `None` unless the prefix expires before the next moment and one more read pays."""
        prefix = max((each for each in situation.cache.prefixes if each.live(situation.now)), key=lambda each: each.tokens, default=None)
        if prefix is None or prefix.tokens < _SMALLEST or situation.now + self.interval_ms < prefix.at + prefix.ttl:
            return None
        items = _items_of(prefix, situation)
        return _read(items) if items and self._pays(prefix, situation) else None

    def _pays(self, prefix: CachedPrefix, situation: JobSituation) -> bool:
        tariff = tariff_of(situation.card)
        if tariff is None:
            return False
        account, done = joined(situation.account, situation.earlier), situation.job.repeats
        price = tariff.read * prefix.tokens + tariff.output * _SHORT_REPLY
        # Reads do not spend what the prefix itself may still lose.
        held_back = reserve(tariff, situation.lifetime, prefix.ttl, prefix.tokens)
        bills = situation.bills
        room = allowance(account, situation.lifetime, self.loss) if bills is None else room_of(bills, self.loss)
        affordable = done + int((room - held_back) / price)
        working, most = situation.health.turn is not None, min(self.most, affordable)
        return reads_worth(account, tariff, prefix.ttl, self.interval_ms, working=working, done=done, most=most) > done


def _items_of(prefix: CachedPrefix, situation: JobSituation) -> tuple[Item, ...]:
    """The items of the view up to the end of a prefix; none if it ends in the head or is no longer in the view."""
    items = situation.view.items
    place = next((place for place, item in enumerate(items) if item.id == prefix.last), None)
    return () if place is None else items[: place + 1]


def _read(items: tuple[Item, ...]) -> JobSteps:
    # The same head, items and tools as the last request of the turn: its bytes are those that the provider has cached. The limit of the
    # reply stays, too, for a smaller one may change the thinking budget, on which caches depend.
    yield from ask(Ask(items, prompt("keep_alive"), KEEP_ALIVE))
    return ()
