"""Agreement between the cache simulator and the cache reads that providers reported, on recorded prompt sizes."""

from collections.abc import Iterable
from statistics import median

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, CacheRules, Prompt, bill, cache_rules
from palimpsest.core.events import TURN, CallStarted, ContextStated, Event, ModelReplied, Usage, ViewEdited
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Value
from palimpsest.lab.simulation.recording import calibrate
from palimpsest.wire.models.cards import recorded_card


class SessionAgreement(Value, frozen=True, omit_defaults=False):
    """Cache reads of one recorded session, reported and simulated, in tokens; `calls` counts the calls with reported usage.

    `error` is the relative error of the sums, `call_error` the median relative error of a call.
    """

    session: str
    format: str
    calls: int
    reported: int
    simulated: int
    error: float
    call_error: float


class Agreement(Value, frozen=True, omit_defaults=False):
    """All sessions with reported cache reads, the median error by format, and `silent`: the number of sessions without any."""

    sessions: tuple[SessionAgreement, ...]
    median: dict[str, float]
    silent: int = 0


def agreement_of(compared: Iterable[SessionAgreement], silent: int = 0) -> Agreement:
    """Collect the agreement of several sessions, with the median error of each format."""
    sessions = tuple(compared)
    formats = dict.fromkeys(one.format for one in sessions)
    medians = {name: round(median(one.error for one in sessions if one.format == name), 5) for name in formats}
    return Agreement(sessions, medians, silent)


def agreement_markdown(agreement: Agreement) -> str:
    """Return the agreement as a Markdown table of all sessions, followed by the medians."""
    rows = [
        f"| `{one.session}` | {one.format} | {one.calls:,} | {one.reported:,} | {one.simulated:,} "
        f"| {one.error:.2%} | {one.call_error:.2%} |"
        for one in agreement.sessions
    ]
    medians = ", ".join(
        f"{name} {error:.2%} of {sum(one.format == name for one in agreement.sessions)}" for name, error in agreement.median.items()
    )
    silent = f" {agreement.silent} more sessions report no cache reads." if agreement.silent else ""
    head = [
        "| session | format | calls | reported | simulated | error of the sums | median error of a call |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*head, *rows, "", f"Median error of the sessions of a format: {medians}.{silent}"])


def compare_cache(session: str, form: str, events: Iterable[Event]) -> SessionAgreement | None:
    """Simulate the cache over the events of a session. Returns None if no cache read was reported."""
    events_read = tuple(events)
    walk = _PromptTracker(calibrate(events_read).unseen)
    pairs = [pair for event in events_read if (pair := walk.take(event)) is not None]
    reported = sum(usage.cache_read for usage, _ in pairs)
    if not reported:
        return None
    simulated = sum(simulated_usage.cache_read for _, simulated_usage in pairs)
    errors = [abs(simulated_usage.cache_read - usage.cache_read) / usage.cache_read for usage, simulated_usage in pairs if usage.cache_read]
    error = abs(simulated - reported) / reported
    return SessionAgreement(session, form, len(pairs), reported, simulated, round(error, 5), round(median(errors), 5))


class _PromptTracker:
    """Rebuilds the prompts of a recording as blocks: sizes as reported, block counts as recorded."""

    def __init__(self, unseen: int) -> None:
        self._unseen = unseen
        self._blocks: list[Block] = []
        self._new = 0
        self._number = 0
        self._edited = False
        self._started: int | None = None
        self._arrived = 0
        self._kept: dict[str, CacheContents] = {}

    def take(self, event: Event) -> tuple[Usage, Usage] | None:
        """Process one event. Returns reported and simulated usage if it is a reply with usage, else None."""
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            self._started = min(event.at, self._arrived or event.at)
        elif isinstance(body, ViewEdited):
            self._edited = True
        elif isinstance(body, ModelReplied) and body.purpose == TURN:
            pair = self._reply(event.at, body) if body.usage.prompt else None
            self._new += len(body.parts)
            self._arrived = 0
            return pair
        else:
            pieces = len(items_of(event.seq, body))
            self._new += pieces
            self._arrived = max(self._arrived, event.at) if pieces else self._arrived
            self._edited = self._edited or (isinstance(body, ContextStated) and body.head is not None)
        return None

    def _reply(self, at: int, reply: ModelReplied) -> tuple[Usage, Usage]:
        usage = reply.usage
        card = recorded_card(reply.model)
        self._resize(usage.prompt)
        now = at if self._started is None else self._started
        rules = cache_rules(card)
        billed = bill(Prompt.of(self._blocks), self._kept.get(reply.model, EMPTY_CACHE), now, rules, self._breakpoints(rules, usage))
        self._kept[reply.model] = billed.contents
        return usage, billed.usage

    def _resize(self, tokens: int) -> None:
        """Bring the blocks to the reported size: appended items are new blocks, and after an edit only the head is kept."""
        if self._edited or not self._blocks:
            self._blocks = [("head", min(self._unseen, tokens))]
        total = sum(size for _, size in self._blocks)
        # A prompt that shrank without an edit lost blocks near its end, usually the thinking of the last turn.
        while total > tokens:
            total -= self._blocks.pop()[1]
        count = max(1, self._new)
        rest = tokens - total
        for number in range(count):
            self._number += 1
            size = rest * (number + 1) // count - rest * number // count
            self._blocks.append((str(self._number), size))
        self._new, self._edited = 0, False

    def _breakpoints(self, rules: CacheRules, usage: Usage) -> tuple[Breakpoint, ...]:
        """Return breakpoints at the head and at the tail, where all known programs place them."""
        if rules.kind != "breakpoints":
            return ()
        long = usage.cache_write_long > 0
        return tuple(Breakpoint(at, long) for at in sorted({0, len(self._blocks) - 1}))
