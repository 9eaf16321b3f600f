"""The names of the parts that a fold adds to a view, so that whoever meets them later knows what they are."""

from typing import Final

from palimpsest.core.items import Item, Piece

MESSAGES: Final = "older messages"
EVIDENCE: Final = "evidence"
NAMES: Final = "names"
SEEN: Final = "names seen"
NARRATIVE: Final = "narrative"
# A message of the user that is shown in part: this and its id.
STAND_IN: Final = "message "

_COMPUTED = frozenset({MESSAGES, EVIDENCE, NAMES, SEEN})


def is_computed(piece: Piece | Item) -> bool:
    """Whether code wrote it from the log, and no model had a hand in it."""
    return piece.kind == "summary" and (piece.source in _COMPUTED or piece.source.startswith(STAND_IN))


def is_part(piece: Piece | Item) -> bool:
    """Whether it belongs to a fold of ours."""
    return is_computed(piece) or (piece.kind == "summary" and piece.source == NARRATIVE)
