"""After a fold by a model: puts what the log proves behind its summary, for whoever wants more than the original has."""

from dataclasses import dataclass, field

from palimpsest.audit.fold_texts import EVIDENCE
from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Text
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.handoff.handoff import PROOF_TOKENS, TITLE, proof_of


@dataclass(frozen=True, slots=True)
class Prove:
    """Files, commands, tests, tasks and older messages in at most `tokens`; rests where a fold from the log has told them already."""

    tokens: int = PROOF_TOKENS
    name: str = "prove"
    moments: frozenset[Moment] = field(default=frozenset({"folded"}))
    shrinks: bool = False

    def plan(self, situation: Situation) -> Plan:
        """One reminder right behind the newest summary."""
        items = situation.view.items
        if any(item.source == EVIDENCE and item.mask is None for item in items):
            return ()
        place = max((place for place, item in enumerate(items) if item.kind == "summary"), default=None)
        shown = frozenset(item.id for item in items if item.kind in ("user", "steering"))
        proof = proof_of(situation, shown, min(self.tokens, situation.budget.window // 50))
        if place is None or not proof:
            return ()
        before = items[place + 1].id if place + 1 < len(items) else ""
        reminder = Put("reminder", Text(f"<system-reminder>\n{TITLE}\n{proof}\n</system-reminder>"), EVIDENCE)
        return Proposal((Insert((reminder,), before),), "what the log proves, beside the summary")
