"""Reminders for the model and warnings for the user: open tasks, a filling window, a cache that is not read."""

from dataclasses import dataclass, field

from palimpsest.audit.floor import token_limit
from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.policy import Outcome, Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.budget import percent_until


def is_held(situation: Situation) -> bool:
    """Whether something shows that an undo brought back in this epoch."""
    held = situation.view.held
    return bool(held) and any(item.id in held for item in situation.view.items)


def level_of(situation: Situation, usual: int | None) -> int | None:
    """The `usual` level, but what the user brought back by an undo is hidden again only when nothing could be sent any more."""
    if usual is None or not is_held(situation):
        return usual
    return max(usual, token_limit(situation) or usual)


def is_due(situation: Situation) -> bool:
    """Whether the level of the budget is reached, in a turn that may still have a fold."""
    level = level_of(situation, situation.budget.compact_at)
    return level is not None and situation.may_fold and situation.used >= level


@dataclass(frozen=True, slots=True)
class Remind:
    """Speaks up after `rounds` model replies without a call of `tool`, and again on every further one."""

    tool: str = "todo"
    rounds: int = 3
    text: str = "<reminder>Update your todos.</reminder>"
    name: str = "remind"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """One reminder before the newest results, unless it stands there."""
        since = situation.health.rounds_since(self.tool)
        first = _first_result(situation.view.items)
        if first is None or since < self.rounds:
            return ()
        item, before = first
        if before is not None and before.kind == "reminder" and text_of(before.content) == self.text:
            return ()
        return Proposal((Insert((Put("reminder", Text(self.text)),), item.id),), f"{since} rounds without {self.tool}")


def _first_result(items: tuple[Item, ...]) -> tuple[Item, Item | None] | None:
    """The first result of the last round and what stands before it; nothing when something else came last."""
    start = len(items)
    while start and items[start - 1].kind == "result":
        start -= 1
    if start == len(items):
        return None
    return items[start], items[start - 1] if start else None


@dataclass(frozen=True, slots=True)
class Warn:
    """From `warn_at` on one line for the user; it edits nothing."""

    name: str = "warn"
    moments: frozenset[Moment] = field(default=frozenset({"after_call"}))
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """The share that is still free, of the level at which compaction comes, or of what can be sent when it does not come by itself."""
        budget = situation.budget
        if budget.warn_at is None or situation.used < budget.warn_at:
            return ()
        if budget.compact_at is not None:
            return Proposal(notices=(f"Context left until auto-compact: {percent_until(situation.used, budget.compact_at)}%",))
        return Proposal(notices=(f"Context left: {percent_until(situation.used, budget.block_at or budget.window)}%; compact to go on",))


_ALWAYS: frozenset[Moment] = frozenset({"after_call"})


@dataclass(frozen=True, slots=True)
class WatchCache:
    """The cache-break monitor as a notice; it edits nothing."""

    name: str = "watch_cache"
    moments: frozenset[Moment] = _ALWAYS
    shrinks: bool = False

    def plan(self, situation: Situation) -> Outcome:
        """One line about an unexpected drop of cache reads."""
        watch = situation.cache.reads
        if not watch.dropped:
            return ()
        read = watch.read or 0
        line = f"the cache gave {read:,} tokens, {watch.dropped:,} fewer than at the call before, and no edit explains it"
        return Proposal(notices=(line,))
