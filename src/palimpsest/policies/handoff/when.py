"""When a hand-over is due: before a turn, in the middle of one, on a smaller model, or because the user asks."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Literal

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Opaque, seq_of
from palimpsest.core.pairs import pending_calls
from palimpsest.core.policy import Answer, EventSpan, Want, span
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.budgets import codex_effective
from palimpsest.policies.handoff.layout import ground_of, just_edited, worth_folding
from palimpsest.policies.notices import level_of

MOMENTS: Final[frozenset[Moment]] = frozenset({"turn_starts", "before_call", "after_call", "overflow", "asked", "switched"})
_MODEL: Final = frozenset({"assistant", "thinking", "call"})


@dataclass(frozen=True, slots=True)
class When:
    """What counts: the whole view, or with `body_after_prefix` only what came after the prompt of the first reply since the last fold.

    `hard` makes a switch also count where the new model's effective window is reached.
    """

    scope: Literal["total", "body_after_prefix"] = "total"
    hard: bool = False

    def reason(self, situation: Situation) -> str:
        """Why a hand-over is due now; empty when it is not."""
        why = self._reason(situation) if situation.may_fold else ""
        return why if why and not just_edited(situation.view) and worth_folding(ground_of(situation.view)) else ""

    def _reason(self, situation: Situation) -> str:
        match situation.moment:
            case "asked":
                return "asked"
            case "switched":
                return self._switched(situation)
            case "overflow":
                return "the provider found the request too long"
            case "turn_starts":
                return self._full(situation)
            case _:
                return self._within(situation)

    def exactly(self, situation: Situation) -> Generator[Want, Answer, bool]:
        """Whether it is due by the scope as well, which only the log can tell."""
        if self.scope == "total" or situation.moment in {"asked", "switched", "overflow"} or situation.health.overflow:
            return True
        prefix = yield from _prefix(situation)
        level = min((situation.budget.compact_at or 0) + prefix, effective(situation))
        return situation.used >= level

    def _full(self, situation: Situation) -> str:
        level = level_of(situation, situation.budget.compact_at)
        if situation.health.overflow:
            return "the last request was too long"
        if level is None or situation.used < level:
            return ""
        return f"{situation.used:,} tokens are used and {level:,} is the limit"

    def _within(self, situation: Situation) -> str:
        """Within a turn only while the model goes on, or when nobody looked before the turn and the call could not succeed."""
        why = self._full(situation)
        if not why or pending_calls(situation.view.items):
            return ""
        blocked = situation.moment == "before_call" and situation.used >= effective(situation)
        return why if in_turn(situation.view.items) or blocked else ""

    def _switched(self, situation: Situation) -> str:
        old, new = situation.previous, situation.card
        if old is None or old.name == new.name:
            return ""
        if any(_sealed_for(item, old.provider) for item in situation.view.items) and old.provider != new.provider:
            return f"{new.name} cannot read the summary that {old.name} keeps"
        if codex_effective(old.window) <= codex_effective(new.window):
            return ""
        level = situation.budget.compact_at
        if (level is not None and situation.used > level) or (self.hard and situation.used >= effective(situation)):
            return f"{new.name} has less room than {old.name}"
        return ""


def effective(situation: Situation) -> int:
    """The part of the window that is planned with."""
    return codex_effective(situation.budget.window)


def in_turn(items: tuple[Item, ...]) -> bool:
    """Whether the model is to go on by itself: it has replied in this turn, and something came after its reply."""
    for place, item in enumerate(reversed(items)):
        if item.kind == "user":
            return False
        if item.kind in _MODEL:
            return place > 0
    return False


def _sealed_for(item: Item, provider: str) -> bool:
    return item.kind == "summary" and isinstance(item.content, Opaque) and item.content.provider == provider


def _prefix(situation: Situation) -> Generator[Want, Answer, int]:
    """What the first reply since the last fold had read."""
    items = situation.view.items
    start = max((place for place, item in enumerate(items) if item.kind == "summary"), default=-1)
    first = next((item for item in items[start + 1 :] if item.kind in _MODEL), None)
    if first is None:
        return 0
    seq = seq_of(first.id)
    events = yield from span(EventSpan(seq, seq))
    body = events[0].body if events else None
    return body.usage.prompt if isinstance(body, ModelReplied) else 0
