"""Reminders for the model and warnings for the user: open tasks, a filling window, a cache that is not read."""

from dataclasses import dataclass, field

from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.policy import Outcome, Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.budget import percent_until


@dataclass(frozen=True, slots=True)
class Remind:
    """Reminds the model after `rounds` replies without a call of `tool`, and after every further one.

    if_offered: only while the tool is declared to the model; a session of a program without it is then never reminded.
    """

    tool: str = "todo"
    rounds: int = 3
    if_offered: bool = False
    text: str = "<reminder>Update your todos.</reminder>"
    name: str = "remind"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose one reminder before the newest results, unless it is already there."""
        since = situation.health.rounds_since(self.tool)
        first = _first_result(situation.view.items)
        if first is None or since < self.rounds or (self.if_offered and self.tool not in situation.offered):
            return ()
        item, before = first
        if before is not None and before.kind == "reminder" and text_of(before.content) == self.text:
            return ()
        return Proposal((Insert((Put("reminder", Text(self.text)),), item.id),), f"{since} rounds without {self.tool}")


def _first_result(items: tuple[Item, ...]) -> tuple[Item, Item | None] | None:
    """Return the first result of the last round and the item before it; `None` if the view does not end with results."""
    start = len(items)
    while start and items[start - 1].kind == "result":
        start -= 1
    if start == len(items):
        return None
    return items[start], items[start - 1] if start else None


@dataclass(frozen=True, slots=True)
class Warn:
    """Warns the user from `warn_at` on; it edits nothing."""

    name: str = "warn"
    moments: frozenset[Moment] = field(default=frozenset({"after_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Return a notice with the free share in percent: until the next compaction, or of the window without automatic compaction."""
        budget = situation.budget
        if budget.warn_at is None or situation.used < budget.warn_at:
            return ()
        if budget.compact_at is not None:
            return Proposal(notices=(f"Context left until auto-compact: {percent_until(situation.used, budget.compact_at)}%",))
        return Proposal(notices=(f"Context left: {percent_until(situation.used, budget.block_at or budget.window)}%; compact to continue",))


@dataclass(frozen=True, slots=True)
class WatchCache:
    """Warns the user when cache reads drop unexpectedly; it edits nothing."""

    name: str = "watch_cache"
    moments: frozenset[Moment] = frozenset({"after_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Outcome:
        """Return a notice about an unexpected drop of cache reads."""
        watch = situation.cache.reads
        if not watch.dropped:
            return ()
        read = watch.read or 0
        line = f"{read:,} tokens were read from the cache, {watch.dropped:,} fewer than in the previous call, and no edit explains it"
        return Proposal(notices=(line,))
