"""A profile of one's own: it only masks, oldest results first, and passes the contract that is shipped with the library."""

from dataclasses import dataclass

from palimpsest.audit.gate import pinned
from palimpsest.core.items import Mask
from palimpsest.core.plans import Moment, Plan, Proposal, Situation
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile
from palimpsest.testing.laws import check
from palimpsest.testing.profiles import ProfileContract


@dataclass(frozen=True, slots=True)
class MaskOldest:
    """From three quarters of the window on, masks all results but the newest ones."""

    keep: int = 5
    name: str = "mask_oldest"
    moments: frozenset[Moment] = frozenset({"before_call", "overflow", "asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask for all of them, but not for what the user pinned or brought back."""
        view = situation.view
        results = [item for item in view.items if item.kind == "result" and item.mask is None]
        spared = pinned(view) | view.held
        ids = tuple(item.id for item in results[: -self.keep] if item.id not in spared and situation.tokens.item(item) > 50)
        full = situation.used * 4 >= situation.budget.window * 3
        return Proposal((Mask(ids, "[old result]"),), f"{len(ids)} old results") if ids and full else ()


def mask_only(settings: object) -> Profile:
    return Profile("mask-only", (MaskOldest(),), lambda card: palimpsest_budget(card.window, card.reply))


class TestMaskOnly(ProfileContract):
    """In a test file, pytest finds this class and runs each law."""

    def make(self) -> Profile:
        """Return the profile."""
        return mask_only({})


if __name__ == "__main__":
    print(f"mask-only keeps {len(check(TestMaskOnly()))} laws")
