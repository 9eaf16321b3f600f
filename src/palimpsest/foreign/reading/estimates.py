"""What we would have estimated for each call of an imported session, so that its reported usage teaches the estimate."""

from msgspec import structs

from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    EditUndone,
    Event,
    ModelReplied,
    Recalled,
    Rewound,
    ToolReturned,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.log.log import Log
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.estimate import FAMILY_FACTORS, family_of
from palimpsest.core.tokens.sizes import palimpsest_size

_CHANGES = frozenset({ViewEdited, EditUndone, Rewound})
_BRINGS = frozenset({UserSaid, ModelReplied, ToolReturned, ContextStated, Recalled})


class CallEstimator:
    """Weighs the view at each call, unscaled: item by item as they come, and whole after an edit.

    A transcript seldom has the tools and the system prompt that went along. The first call with reported usage shows how much is
    missing; it gets no estimate itself, and all later ones count that much on top. So the same log always gets the same estimates.
    """

    def __init__(self) -> None:
        self._counter = TokenCounter(palimpsest_size)
        # What the view weighs; nothing when it must be looked at to know.
        self._size: int | None = None
        self._unseen: int | None = None
        self._first = self._call = -1
        self._model = ""

    def started(self, call: CallStarted, log: Log) -> CallStarted:
        """The call with its estimate, unless it has one or is no part of the conversation."""
        if call.estimate or call.purpose != "turn":
            return call
        raw = self._size = self._counter.raw(log.view) if self._size is None else self._size
        if self._unseen is not None:
            return structs.replace(call, estimate=raw + self._unseen)
        self._first, self._model = raw, call.model
        return call

    def answered(self, reply: ModelReplied) -> None:
        """The first reply with usage says how much of the prompt the transcript does not show."""
        prompt = reply.usage.prompt
        if self._unseen is None and self._first >= 0 and prompt:
            factor = FAMILY_FACTORS[family_of(reply.model or self._model)]
            self._unseen = max(0, round(prompt / factor) - self._first)

    def took(self, event: Event) -> None:
        """An event was recorded: what it brought weighs on top, unless it changed what was there before."""
        body = event.body
        kind = type(body)
        if kind in _CHANGES or (isinstance(body, ContextStated) and body.head is not None):
            self._size = None
        elif self._size is not None and kind in _BRINGS:
            self._size += sum(self._counter.item(item) for item in items_of(event.seq, body))

    def recall(self, event: Event, log: Log) -> None:
        """Take in an event of an earlier import, as if it were imported now."""
        if self._unseen is not None:
            return
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn" and not body.estimate:
            self._call, self._model = event.seq, body.model
        elif isinstance(body, ModelReplied) and body.usage.prompt:
            self.resume(log)
            self.answered(body)

    def resume(self, log: Log) -> None:
        """Weigh the newest call of an earlier import again, for its reply may come now."""
        if self._unseen is None and self._call >= 0:
            self._first = self._counter.raw(log.state_at(self._call).view)
