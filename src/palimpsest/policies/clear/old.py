"""Policies that mask tool results by age: at the end of a turn as OpenCode does, or before every call."""

from collections.abc import Iterator
from dataclasses import dataclass

from palimpsest.core.edits import Mask
from palimpsest.core.items import Item, Text, ToolResult, seq_of, text_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import CLEARED, protected_ids


@dataclass(frozen=True, slots=True)
class PruneResults:
    """OpenCode's pruning: masks the results before the newest `protect` tokens of them, once they have more than `least` tokens.

    The last `turns` turns do not count at all; results of `kept_tools` are never masked.
    """

    protect: int = 40_000
    least: int = 20_000
    turns: int = 2
    kept_tools: frozenset[str] = frozenset({"skill"})
    name: str = "prune_results"
    moments: frozenset[Moment] = frozenset({"turn_ends"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask over all candidates."""
        counter, view = situation.tokens, situation.view
        walked_tokens = saved = 0
        ids: list[str] = []
        protected = protected_ids(view)
        for item in self._prunable(view.items):
            if item.id in protected:
                continue
            size = counter.item(item)
            walked_tokens += size
            if walked_tokens > self.protect:
                ids.append(item.id)
                saved += size
        if saved <= self.least:
            return ()
        why = f"{len(ids)} old results with {saved:,} tokens lie before the newest {self.protect:,}"
        return Proposal((Mask(tuple(reversed(ids)), CLEARED),), why)

    def _prunable(self, items: tuple[Item, ...]) -> Iterator[Item]:
        """Yield the results that may be masked, newest first, back to a summary or to the first masked result."""
        calls = answered_calls(items)
        turns, message = 0, ""
        for item in reversed(items):
            content = item.content
            if item.kind == "summary":
                return
            if item.kind == "user" or (isinstance(content, Text) and content.role == "user" and item.kind != "context"):
                turns, message = turns + (_message_id(item) != message), _message_id(item)
            elif isinstance(content, ToolResult) and turns >= self.turns:
                if item.mask is not None:
                    return
                if not content.error and (item.id not in calls or calls[item.id].tool not in self.kept_tools):
                    yield item


def _message_id(item: Item) -> str:
    """Return a key that the parts of one message share: the number of their event; an item of an edit is a message by itself."""
    return item.id if item.id.count(".") > 1 else str(seq_of(item.id))


@dataclass(frozen=True, slots=True)
class MaskOld:
    """Masks results with the name of their tool, but not the newest `keep` and those of at most `shortest` characters."""

    keep: int = 3
    shortest: int = 100
    name: str = "mask_old"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask for each tool with old results."""
        view = situation.view
        calls = answered_calls(view.items)
        results = [item for item in view.items if isinstance(item.content, ToolResult)]
        protected = protected_ids(view)
        old: dict[str, list[str]] = {}
        for item in results[: -self.keep] if self.keep else results:
            if item.mask is None and item.id not in protected and len(text_of(item.content)) > self.shortest:
                old.setdefault(calls[item.id].tool if item.id in calls else "unknown", []).append(item.id)
        edits = tuple(Mask(tuple(ids), f"[Previous: used {tool}]") for tool, ids in old.items())
        return Proposal(edits, f"results older than the newest {self.keep}") if edits else ()
