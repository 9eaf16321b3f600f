"""Reminds the model of a tool that it has not used for some rounds, in front of the results of the last one."""

from dataclasses import dataclass

from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Item, Text, text_of
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation


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
