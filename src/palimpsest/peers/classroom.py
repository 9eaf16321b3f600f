"""The profile `classroom`: the smallest design that works, meant for reading and teaching."""

from collections.abc import Mapping
from typing import Literal

from palimpsest.core.budget import Budget
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import View
from palimpsest.peers.clearing import MaskOld
from palimpsest.peers.summaries import Compress
from palimpsest.policies.fold import model_free_fallback
from palimpsest.policies.notices import AddEvidence, Remind
from palimpsest.policies.profile import NoteRules, Profile, is_on
from palimpsest.sources.sets import classroom_sources
from palimpsest.wire.models import ModelCard

_ABOVE = 50_000


def classroom(environment: Mapping[str, str]) -> Profile:
    """Mask old results before every call, compress the whole conversation above 50,000 tokens, and remind of the todo list.

    The setting `told_from` says from which end of the transcript the summarizing model is shown a part: `start`, the default, or `end`.
    """
    shown_end: Literal["start", "end"] = "end" if environment.get("told_from") == "end" else "start"
    return Profile(
        name="classroom",
        policies=(
            MaskOld(),
            Compress(above=_ABOVE, shown_end=shown_end),
            *((AddEvidence(),) if is_on(environment, "PAL_EVIDENCE") else ()),
            Remind(if_offered=True),
        ),
        fallback=model_free_fallback(),
        budget=_budget,
        size_rule="classroom",
        count=_count,
        notes=NoteRules("cards", recall="off"),
        sources=classroom_sources(),
    )


def _budget(card: ModelCard) -> Budget:
    compact_at = min(_ABOVE + 1, card.window)
    return Budget(card.window, card.reply, buffer=card.window - compact_at, compact_at=compact_at, block_at=card.window)


def _count(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Estimate the tokens of all messages; the head and the usage that the provider reported are not counted."""
    return counter.total(view) - sum(counter.item(item) for item in view.head)
