"""Makes room when no hand-over came about and the next request could not be sent: old results go first, then a fold without a model."""

from dataclasses import dataclass

from palimpsest.audit.dead_results import clearing_masks
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Mask
from palimpsest.core.items import ToolResult
from palimpsest.core.pairs import rounds
from palimpsest.core.policy import Plan, Policy, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.handoff.layout import just_edited
from palimpsest.policies.handoff.when import effective


@dataclass(frozen=True, slots=True)
class LastResort:
    """Rests while the view is within the effective window; `rung` is the fold that needs no model."""

    rung: Policy | None = None
    name: str = "last_resort"
    moments: frozenset[Moment] = frozenset({"turn_starts", "before_call", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Masks if they are enough, else the fold."""
        room = effective(situation)
        if situation.used < room and (situation.moment != "overflow" or just_edited(situation.view)):
            return ()
        masks, saved = _masks(situation)
        if masks and (situation.used - saved < room or self.rung is None):
            return Proposal(masks, f"{situation.used:,} tokens are used, {room:,} can be sent, and no summary could be made")
        return self.rung.plan(situation) if self.rung is not None and situation.may_fold else ()


def _masks(situation: Situation) -> tuple[tuple[Mask, ...], int]:
    """A line in place of each result before the last round, and the tokens that this saves."""
    items, pins = situation.view.items, pinned(situation.view)
    starts = rounds(items)
    older = enumerate(items[: starts[-1]] if starts else ())
    places = [place for place, item in older if isinstance(item.content, ToolResult) and item.mask is None and item.id not in pins]
    worth = [(mask, gain) for mask, gain in clearing_masks(situation.view, places, situation.tokens) if gain > 0]
    return tuple(mask for mask, _ in worth), sum(gain for _, gain in worth)
