"""Compactions by a provider: opaque items that stand for what came before them, and the fold that records what they hide."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from palimpsest.core.edits import Fold, Keep
from palimpsest.core.items import Item, Opaque
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.json_reading import parse, text

COMPACTION_TYPES: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})
_NO_PINS: Final[frozenset[str]] = frozenset()


def is_compaction(content: object) -> bool:
    """Whether a content stands for what came before it; a compaction without content has failed and stands for nothing."""
    if not isinstance(content, Opaque) or opaque_type(content) not in COMPACTION_TYPES:
        return False
    block = parse(content.data, content.provider)
    return bool(text(block, "content") or text(block, "encrypted_content"))


def is_sealed(content: object) -> bool:
    """Whether a content is a compaction that only the provider's models can read. Its text fallback is for others, not what they read."""
    return is_compaction(content) and isinstance(content, Opaque) and not text(parse(content.data, content.provider), "content")


def fold_into_block(items: Sequence[Item], block: int, pins: AbstractSet[str] = _NO_PINS) -> Fold | None:
    """The fold of everything before the compaction at place `block`; pinned items stay, behind it. `None` if there is nothing before it.

    It spans the whole view, so that what is added to a fold comes behind the reply and not into it.
    """
    if not block:
        return None
    kept = (items[block], *(item for item in items[:block] if item.id in pins), *items[block + 1 :])
    return Fold(items[0].id, items[-1].id, tuple(Keep(item.id) for item in kept))
