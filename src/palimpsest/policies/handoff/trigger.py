"""The conditions under which a handoff is due."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Literal

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import MODEL_KINDS, Item, Opaque, seq_of
from palimpsest.core.pairs import pending_calls
from palimpsest.core.policy import Answer, EventSpan, Want, span
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.budgets import codex_effective
from palimpsest.policies.fold_threshold import fold_threshold
from palimpsest.policies.handoff.layout import handoff_run, just_edited, worth_folding

MOMENTS: Final[frozenset[Moment]] = frozenset({"turn_starts", "before_call", "after_call", "overflow", "asked", "switched"})


@dataclass(frozen=True, slots=True)
class HandoffTrigger:
    """Decides whether a handoff is due: at the budget, on overflow, after a switch to a smaller model, or when the user asks.

    scope: which tokens count against the budget: all of the view, or only those after the prompt of the first reply since the last fold.
    at_effective_window: after a switch, a handoff is also due when the effective window of the new model is reached.
    """

    scope: Literal["total", "body_after_prefix"] = "total"
    at_effective_window: bool = False

    def reason(self, situation: Situation) -> str:
        """Return why a handoff is due now; empty if it is not."""
        why = self._reason_at_moment(situation) if situation.may_fold else ""
        return why if why and not just_edited(situation.view) and worth_folding(handoff_run(situation.view)) else ""

    def _reason_at_moment(self, situation: Situation) -> str:
        match situation.moment:
            case "asked":
                return "asked"
            case "switched":
                return self._reason_after_switch(situation)
            case "overflow":
                return "the provider found the request too long"
            case "turn_starts":
                return self._reason_by_budget(situation)
            case _:
                return self._reason_within_turn(situation)

    def is_due_by_scope(self, situation: Situation) -> Generator[Want, Answer, bool]:
        """Return whether it is due by the scope as well; reads the first reply since the last fold from the log."""
        if self.scope == "total" or situation.moment in {"asked", "switched", "overflow"} or situation.health.overflow:
            return True
        prefix = yield from _prefix_tokens(situation)
        level = min((situation.budget.compact_at or 0) + prefix, effective_window(situation))
        return situation.used >= level

    def _reason_by_budget(self, situation: Situation) -> str:
        level = fold_threshold(situation, situation.budget.compact_at)
        if situation.health.overflow:
            return "the last request was too long"
        if level is None or situation.used < level:
            return ""
        return f"{situation.used:,} tokens are used and {level:,} is the limit"

    def _reason_within_turn(self, situation: Situation) -> str:
        """Return a reason only while the model continues a turn, or before a call that would exceed the effective window."""
        why = self._reason_by_budget(situation)
        if not why or pending_calls(situation.view.items):
            return ""
        blocked = situation.moment == "before_call" and situation.used >= effective_window(situation)
        return why if continues_turn(situation.view.items) or blocked else ""

    def _reason_after_switch(self, situation: Situation) -> str:
        old, new = situation.previous, situation.card
        if old is None or old.name == new.name:
            return ""
        sealed = {item.content.provider for item in situation.view.items if item.kind == "summary" and isinstance(item.content, Opaque)}
        if old.provider in sealed and old.provider != new.provider:
            return f"{new.name} cannot read the encrypted summary of {old.name}"
        if codex_effective(old.working_window) <= codex_effective(new.working_window):
            return ""
        level = situation.budget.compact_at
        if (level is not None and situation.used > level) or (self.at_effective_window and situation.used >= effective_window(situation)):
            return f"{new.name} has less room than {old.name}"
        return ""


def effective_window(situation: Situation) -> int:
    """Return the tokens of the window that Codex plans with: 95% of it."""
    return codex_effective(situation.budget.window)


def continues_turn(items: tuple[Item, ...]) -> bool:
    """Return whether the next call continues a turn: the model has replied in it, and items follow that reply."""
    for place, item in enumerate(reversed(items)):
        if item.kind == "user":
            return False
        if item.kind in MODEL_KINDS:
            return place > 0
    return False


def _prefix_tokens(situation: Situation) -> Generator[Want, Answer, int]:
    """Return the prompt tokens of the first reply since the last fold; 0 if there is none."""
    items = situation.view.items
    start = max((place for place, item in enumerate(items) if item.kind == "summary"), default=-1)
    first = next((item for item in items[start + 1 :] if item.kind in MODEL_KINDS), None)
    if first is None:
        return 0
    seq = seq_of(first.id)
    events = yield from span(EventSpan(seq, seq))
    body = events[0].body if events else None
    return body.usage.prompt if isinstance(body, ModelReplied) else 0
