"""The cards of replays: all with the same window, and with room for as long a reply as the formulas of imitated programs expect."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from palimpsest.wire.cards import CARDS, ModelCard, card

WINDOW: Final = 200_000
# Replies are recorded, so that what a card allows for one says nothing here but where the formulas of other programs trigger.
_REPLY: Final = 32_000


def replay_card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int = WINDOW) -> ModelCard:
    """A card for replays, so that every profile triggers at the same size whichever model pays."""
    found = card(name, cards, window=window)
    return replace(found, reply=max(found.reply, min(_REPLY, window // 2)), input_limit=None)
