"""Our fold: computed from the log, free and instant, when waiting has become dearer than folding or there is no more room."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from palimpsest.audit.citations import check_narrative, sources_of
from palimpsest.audit.floor import Floor, check_floor, token_limit, too_full
from palimpsest.audit.fold_texts import NARRATIVE
from palimpsest.audit.gate import FREE_SHARE, fold_limit
from palimpsest.audit.pricing.price import price_of_fold, tokens_after_fold
from palimpsest.core.edits import Put
from palimpsest.core.items import Text
from palimpsest.core.policy import Outcome, Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.fold.bounds import Bounds, ladder
from palimpsest.policies.fold.parts import fold_of
from palimpsest.policies.notices import is_held, level_of

Narrative: TypeAlias = Literal["off", "auto", "asked"]
# A fold that leaves more than this of a view is not worth what it hides: asked for, and by itself without pressure.
_ASKED, _BY_ITSELF = 0.95, 0.8


@dataclass(frozen=True, slots=True)
class FoldFromLog:
    """Folds without a model. `always` is for a rung of another profile, which was asked only when a fold is due.

    `cover` is how often the rent must cover the price, `shrink` how many times smaller the view must become for that; without
    `auto` only the user and an overflow make it fold.
    """

    name: str = "fold"
    moments: frozenset[Moment] = frozenset({"before_call", "overflow", "asked", "switched", "idle"})
    shrinks: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    cover: float = 2.0
    shrink: float = 2.0
    auto: bool = True
    always: bool = False
    narrative: Narrative = "off"

    def plan(self, situation: Situation) -> Plan:
        """The largest fold of the ladder that fits, when one is due."""
        return self.propose(situation)

    def propose(self, situation: Situation, narrative: Put | None = None) -> Outcome:
        """The same, with what a model told about the work."""
        why = self.due(situation)
        if not why:
            return ()
        floor = check_floor(situation)
        now = situation.tokens.total(situation.view) + situation.tools_tokens
        limit, most = self._limits(situation, floor.tokens, now)
        pressed, last = self._pressed(situation), None
        least = now if pressed else now * self._worth(situation)
        for number, bounds in ladder(self.bounds, situation.budget.window):
            folded = fold_of(situation, bounds, floor, narrative or self._notes(situation, bounds))
            if folded is None or folded.tokens >= least:
                if pressed:
                    continue
                break
            if folded.tokens <= limit:
                return Proposal((folded.fold,), f"{why}; rung {number} of the ladder")
            last = folded
        if last is None or last.tokens > most:
            return self._rest(situation, floor)
        return Proposal((last.fold,), f"{why}; no rung of the ladder leaves more room")

    def due(self, situation: Situation) -> str:
        """Why a fold is due now; empty when it is not."""
        if not situation.view.items:
            return ""
        if self.always:
            return "no model was at hand for a summary"
        if situation.moment == "asked":
            return f"the user asked for it: {situation.asked}" if situation.asked else "the user asked for it"
        if not situation.may_fold:
            return ""
        if situation.moment == "overflow":
            return "" if _made_room(situation) else "the request was too long"
        if not self.auto:
            return ""
        if situation.moment == "idle":
            return self._soon_cold(situation)
        return self._full(situation) or self._worth_it(situation)

    def _full(self, situation: Situation) -> str:
        """Whether there is pressure, and of which kind."""
        budget, call = situation.budget, situation.view.call
        level = level_of(situation, budget.compact_at)
        if level is not None and situation.used >= level:
            return f"{situation.used:,} tokens are used, and from {level:,} on a fold is due"
        if budget.bytes_at is not None and call is not None and call.size >= budget.bytes_at and not situation.cache.edited:
            return f"the last request had {call.size:,} bytes, and from {budget.bytes_at:,} on a fold is due"
        return ""

    def _shrinks_much(self, situation: Situation) -> bool:
        after = (
            tokens_after_fold(situation.view, situation.evidence, situation.tokens, situation.card, situation.parts)
            + situation.tools_tokens
        )
        return not is_held(situation) and situation.used > self.shrink * after

    def _worth(self, situation: Situation) -> float:
        """The share of the view that a fold may leave when there is no pressure, whatever was expected of it."""
        return _ASKED if self.always or situation.moment == "asked" else _BY_ITSELF

    def _soon_cold(self, situation: Situation) -> str:
        """While the user is away a model is asked with the cache still warm; the fold itself is free, for by the next call it is cold."""
        if self.narrative != "auto" or not self._shrinks_much(situation):
            return ""
        return "the user is away, and what is cached will be gone when they return"

    def _worth_it(self, situation: Situation) -> str:
        """Whether carrying everything along has cost more than a fold would, and the view would become much smaller."""
        if not self._shrinks_much(situation):
            return ""
        price = price_of_fold(situation)
        if situation.rent < self.cover * price:
            return ""
        return f"waiting has cost {situation.rent:,.0f} tokens, and a fold costs {price:,.0f}"

    def _limits(self, situation: Situation, floor: int, now: int) -> tuple[int, int]:
        """What a fold should come down to, and what it must at the least."""
        level, most = situation.budget.compact_at or token_limit(situation), fold_limit(situation, floor)
        if level is None or most is None:
            return now, now
        share = _real_share(situation, now) if situation.moment == "overflow" else 1.0
        return int(level * share * (1 - FREE_SHARE)), most

    def _rest(self, situation: Situation, floor: Floor) -> Outcome:
        room = token_limit(situation)
        if room is not None and situation.used >= room and situation.moment != "asked":
            raise too_full(situation, floor, room)
        return ()

    def _pressed(self, situation: Situation) -> bool:
        return situation.moment == "overflow" or bool(self._full(situation))

    def _notes(self, situation: Situation, bounds: Bounds) -> Put | None:
        notes = situation.view.notes
        if notes is None or self.narrative == "off":
            return None
        content = Text(check_narrative(notes.text, sources_of(situation.view.items)).text)
        return Put("summary", content, NARRATIVE) if content.text and situation.tokens.content(content) <= bounds.narrative else None


def _real_share(situation: Situation, now: int) -> float:
    """What was too long has at least the window's tokens, whatever we thought it had: how much of the window our count really is."""
    call, window = situation.view.call, situation.budget.window
    thought = situation.tokens.scaled(call.estimate) + situation.tools_tokens if call is not None and call.estimate else now
    return min(1.0, thought / window) if window else 1.0


def _made_room(situation: Situation) -> bool:
    """Whether what was cleared since the request that was too long is enough."""
    level = situation.budget.compact_at or token_limit(situation)
    if level is None or not situation.cache.edited:
        return False
    now = situation.tokens.total(situation.view) + situation.tools_tokens
    return now <= level * _real_share(situation, now) * (1 - FREE_SHARE)


def rung() -> FoldFromLog:
    """What takes the place of a summary when no model is at hand, in every profile."""
    return FoldFromLog("fold without a model", always=True)
