"""From where on a compaction is due by itself, and what an undo brought back."""

from palimpsest.audit.floor import room_of
from palimpsest.core.situation import Situation


def is_held(situation: Situation) -> bool:
    """Whether something shows that an undo brought back in this epoch."""
    held = situation.view.held
    return bool(held) and any(item.id in held for item in situation.view.items)


def level_of(situation: Situation, usual: int | None) -> int | None:
    """The `usual` level, but what the user brought back by an undo is hidden again only when nothing could be sent any more."""
    if usual is None or not is_held(situation):
        return usual
    return max(usual, room_of(situation) or usual)


def is_due(situation: Situation) -> bool:
    """Whether the level of the budget is reached, in a turn that may still have a fold."""
    level = level_of(situation, situation.budget.compact_at)
    return level is not None and situation.may_fold and situation.used >= level
