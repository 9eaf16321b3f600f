"""An option for the imitating profiles: after a fold by a model, adds evidence from the log behind the summary."""

from dataclasses import dataclass, field

from palimpsest.audit.fold_texts import EVIDENCE
from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Text
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.handoff.handoff import EVIDENCE_TITLE, EVIDENCE_TOKENS, evidence_text


@dataclass(frozen=True, slots=True)
class AddEvidence:
    """Adds files, commands, tests, tasks and older messages in at most `tokens` tokens; does nothing if the view shows evidence already."""

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
        evidence = evidence_text(situation, shown, min(self.tokens, situation.budget.window // 50))
        if place is None or not evidence:
            return ()
        before = items[place + 1].id if place + 1 < len(items) else ""
        reminder = Put("reminder", Text(f"<system-reminder>\n{EVIDENCE_TITLE}\n{evidence}\n</system-reminder>"), EVIDENCE)
        return Proposal((Insert((reminder,), before),), "what the log proves, beside the summary")
