"""Before every call all tool results but the newest few are replaced by the name of their tool."""

from dataclasses import dataclass

from palimpsest.core.edits import Mask
from palimpsest.core.items import ToolResult, text_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.clear.results import spared


@dataclass(frozen=True, slots=True)
class MaskOld:
    """Keeps the newest `keep` results, and all of at most `shortest` characters."""

    keep: int = 3
    shortest: int = 100
    name: str = "mask_old"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """One mask for each tool whose results are old."""
        view = situation.view
        calls = answered_calls(view.items)
        results = [item for item in view.items if isinstance(item.content, ToolResult)]
        stay = spared(view)
        old: dict[str, list[str]] = {}
        for item in results[: -self.keep] if self.keep else results:
            if item.mask is None and item.id not in stay and len(text_of(item.content)) > self.shortest:
                old.setdefault(calls[item.id].tool if item.id in calls else "unknown", []).append(item.id)
        edits = tuple(Mask(tuple(ids), f"[Previous: used {tool}]") for tool, ids in old.items())
        return Proposal(edits, f"results older than the newest {self.keep}") if edits else ()
