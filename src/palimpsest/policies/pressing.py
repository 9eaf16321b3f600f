"""When a compaction is due by itself."""

from palimpsest.core.situation import Situation


def is_due(situation: Situation) -> bool:
    """Whether the level is reached; a view that the user brought back by an undo is left alone until nothing could be sent any more."""
    budget, view = situation.budget, situation.view
    level = budget.compact_at
    if level is None or not situation.may_fold:
        return False
    if view.held and any(item.id in view.held for item in view.items):
        level = max(level, budget.block_at or level)
    return situation.used >= level
