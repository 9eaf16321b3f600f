"""The profile `classroom`: the smallest design that works, for reading and teaching."""

from collections.abc import Mapping
from typing import Literal

from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.clear.mask_old import MaskOld
from palimpsest.policies.fold.fold import rung
from palimpsest.policies.prove import Prove
from palimpsest.policies.summarize.compress import Compress
from palimpsest.profiles.numbers import is_on
from palimpsest.profiles.profile import Profile
from palimpsest.wire.models.cards import ModelCard

_ABOVE = 50_000


def classroom(environment: Mapping[str, str]) -> Profile:
    """Masks old results before every call, and compresses everything above 50,000 tokens; `told_from` may be `end`."""
    told_from: Literal["start", "end"] = "end" if environment.get("told_from") == "end" else "start"
    return Profile(
        name="classroom",
        policies=(MaskOld(), Compress(above=_ABOVE, told_from=told_from), *((Prove(),) if is_on(environment, "PAL_EVIDENCE") else ())),
        rung=rung(),
        budget=_budget,
        size="classroom",
        count=_count,
    )


def _budget(card: ModelCard) -> Budget:
    return Budget(card.window, card.reply, compact_at=min(_ABOVE + 1, card.window), block_at=card.window)


def _count(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """The estimate of all messages, whatever a provider reported; the head is none, and stays however long it is."""
    return counter.total(view) - sum(counter.item(item) for item in view.head)
