"""The thinking of a session that an edit could take away: which blocks the next request sends, and what they took to think."""

from collections.abc import Callable, Mapping

from palimpsest.audit.pricing.reasoning import maker_of_thinking, still_bound, thinking_of_request
from palimpsest.core.events import ModelReplied
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import EMPTY_MAPPING, Item, seq_of
from palimpsest.core.log.log import Log
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.view import EMPTY_VIEW, View
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.past_requests import is_bound


class BoundReasoning:
    """The thinking blocks of the view of one log. `card_of` returns the card of a model that the log names.

    A block is left out from the next call on if something before it has changed since the last one, or if that one left it out already.
    """

    def __init__(self, log: Log, card_of: Callable[[str], ModelCard]) -> None:
        self._log = log
        self._card_of = card_of
        # The newest view since the last call from which no edit had taken thinking, and its thinking.
        self._whole: View = EMPTY_VIEW
        self._sent: Mapping[str, int | None] = EMPTY_MAPPING
        self._tokens: dict[str, int | None] = {}

    def tokens(self, view: View, model: ModelCard, counter: TokenCounter) -> Mapping[str, int | None]:
        """The output tokens of each block that the next request sends to a model, `None` where unknown; empty if it binds no thinking."""
        if not is_bound(model):
            return EMPTY_MAPPING
        withheld = frozenset(() if view.call is None else view.call.withheld)
        known = self._tokens
        sent = [item for item in thinking_of_request(view) if item.id not in withheld and self._is_bound(item, model)]
        self._tokens = {item.id: known[item.id] if item.id in known else self.thought(item, model, counter) for item in sent}
        left = self._tokens if view.call is not self._whole.call else still_bound(self._whole, view, self._sent, self._tokens)
        if len(left) == len(self._tokens):
            self._whole, self._sent = view, left
        return left

    def withheld(self, view: View, model: ModelCard, counter: TokenCounter) -> tuple[str, ...]:
        """The ids of the blocks that the next request to a model leaves out."""
        if not is_bound(model):
            return ()
        sent = self.tokens(view, model, counter)
        return tuple(item.id for item in thinking_of_request(view) if item.id not in sent and self._is_bound(item, model))

    def _is_bound(self, item: Item, model: ModelCard) -> bool:
        """Whether an item is thinking that a model can be sent, and that was bound to its list by the model that made it."""
        maker = maker_of_thinking(item, model)
        return maker is not None and (maker == model.name or is_bound(self._card_of(maker)))

    def thought(self, item: Item, model: ModelCard, counter: TokenCounter) -> int | None:
        """The tokens that a block took to think: its share of what the reply reported, else our estimate; `None` if neither tells."""
        reply = self._log.event(seq_of(item.id)).body
        if isinstance(reply, ModelReplied) and reply.usage.reasoning:
            blocks = sum(self._is_bound(each, model) for each in items_of(seq_of(item.id), reply))
            return round(reply.usage.reasoning / max(1, blocks))
        return counter.item(item) or None
