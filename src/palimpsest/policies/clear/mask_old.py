"""Masks all tool results but the newest few with the name of their tool, before every call."""

from dataclasses import dataclass

from palimpsest.core.edits import Mask
from palimpsest.core.items import ToolResult, text_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import protected_ids


@dataclass(frozen=True, slots=True)
class MaskOld:
    """Keeps the newest `keep` results, all results of at most `shortest` characters, and those of `kept_tools`."""

    keep: int = 3
    shortest: int = 100
    kept_tools: frozenset[str] = frozenset({"skill"})
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
            tool = calls[item.id].tool if item.id in calls else "unknown"
            if (
                item.mask is None
                and item.id not in protected
                and tool not in self.kept_tools
                and len(text_of(item.content)) > self.shortest
            ):
                old.setdefault(tool, []).append(item.id)
        edits = tuple(Mask(tuple(ids), f"[Previous: used {tool}]") for tool, ids in old.items())
        return Proposal(edits, f"results older than the newest {self.keep}") if edits else ()
