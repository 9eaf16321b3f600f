"""Token estimates for the calls of an imported session, so that its reported usage calibrates the estimator."""

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

_EDITS = frozenset({ViewEdited, EditUndone})
_ADDS_ITEMS = frozenset({UserSaid, ModelReplied, ToolReturned, ContextStated, Recalled})


class CallEstimator:
    """Estimates the prompt tokens of each call, uncalibrated: item by item as they arrive, and the whole view after an edit.

    A transcript seldom has the tools and the system prompt of a request. The first call with reported usage shows how many tokens are
    missing. It gets no estimate itself; all later calls add that number. So the same log always gets the same estimates.
    """

    def __init__(self) -> None:
        self._counter = TokenCounter(palimpsest_size)
        # Uncalibrated tokens of the view, which is empty at first; None when the view must be counted again.
        self._tokens: int | None = 0
        # The same after each event, so that going back to one needs no view.
        self._tokens_after: dict[int, int] = {}
        self._missing_tokens: int | None = None
        self._first_tokens = self._pending_call = -1
        self._model = ""

    def with_estimate(self, call: CallStarted, log: Log) -> CallStarted:
        """The call with its estimate; unchanged if it has one already or is not part of the conversation."""
        if call.estimate or call.purpose != "turn":
            return call
        if self._tokens is None:
            self._tokens = self._tokens_after[log.tip] = self._counter.raw(log.view)
        raw = self._tokens
        if self._missing_tokens is not None:
            return structs.replace(call, estimate=raw + self._missing_tokens)
        self._first_tokens, self._model = raw, call.model
        return call

    def calibrate(self, reply: ModelReplied) -> None:
        """Derive from the first reply with usage how many tokens of the prompt the transcript does not show."""
        prompt = reply.usage.prompt
        if self._missing_tokens is None and self._first_tokens >= 0 and prompt:
            factor = FAMILY_FACTORS[family_of(reply.model or self._model)]
            self._missing_tokens = max(0, round(prompt / factor) - self._first_tokens)

    def count(self, event: Event) -> None:
        """Count the items of a recorded event, or discard the count if the event changed the view in another way."""
        body = event.body
        kind = type(body)
        if isinstance(body, Rewound):
            self._tokens = self._tokens_after.get(body.to)
        elif kind in _EDITS or (isinstance(body, ContextStated) and body.head is not None):
            self._tokens = None
        elif self._tokens is not None and kind in _ADDS_ITEMS:
            self._tokens += sum(self._counter.item(item) for item in items_of(event.seq, body))
        if self._tokens is not None:
            self._tokens_after[event.seq] = self._tokens

    def replay(self, event: Event, log: Log) -> None:
        """Replay an event of an earlier import."""
        self._tokens = None
        if self._missing_tokens is not None:
            return
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn" and not body.estimate:
            self._pending_call, self._model = event.seq, body.model
        elif isinstance(body, ModelReplied) and body.usage.prompt:
            self.count_pending_call(log)
            self.calibrate(body)

    def count_pending_call(self, log: Log) -> None:
        """Count the view of the newest call without an estimate again, because its reply may follow."""
        if self._missing_tokens is None and self._pending_call >= 0:
            self._first_tokens = self._counter.raw(log.state_at(self._pending_call).view)
