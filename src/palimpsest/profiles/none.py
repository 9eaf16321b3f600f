"""The profile `none`: no policies and so no edits, for comparisons and for reading sessions."""

from collections.abc import Mapping

from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.profiles.profile import Profile
from palimpsest.sources.source import SourceSet


def none(environment: Mapping[str, str]) -> Profile:
    """Return a profile without policies, with the budget of `palimpsest` so that sizes can be compared."""
    return Profile(
        "none",
        (),
        lambda card: palimpsest_budget(card.window, card.reply, input_limit=card.input_limit),
        fallback=model_free_fallback(),
        overflow="stop",
        sources=SourceSet(),
    )
