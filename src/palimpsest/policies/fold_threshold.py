"""The tokens from which on a fold is due and those that a fold leaves, which all folding policies share."""

from collections.abc import Sequence

from palimpsest.audit.floor import token_limit
from palimpsest.core.edits import Fold, Keep
from palimpsest.core.items import Item
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


def tokens_after(situation: Situation, folded: Sequence[Item], fold: Fold) -> int:
    """Return the tokens of the request after the first items of the view were folded, tool definitions included."""
    counter, view = situation.tokens, situation.view
    items = {item.id: item for item in folded}
    size = sum(counter.item(item) for item in (*view.head, *view.items[len(folded) :]))
    for piece in fold.into:
        size += counter.item(items[piece.id]) if isinstance(piece, Keep) else counter.content(piece.content)
    return size + situation.tools_tokens
