"""Clears dead tool results when the rent they paid covers twice the price of breaking the cached prefix, or at once when it is cold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from palimpsest.audit.dead_results import DeadResult, dead_results, masks_of, with_masks
from palimpsest.audit.pricing.price import Rates, rates_of
from palimpsest.audit.pricing.warm_prefixes import WarmPrefixes, warm_prefixes
from palimpsest.core.items import Value
from palimpsest.core.policy import Outcome, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.notices import level_of

_ALWAYS: frozenset[Moment] = frozenset({"before_call", "overflow"})


class Clearing(Value, frozen=True):
    """The newest `count` dead results cleared: tokens gained, rent they paid, and the price of it in input tokens."""

    count: int
    gain: int
    rent: float
    price: float


@dataclass(frozen=True, slots=True)
class ClearDead:
    """Rent or buy: a suffix of the dead results is cleared once its rent is `cover` times its price and it frees `gain` tokens.

    Under pressure all that is dead goes, and what an undo brought back with it: from `compact_at` on if that leaves the share `room` of
    it free, for else a fold is due, which breaks the cache once and not again soon; on overflow if the request then fits. With less
    `patience` results die younger, which is cheaper and makes the model read more of them again; in a turn that had its folds at once.
    """

    name: str = "clear_dead"
    moments: frozenset[Moment] = _ALWAYS
    shrinks: bool = True
    cover: float = 2.0
    gain: int = 2_000
    room: float = 0.3
    patience: float = 1.0

    def plan(self, situation: Situation) -> Outcome:
        """The dead results to clear now, in one edit; nothing when an edit was made and no call since."""
        budget, level = situation.budget, level_of(situation, situation.budget.compact_at)
        # A turn that had its folds has only this left, so everything pays rent from its first call on, as it does towards a fold.
        patience, pressed = (self.patience, 1.0) if situation.may_fold else (0.0, 0.0)
        if situation.moment == "overflow":
            return clear_all(situation, situation.used - (budget.block_at or budget.window), pressed)
        if level is not None and situation.used >= level:
            cleared = clear_all(situation, situation.used - round(level * (1 - self.room)), pressed)
            if cleared or situation.may_fold:
                return cleared
        if situation.cache.edited:
            return ()
        dead = dead_results(situation, patience=patience)
        if not dead:
            return ()
        warm = warm_prefixes(situation, [each.place for each in reversed(dead)])
        rates = rates_of(situation.card, situation.cache)
        # Mostly it would not be worth it even if nothing stood in their place, and then no stub need be written; while nothing is cached
        # it always is.
        if warm.longest and next(_worth_clearing(dead, warm, rates, self.cover, self.gain), None) is None:
            return ()
        dead = with_masks(dead, situation)
        best = best_clearing(dead, warm, rates, cover=self.cover, least=self.gain)
        return Proposal(masks_of(dead[: best.count]), _why(best)) if best is not None else ()


def clear_all(situation: Situation, least: int = 0, patience: float = 1.0) -> Outcome:
    """Everything dead in one edit, whatever it costs, if that frees at `least` so many tokens; what an undo brought back goes too."""
    dead = dead_results(situation, held=True, patience=patience)
    if not dead or sum(each.gain for each in dead) < least:
        return ()
    dead = with_masks(dead, situation)
    gain = sum(each.gain for each in dead)
    if not dead or gain < least:
        return ()
    return Proposal(masks_of(dead), f"{len(dead)} dead results, {gain} tokens, room is short")


def best_clearing(
    dead: Sequence[DeadResult], warm: WarmPrefixes, rates: Rates, *, cover: float = 2.0, least: int = 2_000
) -> Clearing | None:
    """The suffix of the dead results that is worth most of those that are worth it."""
    best = max(_worth_clearing(dead, warm, rates, cover, least), key=itemgetter(0), default=None)
    return Clearing(*best[1:]) if best is not None else None


def _worth_clearing(
    dead: Sequence[DeadResult], warm: WarmPrefixes, rates: Rates, cover: float, least: int
) -> Iterator[tuple[float, int, int, float, float]]:
    """The suffixes that are worth it, shortest first: what each is worth, and its `Clearing`; one that is free is always worth it.

    Between two cached ends one more result frees more for the same part of the cache: only the longest suffix of each stretch counts.
    """
    read, write = rates.read, rates.write
    ends, tokens, hot = warm.ends, warm.tokens, warm.longest
    end, last = len(ends), len(dead)
    gain, rent = 0, 0.0
    for count, each in enumerate(dead, 1):
        freed = each.gain
        gain += freed
        rent += read * freed * each.calls
        while end and ends[end - 1] >= each.place:
            end -= 1
        if count < last and (not end or dead[count].place > ends[end - 1]):
            continue
        # What was cached behind it is no longer read, and what is left of that is written.
        lost = hot - tokens[end - 1] if end else hot
        price = write * (lost - gain) - read * lost
        if price <= 0 or (rent >= cover * price and gain >= least):
            yield rent - cover * price, count, gain, rent, price


def _why(best: Clearing) -> str:
    if best.price <= 0:
        return f"{best.count} dead results, {best.gain} tokens, and clearing them is free now"
    return f"{best.count} dead results, {best.gain} tokens, paid {best.rent:.0f} in rent against a price of {best.price:.0f}"
