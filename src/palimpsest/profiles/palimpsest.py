"""Our own profile, the default: clear what is dead, fold from the log, check everything."""

from collections.abc import Mapping

from palimpsest.core.budget_rules import palimpsest_budget
from palimpsest.policies.fold import FoldFromLog, rung
from palimpsest.profiles.profile import Profile


def palimpsest(environment: Mapping[str, str]) -> Profile:
    """Ours, with its settings from the environment."""
    return Profile(
        "palimpsest",
        (FoldFromLog(),),
        lambda card: palimpsest_budget(card.window, card.reply, input_limit=card.input_limit),
        rung=rung(),
        strictness="full",
    )
