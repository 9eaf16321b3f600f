"""Masks results that later ones superseded: reads of a file that was read again or edited, and acknowledgements of edits."""

from dataclasses import dataclass

from palimpsest.audit.dead_results import dead_results, masks_of, with_masks
from palimpsest.audit.pricing.prefixes import warm_prefixes
from palimpsest.core.policy import Outcome, Proposal
from palimpsest.core.situation import Moment, Situation, Use

_ALWAYS: frozenset[Moment] = frozenset({"before_call"})


@dataclass(frozen=True, slots=True)
class Supersede:
    """Masks superseded dead results once that frees `gain` tokens, or at once when nothing is cached."""

    name: str = "supersede"
    moments: frozenset[Moment] = _ALWAYS
    shrinks: bool = True
    gain: int = 2_000

    def plan(self, situation: Situation) -> Outcome:
        """Propose one edit that masks them; nothing if the view was edited since the last call."""
        if situation.cache.edited:
            return ()
        dead = with_masks(dead_results(situation, which=_is_superseded), situation)
        gain = sum(result.gain for result in dead)
        if not dead or (gain < self.gain and warm_prefixes(situation).longest):
            return ()
        return Proposal(masks_of(dead), f"{len(dead)} superseded results, {gain} tokens")


def _is_superseded(use: Use) -> bool:
    return use.died is not None and (use.kind == "acknowledgement" or use.superseded is not None)
