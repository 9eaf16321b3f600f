"""Clears old tool results at the end of a turn, as OpenCode does: the last two turns and the newest tokens are safe."""

from collections.abc import Iterator
from dataclasses import dataclass

from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Text, ToolResult, seq_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import CLEARED, spared


@dataclass(frozen=True, slots=True)
class PruneResults:
    """Masks the results before the newest `protect` tokens, once they have more than `least` together."""

    protect: int = 40_000
    least: int = 20_000
    turns: int = 2
    spared: frozenset[str] = frozenset({"skill"})
    name: str = "prune_results"
    moments: frozenset[Moment] = frozenset({"turn_ends"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One mask over all candidates, or nothing."""
        counter, view = situation.tokens, situation.view
        passed = saved = 0
        ids: list[str] = []
        safe = spared(view)
        for item in self._walk(view.items):
            if item.id in safe:
                continue
            size = counter.item(item)
            passed += size
            if passed > self.protect:
                ids.append(item.id)
                saved += size
        if saved <= self.least:
            return ()
        why = f"{len(ids)} old results with {saved:,} tokens lie before the newest {self.protect:,}"
        return Proposal((Mask(tuple(reversed(ids)), CLEARED),), why)

    def _walk(self, items: tuple[Item, ...]) -> Iterator[Item]:
        """The results that count, newest first, up to a summary or the first that is masked already."""
        calls = answered_calls(items)
        turns, message = 0, ""
        for item in reversed(items):
            content = item.content
            if item.kind == "summary":
                return
            if item.kind == "user" or (isinstance(content, Text) and content.role == "user" and item.kind != "context"):
                turns, message = turns + (_message(item) != message), _message(item)
            elif isinstance(content, ToolResult) and turns >= self.turns:
                if item.mask is not None:
                    return
                if not content.error and (item.id not in calls or calls[item.id].tool not in self.spared):
                    yield item


def _message(item: Item) -> str:
    """What makes several parts one message: the event that brought them; what an edit put there stands alone."""
    return item.id if item.id.count(".") > 1 else str(seq_of(item.id))
