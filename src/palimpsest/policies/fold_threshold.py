"""The number of tokens from which on a fold is due, which all folding policies share."""

from palimpsest.audit.floor import token_limit
from palimpsest.core.situation import Situation


def shows_held_items(situation: Situation) -> bool:
    """Return whether the view shows an item that an undo brought back in this epoch."""
    held = situation.view.held
    return bool(held) and any(item.id in held for item in situation.view.items)


def fold_threshold(situation: Situation, usual: int | None) -> int | None:
    """Return the tokens at which a fold is due: `usual`, or the end of the window while the view shows items that an undo brought back."""
    if usual is None or not shows_held_items(situation):
        return usual
    return max(usual, token_limit(situation) or usual)


def is_fold_due(situation: Situation) -> bool:
    """Return whether the budget is reached and the turn may still have a fold."""
    level = fold_threshold(situation, situation.budget.compact_at)
    return level is not None and situation.may_fold and situation.used >= level
