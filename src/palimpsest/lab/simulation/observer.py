"""Observes a replay: which edits were made and what they hid, whether every request could be sent, and who filled the window."""

from collections.abc import Callable, Iterable, Mapping

from palimpsest.audit.visibility.survival import Survival as Counted
from palimpsest.audit.visibility.survival import survival_of
from palimpsest.audit.visibility.visible import VisibleText, texts_of
from palimpsest.core.edits import Edit, Fold, Insert, Loss, Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import EditRefused, Event, ViewEdited
from palimpsest.core.items import Item, ToolCall, ToolResult, seq_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.situation import Moment
from palimpsest.core.view import View
from palimpsest.engine.policies import PolicyRun
from palimpsest.lab.outcome import Edited, EditKind, Share, survival
from palimpsest.lab.simulation.rereads import Names
from palimpsest.lab.simulation.simulation import Simulation
from palimpsest.wire.encode import Encoder
from palimpsest.wire.rules.check import check_request

# So many edits that only mask may wait to be checked together: masks stay until a fold, and so would what they break.
_MASKS = 32
_FAULTS = 5


class Observer:
    """Keeps what a replay does that is worth telling."""

    def __init__(self, simulation: Simulation, names: Names) -> None:
        self._simulation = simulation
        self._names = names
        self.edits: list[Edited] = []
        self.faults: list[str] = []
        self.invalid = 0
        self.refused = 0
        self._recorded: dict[int, int] = {}
        self._unchecked = 0
        self._peak = -1
        self._fullest = simulation.session.log.view
        session = simulation.session
        self._encoder = Encoder(session.card, session.tools, session.params, session.environment.blobs.get)

    def map(self, seq: int, recorded: int) -> None:
        """An event of the replayed log stands for a recorded one."""
        self._recorded[seq] = recorded

    def recorded(self, seq: int) -> int:
        """The recorded event that an event of the replayed log stands for; -1 for one that the replay made itself."""
        return self._recorded.get(seq, -1)

    def note(self, _: Moment, run: PolicyRun) -> None:
        """Keep what came of a moment."""
        self.refused += sum(isinstance(event.body, EditRefused) for event in run.events)
        edits = [(event, event.body) for event in run.events if isinstance(event.body, ViewEdited)]
        size = self._simulation.simulator.size
        billed = (size(run.before), size(self._simulation.session.log.view)) if edits else (0, 0)
        for event, body in edits:
            self._keep(event, body, billed, run.before)

    def watch(self) -> None:
        """Remember the view if it is the fullest so far."""
        call = self._simulation.calls[-1]
        if call.tokens > self._peak:
            self._peak, self._fullest = call.tokens, self._simulation.session.log.view

    def check(self) -> None:
        """Check the request as it would be sent now, if edits were made since the last time."""
        if not self._unchecked:
            return
        self._unchecked = 0
        session = self._simulation.session
        try:
            request = self._encoder.encode(session.log.view)
            faults = check_request(session.card.wire, request.body)
        except PalimpsestError as error:
            faults = (error.message,)
        if faults:
            self.invalid += 1
            self.faults += faults[: _FAULTS - len(self.faults)]

    def census(self) -> tuple[Share, ...]:
        """Who filled the window when it was fullest, the largest first."""
        return shares(self._fullest, self._simulation.counter.item)

    def _keep(self, event: Event, body: ViewEdited, billed: tuple[int, int], before: View) -> None:
        kind = _kind(body.edits)
        loss = body.loss or Loss()
        hides = {self._recorded[seq] for name in loss.ids if (seq := seq_of(name)) in self._recorded}
        simulation = self._simulation
        survived = self._survived(body, event.seq, before.items) if kind == "fold" else None
        self.edits.append(
            Edited(
                simulation.step,
                event.at,
                event.seq,
                kind,
                body.by,
                body.why,
                body.moment,
                body.tokens_before,
                body.tokens_after,
                body.price_usd,
                body.saved_usd_per_call,
                tuple(sorted(hides - {-1})),
                loss,
                None if survived is None else survival(survived),
                survived,
                *billed,
            )
        )
        self._unchecked += 1
        if kind != "mask" or self._unchecked >= _MASKS:
            self.check()

    def _survived(self, body: ViewEdited, seq: int, before: tuple[Item, ...]) -> Counted:
        """What of the folded span still shows."""
        log = self._simulation.session.log
        fold = next(edit for edit in body.edits if isinstance(edit, Fold))
        places = {item.id: place for place, item in enumerate(before)}
        run = before[places.get(fold.first, 0) : places.get(fold.last, len(before)) + 1]
        numbers = sorted({seq_of(item.id) for item in run})
        after = log.view if log.tip == seq else log.state_at(seq).view
        shown = VisibleText([*texts_of(after.head), *texts_of(after.items)])
        events = log.reader.run(numbers[0], numbers[-1]) if numbers else ()
        wanted = self._recorded.keys() & set(numbers)
        span = [each for each in events if each.seq in wanted]
        return survival_of(span, shown, numbers=self._names.numbers)


def shares(view: View, weigh: Callable[[Item], int]) -> tuple[Share, ...]:
    """The tokens of a view by kind and by the tool or source they came from."""
    calls = answered_calls(view.items)
    found: dict[tuple[str, str], list[int]] = {}
    for item in (*view.head, *view.items):
        sums = found.setdefault((item.kind, _name(item, calls)), [0, 0])
        sums[0] += weigh(item)
        sums[1] += 1
    made = (Share(kind, name, tokens, items) for (kind, name), (tokens, items) in found.items())
    return tuple(sorted(made, key=lambda share: (-share.tokens, share.kind, share.name)))


def _name(item: Item, calls: Mapping[str, ToolCall]) -> str:
    content = item.content
    if isinstance(content, ToolCall):
        return content.tool
    if isinstance(content, ToolResult):
        return calls[item.id].tool if item.id in calls else ""
    return item.source


def _kind(edits: Iterable[Edit]) -> EditKind:
    made = tuple(edits)
    if any(isinstance(edit, Fold) for edit in made):
        return "fold"
    if any(isinstance(edit, Mask) for edit in made):
        return "mask"
    return "insert" if any(isinstance(edit, Insert) for edit in made) else "unmask"
