"""What goes with a summary whatever the model wrote: files, commands, tests, tasks and older messages, as the log proves them."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from palimpsest.audit.block import evidence_block, older_messages_block
from palimpsest.core.bound import middle_cut
from palimpsest.core.edits import Into, Keep
from palimpsest.core.situation import Situation
from palimpsest.policies.prompt import prompt

PROOF_TOKENS: Final = 4_000
TITLE: Final = "Beside the summary, from the log and not from a model:"
_OLDER: Final = "Older messages of the user, by id, time and opening words:"


def summary_text(situation: Situation, summary: str, messages: Iterable[Into] = (), tokens: int = PROOF_TOKENS) -> str:
    """What stands in place of the work: the words that introduce it, the summary, and what the log proves.

    `messages` are those of the user that stay; `tokens` is the room of the proof, which a small window makes smaller.
    """
    whole = frozenset(piece.id for message in messages for piece in message if isinstance(piece, Keep))
    proof = proof_of(situation, whole, min(tokens, situation.budget.window // 50))
    words = f"{prompt('handoff_prefix')}\n{summary}"
    return f"{words}\n\n{TITLE}\n{proof}" if proof else words


def proof_of(situation: Situation, whole: AbstractSet[str], tokens: int) -> str:
    """What the log proves, in so many tokens and half as many for older messages; `whole` are the items of the user that show."""
    if not tokens:
        return ""
    evidence = situation.evidence
    older = older_messages_block(evidence.said, whole)
    parts = [evidence_block(evidence, tokens)]
    if older:
        parts.append(f"{_OLDER}\n{middle_cut(older, tokens // 2).text}")
    return "\n".join(part for part in parts if part)
