"""Clears dead tool results when the rent they paid covers twice the price of breaking the cached prefix, or at once when it is cold."""

from dataclasses import dataclass

from palimpsest.audit.dead import Dead, dead_of, masks_of
from palimpsest.audit.rates import Rates, rates_of
from palimpsest.audit.warm import Warm, places_of, warm_of
from palimpsest.core.items import Value
from palimpsest.core.policy import Outcome, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.pressing import level_of

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
        places = places_of(situation.view)
        dead = dead_of(situation, places, patience=patience)
        if not dead:
            return ()
        warm = warm_of(situation, places)
        best = best_clearing(clearings(dead, situation.used, warm, rates_of(situation.card, situation.cache)), self.cover, self.gain)
        if best is None:
            return ()
        return Proposal(masks_of(dead[: best.count]), _why(best))


def clear_all(situation: Situation, least: int = 0, patience: float = 1.0) -> Outcome:
    """Everything dead in one edit, whatever it costs, if that frees at `least` so many tokens; what an undo brought back goes too."""
    dead = dead_of(situation, places_of(situation.view), held=True, patience=patience)
    gain = sum(each.gain for each in dead)
    return Proposal(masks_of(dead), f"{len(dead)} dead results, {gain} tokens, room is short") if dead and gain >= least else ()


def clearings(dead: list[Dead], total: int, warm: Warm, rates: Rates) -> list[Clearing]:
    """Every suffix of the dead results, newest first, with its gain, rent and price."""
    found: list[Clearing] = []
    gain, rent = 0, 0.0
    hot = min(warm.all, total)
    for count, each in enumerate(dead, 1):
        gain += each.gain
        rent += rates.read * each.gain * each.calls
        before = min(warm.before(each.place), hot)
        price = rates.write * (total - gain - before) - rates.read * (hot - before) - rates.write * (total - hot)
        found.append(Clearing(count, gain, rent, price))
    return found


def best_clearing(found: list[Clearing], cover: float = 2.0, gain: int = 2_000) -> Clearing | None:
    """The suffix that is worth most of those that are worth it; one that is free is always worth it."""
    worth = [each for each in found if each.price <= 0 or (each.gain >= gain and each.rent >= cover * each.price)]
    return max(worth, key=lambda each: each.rent - cover * each.price, default=None)


def _why(best: Clearing) -> str:
    if best.price <= 0:
        return f"{best.count} dead results, {best.gain} tokens, and clearing them is free now"
    return f"{best.count} dead results, {best.gain} tokens, paid {best.rent:.0f} in rent against a price of {best.price:.0f}"
