"""The profile `lossless`: saves money by the provider's cache and by repeats alone, and hides nothing that does not show elsewhere."""

from collections.abc import Mapping

from msgspec.structs import replace

from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.clear.repeats import HideRepeats
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.policies.notices import Warn, WatchCache
from palimpsest.profiles.profile import Profile
from palimpsest.profiles.settings import cache_settings
from palimpsest.sources.variants.palimpsest import our_skills, palimpsest_sources


def lossless(environment: Mapping[str, str]) -> Profile:
    """Return the profile with its settings from the environment; raise `BadInput` for a setting that cannot be read.

    It never folds by itself: a session ends where its window does. `PAL_CACHE_TTL` is the lifetime of cache entries: auto, 5m or 1h.
    `PAL_KEEP_ALIVE=on` keeps the cache alive in pauses. `PAL_INSTRUCTIONS` is a list of further instruction files, patterns and URLs.
    """
    cache, jobs = cache_settings(environment)
    return Profile(
        "lossless",
        (HideRepeats(), Warn(), WatchCache()),
        lambda card: replace(palimpsest_budget(card.window, card.reply, input_limit=card.input_limit), compact_at=None, buffer=0),
        fallback=model_free_fallback(),
        strictness="full",
        overflow="stop",
        sources=palimpsest_sources(environment),
        mentioned_skills=our_skills,
        cache=cache,
        jobs=jobs,
    )
