"""Tells the user how much room is left before the conversation is compacted."""

from dataclasses import dataclass, field

from palimpsest.core.budget import percent_until
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation


@dataclass(frozen=True, slots=True)
class Warn:
    """From `warn_at` on one line for the user; it edits nothing."""

    name: str = "warn"
    moments: frozenset[Moment] = field(default=frozenset({"after_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """The share that is still free, of the level at which compaction comes, or of what can be sent when it does not come by itself."""
        budget = situation.budget
        if budget.warn_at is None or situation.used < budget.warn_at:
            return ()
        if budget.compact_at is not None:
            return Proposal(notices=(f"Context left until auto-compact: {percent_until(situation.used, budget.compact_at)}%",))
        return Proposal(notices=(f"Context left: {percent_until(situation.used, budget.block_at or budget.window)}%; compact to go on",))
