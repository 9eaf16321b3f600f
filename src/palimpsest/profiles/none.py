"""The profile without policies: nothing is edited, for comparing and for looking."""

from collections.abc import Mapping

from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.fold.fold import rung
from palimpsest.profiles.profile import Profile


def none(environment: Mapping[str, str]) -> Profile:
    """No policies; the numbers are ours, so that sizes can be compared."""
    return Profile(
        "none",
        (),
        lambda card: palimpsest_budget(card.window, card.reply, input_limit=card.input_limit),
        rung=rung(),
        overflow="stop",
    )
