"""Evidence from the log beside a summary that a model wrote: its text, and a policy that adds it after a fold."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from palimpsest.audit.fold_texts import EVIDENCE, evidence_block, older_messages_block
from palimpsest.core.edits import Insert, Put
from palimpsest.core.items import Text
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.truncate import truncate_middle

EVIDENCE_TOKENS: Final = 4_000
EVIDENCE_TITLE: Final = "Beside the summary, from the log and not from a model:"
_OLDER: Final = "Older messages of the user, by id, time and opening words:"


def evidence_text(situation: Situation, shown_ids: AbstractSet[str], tokens: int) -> str:
    """Return the evidence in at most `tokens` tokens, and a list of the user messages not in `shown_ids` in half as many."""
    if not tokens:
        return ""
    evidence = situation.evidence
    older = older_messages_block(evidence.user_messages, shown_ids)
    parts = [evidence_block(evidence, tokens)]
    if older:
        parts.append(f"{_OLDER}\n{truncate_middle(older, tokens // 2).text}")
    return "\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class AddEvidence:
    """An option for the imitating profiles: after a fold by a model, adds evidence from the log behind the summary.

    It has files, commands, tests, tasks and older messages in at most `tokens` tokens. Does nothing if the view shows evidence already.
    """

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
