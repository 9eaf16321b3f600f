"""How far the simulated cache agrees with what providers reported, when it is fed the recorded prompt sizes."""

from collections.abc import Iterable
from statistics import median

from palimpsest.audit.pricing.bill import EMPTY_CACHE, Block, Breakpoint, CacheContents, CacheRules, Prompt, bill, cache_rules
from palimpsest.core.events import TURN, CallStarted, ContextStated, Event, ModelReplied, Usage, ViewEdited
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Value
from palimpsest.lab.simulation.measure import measure_of
from palimpsest.wire.models.cards import recorded_card


class Compared(Value, frozen=True, omit_defaults=False):
    """One recorded session: its calls with reported usage, the cache reads reported and simulated, and the error of a usual call.

    `error` is that of the sums, `call_error` the median over calls; both are shares of what was reported.
    """

    session: str
    format: str
    calls: int
    reported: int
    simulated: int
    error: float
    call_error: float


class Agreement(Value, frozen=True, omit_defaults=False):
    """All sessions that tell, the median of their errors by format, and how many sessions say nothing of a cache."""

    sessions: tuple[Compared, ...]
    median: dict[str, float]
    silent: int = 0


def agreement_of(found: Iterable[Compared], silent: int = 0) -> Agreement:
    """Sessions side by side."""
    sessions = tuple(found)
    formats = dict.fromkeys(one.format for one in sessions)
    medians = {name: round(median(one.error for one in sessions if one.format == name), 5) for name in formats}
    return Agreement(sessions, medians, silent)


def agreement_markdown(told: Agreement) -> str:
    """The table for a document: every session, the good and the bad, and the medians below."""
    cells = [(f"`{one.session}`", one.format, f"{one.calls:,}", f"{one.reported:,}", f"{one.simulated:,}") for one in told.sessions]
    errors = [(f"{one.error:.2%}", f"{one.call_error:.2%}") for one in told.sessions]
    rows = [f"| {' | '.join((*some, *more))} |" for some, more in zip(cells, errors, strict=True)]
    medians = ", ".join(f"{name} {error:.2%} of {sum(one.format == name for one in told.sessions)}" for name, error in told.median.items())
    silent = f" {told.silent} more sessions report no cache reads." if told.silent else ""
    head = [
        "| session | format | calls | reported | simulated | error of the sums | median error of a call |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*head, *rows, "", f"Median error of the sessions of a format: {medians}.{silent}"])


def compare(session: str, form: str, events: Iterable[Event]) -> Compared | None:
    """The simulated cache beside the reported one; nothing where no cache read was reported."""
    told = tuple(events)
    walk = _Walk(measure_of(told).unseen)
    pairs = [pair for event in told if (pair := walk.take(event)) is not None]
    reported = sum(usage.cache_read for usage, _ in pairs)
    if not reported:
        return None
    simulated = sum(guess.cache_read for _, guess in pairs)
    errors = [abs(guess.cache_read - usage.cache_read) / usage.cache_read for usage, guess in pairs if usage.cache_read]
    error = abs(simulated - reported) / reported
    return Compared(session, form, len(pairs), reported, simulated, round(error, 5), round(median(errors), 5))


class _Walk:
    """Follows the prompts of a recording: their sizes as reported, their blocks as many as were recorded."""

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
        """What was reported and what is simulated, if the event is a reply that tells."""
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
        self._lay_out(usage.prompt)
        now = at if self._started is None else self._started
        rules = cache_rules(card)
        billed = bill(Prompt.of(self._blocks), self._kept.get(reply.model, EMPTY_CACHE), now, rules, self._breakpoints(rules, usage))
        self._kept[reply.model] = billed.contents
        return usage, billed.usage

    def _lay_out(self, tokens: int) -> None:
        """Bring the blocks to the reported size: what was appended is new, and after an edit only the head is as it was."""
        if self._edited or not self._blocks:
            self._blocks = [("head", min(self._unseen, tokens))]
        total = sum(size for _, size in self._blocks)
        # A prompt that became smaller without an edit lost something near its end: thoughts of the last turn, as a rule.
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
        """Head and tail, as all programs mark them."""
        if rules.kind != "breakpoints":
            return ()
        long = usage.cache_write_long > 0
        return tuple(Breakpoint(at, long) for at in sorted({0, len(self._blocks) - 1}))
