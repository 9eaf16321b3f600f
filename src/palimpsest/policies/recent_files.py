"""The files that the model read, edited or wrote last, from the log, whether or not the view still shows it."""

from collections.abc import Generator

from palimpsest.audit.tools import action_of
from palimpsest.core.events import Event, ModelReplied, ToolReturned
from palimpsest.core.items import ToolCall
from palimpsest.core.policy import Answer, Span, Want, span

_KNOWING = frozenset({"read", "edit", "write"})
# So many events are looked at in one go, and at most so many times: files of long ago are not recent.
RUN = 250
RUNS = 20


def recent_files(tip: int, count: int) -> Generator[Want, Answer, tuple[str, ...]]:
    """At most so many paths, newest first, along the way that leads to the tip; a call that failed does not count."""
    tally = _Tally(tip)
    last = tip
    for _ in range(RUNS):
        events = yield from span(Span(max(0, last - RUN + 1), last))
        for event in reversed(events):
            tally.take(event)
        last -= RUN
        if last < 0 or len(tally.paths) >= count:
            break
    return tuple(tally.paths)[:count]


class _Tally:
    """Paths that are being gathered, from the newest event backwards."""

    def __init__(self, tip: int) -> None:
        self.paths: dict[str, None] = {}
        self._next = tip
        self._done: set[str] = set()

    def take(self, event: Event) -> None:
        # What lies on a branch that was left is passed over: each event names the one before it.
        if event.seq != self._next:
            return
        self._next = event.parent
        body = event.body
        if isinstance(body, ToolReturned) and not body.result.error:
            self._done.add(body.result.call_id)
        elif isinstance(body, ModelReplied):
            for part in reversed(body.parts):
                if isinstance(part, ToolCall) and part.call_id in self._done:
                    self._take_call(part)

    def _take_call(self, call: ToolCall) -> None:
        action = action_of(call)
        if action.kind in _KNOWING:
            for touched in action.paths:
                self.paths.setdefault(touched.path)
