"""Our fold: computed from the log, free and instant, when waiting has become dearer than folding or there is no more room."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from palimpsest.audit.floor import check_floor, room_of
from palimpsest.core.edits import Put
from palimpsest.core.items import Text
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.fold_bounds import Bounds, ladder
from palimpsest.policies.fold_parts import Folded, fold_of
from palimpsest.policies.fold_texts import NARRATIVE

Narrative: TypeAlias = Literal["off", "auto", "asked"]
# The share of the room up to the next fold that a fold must leave free.
FREE = 0.15


@dataclass(frozen=True, slots=True)
class FoldFromLog:
    """Folds without a model. `always` is for a rung of another profile, which was asked only when a fold is due.

    `factor` is how often the rent must cover the price, `shrink` how many times smaller the view must become for that; without
    `auto` only the user and an overflow make it fold.
    """

    name: str = "fold"
    moments: frozenset[Moment] = frozenset({"before_call", "overflow", "asked", "switched"})
    shrinks: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    factor: float = 2.0
    shrink: float = 2.0
    auto: bool = True
    always: bool = False
    narrative: Narrative = "off"

    def plan(self, situation: Situation) -> Plan:
        """The largest fold of the ladder that fits, when one is due."""
        why = self.due(situation)
        if not why:
            return ()
        floor = check_floor(situation)
        window = situation.budget.window
        now = situation.scale.total(situation.view) + situation.tools_tokens
        level = situation.budget.compact_at or room_of(situation) or now
        limit, pressed = int(level * (1 - FREE)), self._pressed(situation)
        last: Folded | None = None
        for rung_number, bounds in ladder(self.bounds, window):
            folded = fold_of(situation, bounds, floor, self._notes(situation, bounds))
            if folded is None or folded.tokens >= now:
                if pressed:
                    continue
                break
            last = folded
            if folded.tokens <= limit:
                return Proposal((folded.fold,), f"{why}; rung {rung_number}")
        return Proposal((last.fold,), f"{why}; nothing smaller is left") if last is not None else ()

    def due(self, situation: Situation) -> str:
        """Why a fold is due now; empty when it is not."""
        if self.always:
            return "no model was at hand for a summary"
        if situation.moment == "asked":
            return "the user asked for it"
        if not situation.may_fold or not situation.view.items:
            return ""
        if situation.moment == "overflow":
            return "the request was too long"
        level = self._level(situation)
        if self.auto and level is not None and situation.used >= level:
            return f"{situation.used:,} tokens are used, and from {level:,} on a fold is due"
        return ""

    def _level(self, situation: Situation) -> int | None:
        """From where on there is pressure: what an undo brought back is hidden again only when nothing could be sent any more."""
        budget = situation.budget
        return room_of(situation) if _held(situation) else budget.compact_at

    def _pressed(self, situation: Situation) -> bool:
        level = situation.budget.compact_at or room_of(situation)
        return situation.moment == "overflow" or (level is not None and situation.used >= level)

    def _notes(self, situation: Situation, bounds: Bounds) -> Put | None:
        notes = situation.view.notes
        if notes is None or self.narrative == "off":
            return None
        content = Text(notes.text)
        scale = situation.scale
        return Put("summary", content, NARRATIVE) if scale.scaled(scale.rule(content)) <= bounds.narrative else None


def _held(situation: Situation) -> bool:
    held = situation.view.held
    return bool(held) and any(item.id in held for item in situation.view.items)


def rung() -> FoldFromLog:
    """What takes the place of a summary when no model is at hand, in every profile."""
    return FoldFromLog("fold without a model", always=True)
