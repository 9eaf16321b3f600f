"""Policies that remind the model of open tasks and evidence, and warn the user of a filling window or an unread cache."""

from dataclasses import dataclass, field

from palimpsest.audit.fold_texts import EVIDENCE, EVIDENCE_TITLE, EVIDENCE_TOKENS, evidence_text
from palimpsest.audit.tool_calls import tool_operation
from palimpsest.core.budget import percent_until
from palimpsest.core.items import MODEL_KINDS, Insert, Item, Put, Text, seq_of, text_of
from palimpsest.core.plans import Moment, Outcome, Plan, Proposal, Situation
from palimpsest.core.text import within


@dataclass(frozen=True, slots=True)
class Remind:
    """Reminds the model after `rounds` replies without a call of a tool that keeps a todo list, and after every further one.

    if_offered: only while such a tool is declared to the model; a session of a program without it is then never reminded.
    """

    rounds: int = 3
    if_offered: bool = False
    text: str = "<reminder>Update your todos.</reminder>"
    name: str = "remind"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose one reminder before the newest results, unless it is already there."""
        since, first = rounds_without_todo(situation), first_result(situation.view.items)
        if first is None or since < self.rounds or (self.if_offered and not any(map(keeps_todos, situation.offered))):
            return ()
        item, before = first
        if before is not None and before.kind == "reminder" and text_of(before.content) == self.text:
            return ()
        return Proposal((Insert((Put("reminder", Text(self.text)),), item.id),), f"{since} rounds without an update of the todo list")


def keeps_todos(tool: str) -> bool:
    """Whether a tool keeps a todo list."""
    return tool_operation(tool) == "todo"


def rounds_without_todo(situation: Situation) -> int:
    """Return the model replies since the last call of a tool that keeps a todo list; all replies if there was none."""
    health = situation.health
    return health.calls - max((call for tool, call in health.called.items() if keeps_todos(tool)), default=0)


def first_result(items: tuple[Item, ...]) -> tuple[Item, Item | None] | None:
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


@dataclass(frozen=True, slots=True)
class AddEvidence:
    """An option for the imitating profiles: after a fold by a model, adds evidence from the log behind the summary.

    It has files, commands, tests, tasks and older messages in at most `tokens` tokens. Does nothing if the view shows evidence already.
    """

    tokens: int = EVIDENCE_TOKENS
    name: str = "prove"
    moments: frozenset[Moment] = field(default=frozenset({"folded"}))
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose one reminder behind the newest summary."""
        items = situation.view.items
        if any(item.source == EVIDENCE and item.mask is None for item in items):
            return ()
        place = max((place for place, item in enumerate(items) if item.kind == "summary"), default=None)
        shown = frozenset(item.id for item in items if item.kind in ("user", "steering"))
        evidence = evidence_text(situation.listed_evidence, shown, min(self.tokens, situation.budget.window // 50))
        if place is None or not evidence:
            return ()
        before = items[place + 1].id if place + 1 < len(items) else ""
        reminder = Put("reminder", Text(within("system-reminder", f"{EVIDENCE_TITLE}\n{evidence}")), EVIDENCE)
        return Proposal((Insert((reminder,), before),), "what the log proves, beside the summary")


SOURCE = "todo reminder"
TEXT = (
    "<system-reminder>\nThe todo list has open steps and was not updated for a while. If steps are done or have changed, update it; "
    "else go on.\n</system-reminder>"
)


@dataclass(frozen=True, slots=True)
class RemindOpen:
    """Reminds the model of open items in its todo list, `rounds` replies after the last update and after the last visible reminder.

    Only in a session of our own agent: another program that sends its requests through us has reminders of its own.
    """

    rounds: int = 10
    name: str = "remind"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """Propose one reminder before the newest results."""
        since, items = rounds_without_todo(situation), situation.view.items
        first = first_result(items)
        evidence = situation.evidence
        # Tasks of a graph, which have numbers, are no part of the list.
        is_open = situation.states_work and len(evidence.tasks) > len(evidence.numbered) and any(map(keeps_todos, situation.offered))
        if first is None or not is_open or min(since, _replies_since_reminder(items, since)) < self.rounds:
            return ()
        return Proposal(
            (Insert((Put("reminder", Text(TEXT), SOURCE),), first[0].id),), f"{since} replies without an update of the todo list"
        )


def _replies_since_reminder(items: tuple[Item, ...], otherwise: int) -> int:
    """Return the replies behind the last visible reminder; `otherwise` if there is none."""
    replies: set[int] = set()
    for item in reversed(items):
        if item.source == SOURCE and item.mask is None:
            return len(replies)
        if item.kind in MODEL_KINDS:
            replies.add(seq_of(item.id))
    return otherwise
