"""Anthropic's context editing `clear_tool_uses_20250919`: from a trigger on, the provider clears all tool results but the newest."""

from dataclasses import dataclass
from typing import Final

from palimpsest.core.edits import Mask
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Item, ToolCall
from palimpsest.core.pairs import pairs_of
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import placeholder_content
from palimpsest.policies.clear.results import CLEARED, is_placeholder, protected_ids

TRIGGER: Final = 100_000
KEPT_USES: Final = 3


@dataclass(frozen=True, slots=True)
class ClearToolUses:
    """Masks the results of all tool uses but the newest `keep`, once the input has more than `trigger` tokens.

    A client sends its whole history with every request, and the provider clears it each time: the trigger is compared with the size
    before clearing, so that after it was reached once, each call clears what is no longer among the newest. With `sticky`, the client
    keeps what was cleared, and the trigger is compared with what is left.

    clear_at_least: tokens that clearing must free, counted over all that is cleared; with `sticky`, over what is cleared now.
    exclude_tools: names of tools whose results are never cleared.
    clear_tool_inputs: the arguments of the calls are cleared too.
    """

    trigger: int = TRIGGER
    keep: int = KEPT_USES
    clear_at_least: int = 0
    exclude_tools: frozenset[str] = frozenset()
    clear_tool_inputs: bool = False
    sticky: bool = False
    name: str = "clear_tool_uses"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose one mask over all that is to be cleared and is not yet."""
        pairs = list(pairs_of(situation.view.items))
        # A history only grows until it is folded: once its trigger and its least gain were reached, they stay reached.
        reached = not self.sticky and any(result.mask is not None and result.mask.text == CLEARED for _, result in pairs)
        if not reached and situation.used <= self.trigger:
            return ()
        protected = protected_ids(situation.view)
        chosen = [item for item in self._old(pairs) if item.mask is None and item.id not in protected and not is_placeholder(item)]
        freed = sum(_freed(situation, item) for item in chosen)
        if not chosen or not (reached or freed >= self.clear_at_least):
            return ()
        cleared = counted(len(chosen), "item")
        why = f"auto: the input exceeds {self.trigger:,} tokens, so {cleared} before the newest {self.keep} tool uses are cleared"
        return Proposal((Mask(tuple(item.id for item in chosen), CLEARED),), why)

    def _old(self, pairs: list[tuple[Item, Item]]) -> list[Item]:
        """Return the items of the tool uses that may be cleared, oldest first."""
        found: list[Item] = []
        for call, result in pairs[: max(0, len(pairs) - self.keep)]:
            if isinstance(call.content, ToolCall) and call.content.tool not in self.exclude_tools:
                found += (call, result) if self.clear_tool_inputs else (result,)
        return found


def _freed(situation: Situation, item: Item) -> int:
    """Return the tokens that the placeholder of an item saves."""
    counter = situation.tokens
    return counter.item(item) - counter.content(placeholder_content(item, CLEARED))
