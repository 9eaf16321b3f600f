"""Lets the provider drop old tool results from its cached prefix, while the messages stay as they are byte for byte."""

from dataclasses import dataclass, field

from palimpsest.core.edits import Mask
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import IDLE_MINUTES, KEEP, LEAST, TARGET, choose_when_full, idle_acted


@dataclass(frozen=True, slots=True)
class ClearCached:
    """Where the card has cache edits and no mask was made for idleness: what the token kind would mask; only in the main conversation."""

    target: int = TARGET
    keep: int = KEEP
    least: int = LEAST
    idle_minutes: int = IDLE_MINUTES
    name: str = "clear_cached"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One mask in the cached form; the wire repeats it in every request."""
        if not situation.card.cache_edits or situation.child or idle_acted(situation, self.idle_minutes):
            return ()
        chosen = choose_when_full(situation, self.target, self.keep, self.least)
        if not chosen.items:
            return ()
        why = f"auto: the provider drops {len(chosen.items)} old results of {chosen.saved:,} tokens from its cache"
        return Proposal((Mask(tuple(item.id for item in chosen.items), form="cached"),), why)
