"""Our reminder of the todo list: only while it has open items, and seldom."""

from dataclasses import dataclass

from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import MODEL_KINDS, Item, Text, seq_of
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.notices import first_result, keeps_todos, rounds_without_todo

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
