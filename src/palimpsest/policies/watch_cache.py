"""Tells the user when the cache gave less than it should and no edit explains it."""

from dataclasses import dataclass

from palimpsest.core.policy import Outcome, Proposal
from palimpsest.core.situation import Moment, Situation

_ALWAYS: frozenset[Moment] = frozenset({"after_call"})


@dataclass(frozen=True, slots=True)
class WatchCache:
    """The cache-break monitor as a notice; it edits nothing."""

    name: str = "watch_cache"
    moments: frozenset[Moment] = _ALWAYS
    shrinks: bool = False

    def plan(self, situation: Situation) -> Outcome:
        """One line about an unexpected drop of cache reads."""
        watch = situation.cache.watch
        if not watch.dropped:
            return ()
        read = watch.read or 0
        line = f"the cache gave {read:,} tokens, {watch.dropped:,} fewer than at the call before, and no edit explains it"
        return Proposal(notices=(line,))
