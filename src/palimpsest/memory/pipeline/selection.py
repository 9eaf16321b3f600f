"""Which summaries of sessions a consolidation reads, and which are deleted: by use first, then by age."""

from collections.abc import Iterable
from typing import Final

from palimpsest.core.items import Value

MOST_PRUNED: Final = 200


class RolloutUse(Value, frozen=True):
    """A summary and how it is used. Times are milliseconds since 1970; 0 is never.

    `source_at` is the last event of its session, `made_at` when it was made. `is_selected` is true if the last consolidation read it as
    it is now.
    """

    session: str
    stem: str
    source_at: int
    made_at: int
    uses: int = 0
    last_used: int = 0
    is_selected: bool = False

    @property
    def fresh_at(self) -> int:
        """When it was used or made last: an old session that was imported today is new here."""
        return max(self.last_used, self.made_at)


def selected(rollouts: Iterable[RolloutUse], now: int, unused_ms: int, most: int) -> tuple[RolloutUse, ...]:
    """Return the summaries that a consolidation reads, in the order of their sessions.

    Those that were neither used nor made within `unused_ms` milliseconds are left out. Of more than `most` those with the most uses are
    kept, then those that were used last, then those of the newest sessions.
    """
    fresh = [each for each in rollouts if now - each.fresh_at <= unused_ms]
    ranked = sorted(fresh, key=lambda each: (each.uses, each.last_used or each.source_at, each.source_at, each.session), reverse=True)
    return tuple(sorted(ranked[:most], key=lambda each: each.session))


def pruned(rollouts: Iterable[RolloutUse], now: int, unused_ms: int, most: int = MOST_PRUNED) -> tuple[RolloutUse, ...]:
    """Return the summaries to delete: unused for longer than `unused_ms` milliseconds and not selected, stalest first, at most 200."""
    stale = [each for each in rollouts if not each.is_selected and now - each.fresh_at > unused_ms]
    return tuple(sorted(stale, key=lambda each: (each.fresh_at, each.session))[:most])
