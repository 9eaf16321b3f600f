"""Observes a replay: records its edits and what they hid, malformed requests, and the fullest view."""

from collections.abc import Callable, Iterable, Mapping

from palimpsest.audit.pricing.reasoning import is_within_loop
from palimpsest.audit.visibility.survival import Survival as SurvivalCounts
from palimpsest.audit.visibility.survival import survival_of
from palimpsest.audit.visibility.visible import VisibleText, texts_of
from palimpsest.core.edits import Edit, Fold, Insert, Loss, Mask
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import EditRefused, Event, ViewEdited
from palimpsest.core.format.path import EventRange, Path
from palimpsest.core.items import Item, ToolCall, ToolResult, seq_of
from palimpsest.core.pairs import answered_calls
from palimpsest.core.situation import Moment
from palimpsest.core.view import View
from palimpsest.engine.policies import PolicyRun
from palimpsest.lab.outcome import EditKind, ReplayedEdit, WindowShare, survival
from palimpsest.lab.rereads.visible import is_name_list
from palimpsest.lab.simulation.recording_index import RecordingIndex
from palimpsest.lab.simulation.simulation import Simulation
from palimpsest.wire.encode import Encoder
from palimpsest.wire.rules.check import check_request

# Up to so many masks are checked together: masks stay until a fold, and so would any error that they cause.
_MOST_UNCHECKED = 32
_MOST_FAULTS = 5


class Observer:
    """Records the edits, malformed requests and the fullest view of one replay."""

    def __init__(self, simulation: Simulation, index: RecordingIndex) -> None:
        self._simulation = simulation
        self._index = index
        self.edits: list[ReplayedEdit] = []
        self.faults: list[str] = []
        self.invalid = 0
        self.refused = 0
        # The recorded event that each event of the replayed log repeats.
        self.recorded_seqs: dict[int, int] = {}
        self._unchecked = 0
        self._peak_tokens = -1
        self._fullest_view = simulation.session.log.view
        session = simulation.session
        self._encoder = Encoder(session.card, session.tools, session.params, session.environment.blobs.get)

    def record_policy_run(self, _: Moment, run: PolicyRun) -> None:
        """Record the edits and refusals of one policy run."""
        self.refused += sum(isinstance(event.body, EditRefused) for event in run.events)
        edits = [(event, event.body) for event in run.events if isinstance(event.body, ViewEdited)]
        size = self._simulation.simulator.size
        billed = (size(run.before), size(self._simulation.session.log.view)) if edits else (0, 0)
        for event, body in edits:
            self._record_edit(event, body, billed, run.before)

    def record_peak(self) -> None:
        """Keep the current view if its request is the largest so far."""
        call = self._simulation.calls[-1]
        if call.tokens > self._peak_tokens:
            self._peak_tokens, self._fullest_view = call.tokens, self._simulation.session.log.view

    def check(self) -> None:
        """Encode and check the next request, if edits were made since the last check."""
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
            self.faults += faults[: _MOST_FAULTS - len(self.faults)]

    def census(self) -> tuple[WindowShare, ...]:
        """Return the tokens of the fullest view by kind and source, largest first."""
        return window_shares(self._fullest_view, self._simulation.counter.item)

    def _record_edit(self, event: Event, body: ViewEdited, billed: tuple[int, int], before: View) -> None:
        kind = kind_of(body.edits)
        loss = body.loss or Loss()
        hides = {self.recorded_seqs[seq] for name in loss.ids if (seq := seq_of(name)) in self.recorded_seqs}
        simulation = self._simulation
        survived = self._count_survival(body, event.seq, before.items) if kind == "fold" else None
        self.edits.append(
            ReplayedEdit(
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
                body.reasoning_lost,
                is_within_loop(before),
            )
        )
        self._unchecked += 1
        if kind != "mask" or self._unchecked >= _MOST_UNCHECKED:
            self.check()

    def _count_survival(self, body: ViewEdited, seq: int, before: tuple[Item, ...]) -> SurvivalCounts:
        """Return the survival counts of a folded span: entities in it, and those still visible."""
        log = self._simulation.session.log
        fold = next(edit for edit in body.edits if isinstance(edit, Fold))
        places = {item.id: place for place, item in enumerate(before)}
        run = before[places.get(fold.first, 0) : places.get(fold.last, len(before)) + 1]
        recorded = sorted(self.recorded_seqs.keys() & {seq_of(item.id) for item in run})
        after = log.view if log.tip == seq else log.state_at(seq).view
        visible = VisibleText([*texts_of(after.head), *texts_of(item for item in after.items if not is_name_list(item))])
        # A message that every fold keeps is far from the rest, so not everything in between is read.
        span = list(log.reader.along(Path(tuple(EventRange(seq, seq) for seq in recorded))))
        return survival_of(span, visible, numbers=self._index.numbers)


def window_shares(view: View, count: Callable[[Item], int]) -> tuple[WindowShare, ...]:
    """Return the tokens of a view by kind and by tool or source, largest first."""
    calls = answered_calls(view.items)
    found: dict[tuple[str, str], list[int]] = {}
    for item in (*view.head, *view.items):
        sums = found.setdefault((item.kind, _origin_of(item, calls)), [0, 0])
        sums[0] += count(item)
        sums[1] += 1
    rows = (WindowShare(kind, name, tokens, items) for (kind, name), (tokens, items) in found.items())
    return tuple(sorted(rows, key=lambda share: (-share.tokens, share.kind, share.name)))


def _origin_of(item: Item, calls: Mapping[str, ToolCall]) -> str:
    content = item.content
    if isinstance(content, ToolCall):
        return content.tool
    if isinstance(content, ToolResult):
        return calls[item.id].tool if item.id in calls else ""
    return item.source


def kind_of(edits: Iterable[Edit]) -> EditKind:
    """Return the kind that names the edits of one event: a fold before masks, masks before inserts."""
    forms: dict[type[Edit], EditKind] = {Fold: "fold", Mask: "mask", Insert: "insert"}
    present = {type(edit) for edit in edits}
    return next((kind for form, kind in forms.items() if form in present), "unmask")
