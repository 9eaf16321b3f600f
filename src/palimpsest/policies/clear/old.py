"""Policies that mask tool results by age: at the end of a turn as OpenCode does, or before every call."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palimpsest.audit.tools.calls import Operation, operation_of
from palimpsest.core.edits import Mask
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Item, ToolResult, seq_of, text_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import CLEARED, protected_ids

_KEPT: Final[frozenset[Operation]] = frozenset({"skill"})


@dataclass(frozen=True, slots=True)
class PruneResults:
    """OpenCode's pruning: masks the results before the newest `protect` tokens of them, once they have more than `least` tokens.

    The last `turns` turns do not count at all; results of tools that do one of `kept_operations` are never masked.
    """

    protect: int = 40_000
    least: int = 20_000
    turns: int = 2
    kept_operations: frozenset[Operation] = _KEPT
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
        why = f"{counted(len(ids), 'old result')} with {saved:,} tokens lie before the newest {self.protect:,}"
        return Proposal((Mask(tuple(reversed(ids)), CLEARED),), why)

    def _prunable(self, items: tuple[Item, ...]) -> Iterator[Item]:
        """Yield the results that may be masked, newest first, back to a summary or to the first masked result."""
        calls = answered_calls(items)
        turns, message = 0, ""
        for item in reversed(items):
            content = item.content
            if item.kind == "summary":
                return
            if _is_user_message(item):
                turns, message = turns + (_message_id(item) != message), _message_id(item)
            elif isinstance(content, ToolResult) and turns >= self.turns:
                if item.mask is not None:
                    return
                if not content.error and (item.id not in calls or operation_of(calls[item.id]) not in self.kept_operations):
                    yield item


def _is_user_message(item: Item) -> bool:
    """Whether an item is a user message in OpenCode: typed, or the request to go on after a compaction, which has no source.

    Other reminders are parts of the message before them.
    """
    return item.kind in ("user", "steering") or (item.kind == "reminder" and not item.source)


def _message_id(item: Item) -> str:
    """Return a key that the parts of one message share: the number of their event; an item of an edit is a message by itself."""
    return item.id if item.id.count(".") > 1 else str(seq_of(item.id))


@dataclass(frozen=True, slots=True)
class MaskOld:
    """Masks results with the name of their tool, except for some of them.

    Not masked are the newest `keep`, those of at most `shortest` characters, and those of tools that do one of `kept_operations`.
    """

    keep: int = 3
    shortest: int = 100
    kept_operations: frozenset[Operation] = _KEPT
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
            call = calls.get(item.id)
            tool = call.tool if call is not None else "unknown"
            # Most are masked already, so that what their tools do is not looked for.
            if item.mask is not None or item.id in protected or len(text_of(item.content)) <= self.shortest:
                continue
            if call is None or operation_of(call) not in self.kept_operations:
                old.setdefault(tool, []).append(item.id)
        edits = tuple(Mask(tuple(ids), f"[Previous: used {tool}]") for tool, ids in old.items())
        return Proposal(edits, f"results older than the newest {self.keep}") if edits else ()
