"""Masks all but the newest tool results when the user was away so long that the provider's cache is cold anyway."""

from dataclasses import dataclass, field

from palimpsest.core.edits import Mask
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.maskable import CLEARED, is_placeholder, maskable, spared

MINUTE = 60_000
IDLE_MINUTES = 60
KEEP = 5


def is_cold(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Whether the model last replied so long ago; not if it never did."""
    replied_at = situation.health.replied_at
    return replied_at is not None and situation.now - replied_at >= minutes * MINUTE


def idle_acted(situation: Situation, minutes: int = IDLE_MINUTES) -> bool:
    """Whether the view was edited since the last call because the cache is cold: then the other kinds of mask have to wait."""
    return situation.cache.edited and is_cold(situation, minutes)


@dataclass(frozen=True, slots=True)
class ClearIdle:
    """After `minutes` without a reply: everything but the newest `keep` maskable results; only in the main conversation."""

    minutes: int = IDLE_MINUTES
    keep: int = KEEP
    name: str = "clear_idle"
    moments: frozenset[Moment] = field(default=frozenset({"before_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One mask; nothing is saved to a file, for the log has it."""
        if situation.child or not is_cold(situation, self.minutes):
            return ()
        results = maskable(situation.view)
        old = results[: max(0, len(results) - self.keep)]
        safe = spared(situation.view)
        marked = [item for item in old if item.mask is None and item.id not in safe and not is_placeholder(item)]
        counter = situation.tokens
        saved = sum(counter.item(item) for item in marked) - len(marked) * counter.content(ToolResult("", (Text(CLEARED),)))
        if saved <= 0:
            return ()
        why = f"auto: no reply for {self.minutes} minutes, so the cache is cold and {len(marked)} old results go for free"
        return Proposal((Mask(tuple(item.id for item in marked), CLEARED),), why)
