"""Frees tokens when every handoff failed and the next request would be too long: masks old results, else folds without a model."""

from dataclasses import dataclass

from palimpsest.audit.dead_results import clearing_masks
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Mask
from palimpsest.core.items import ToolResult
from palimpsest.core.pairs import rounds
from palimpsest.core.policy import Plan, Policy, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.handoff.layout import just_edited
from palimpsest.policies.handoff.trigger import effective_window


@dataclass(frozen=True, slots=True)
class LastResort:
    """Runs when the view exceeds the effective window; `fallback` is the policy that folds without a model."""

    fallback: Policy | None = None
    name: str = "last_resort"
    moments: frozenset[Moment] = frozenset({"turn_starts", "before_call", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose masks if they free enough tokens, else the fold of the fallback."""
        room = effective_window(situation)
        if situation.used < room and (situation.moment != "overflow" or just_edited(situation.view)):
            return ()
        masks, saved = _masks(situation)
        if masks and (situation.used - saved < room or self.fallback is None):
            return Proposal(masks, f"{situation.used:,} tokens are used, {room:,} can be sent, and no summary could be made")
        return self.fallback.plan(situation) if self.fallback is not None and situation.may_fold else ()


def _masks(situation: Situation) -> tuple[tuple[Mask, ...], int]:
    """Return masks for the results before the last round, and the tokens that they save."""
    items, pins = situation.view.items, pinned(situation.view)
    starts = rounds(items)
    older = enumerate(items[: starts[-1]] if starts else ())
    places = [place for place, item in older if isinstance(item.content, ToolResult) and item.mask is None and item.id not in pins]
    worth = [(mask, gain) for mask, gain in clearing_masks(situation.view, places, situation.tokens) if gain > 0]
    return tuple(mask for mask, _ in worth), sum(gain for _, gain in worth)
