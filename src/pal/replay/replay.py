"""Replays a recorded session under a profile, call by call, bills every request, and observes edits and what they hid."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Literal

from msgspec.structs import replace

from pal.replay.outcome import EditKind, Outcome, Purpose, ReplayedEdit, Reread, WindowShare, survival
from pal.replay.recording import RecordedInput, RecordedSession, RecordingIndex, Step
from pal.replay.rereads import DefinitionName, MissingContent, is_name_list
from pal.replay.simulation import RealSummaries, Simulation, filler_text, pause_until
from palimpsest.agent.calls import carry_out_now
from palimpsest.agent.editing import PolicyRun
from palimpsest.agent.ways_back import name_whole
from palimpsest.audit.loss import Survival as SurvivalCounts
from palimpsest.audit.loss import survival_of
from palimpsest.audit.reasoning import is_within_loop
from palimpsest.audit.visible import VisibleText, texts_of
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ContextStated, EditRefused, Event, ModelReplied, Statement, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Edit, Fold, Insert, Item, Loss, Mask, Text, ToolCall, ToolResult, answered_calls, seq_of
from palimpsest.core.lines import EventRange, Path
from palimpsest.core.plans import Moment, complete
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.view import View
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.profile import Profile
from palimpsest.wire.encode import Encoder
from palimpsest.wire.models import ModelCard
from palimpsest.wire.wires import check_request

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


UNSEEN_SOURCE = "unseen"
_FILLER = "What this program sent with every request and did not record: its instructions and its list of tools. "
_OPENING = "You work on the task of the user with the tools that are at hand."
_CLOSING = "Today is the day of the recording."


def replay(
    recording: RecordedSession,
    profile: Profile,
    card: ModelCard,
    *,
    ttl: Literal["5m", "1h"] = "5m",
    index: RecordingIndex | None = None,
    timing: bool = False,
    real: RealSummaries | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Outcome:
    """Replay a recording under a profile; `index` of the same recording may be shared between replays.

    With `real`, a model writes the summaries; without, profiles of other programs get imitated ones. `on_progress` gets the steps done
    and their total.
    """
    index = index or RecordingIndex(recording.steps)
    replaying = Replay(Simulation(recording, index, profile, card, ttl, real=real), index, unseen_head(recording))
    work = replaying.replay_all(recording.steps, on_progress)
    # Without a real model nothing awaits, so no event loop is needed.
    if real is None:
        complete(work)
    else:
        asyncio.run(work)
    return replaying.outcome(timing=timing)


def view_at(recording: RecordedSession, profile: Profile, card: ModelCard, number: int, index: RecordingIndex | None = None) -> View:
    """Return the view that a profile would send for the recorded call `number`, counted from 0, after replaying all calls before it."""
    index = index or RecordingIndex(recording.steps)
    replaying = Replay(Simulation(recording, index, profile, card, "5m"), index, unseen_head(recording))
    complete(replaying.replay_all(recording.steps[: number + 1], lambda *_: None))
    return replaying.asked


class Replay:
    """State of one replay; `asked` is the view for which the last recorded call was made.

    Before the calls of the steps `folds`, it folds as if the user had asked for it.
    """

    def __init__(
        self, simulation: Simulation, index: RecordingIndex, head: tuple[Statement, ...] = (), folds: AbstractSet[int] = frozenset()
    ) -> None:
        self._folds = folds
        self._simulation = simulation
        self._session = simulation.session
        self._index = index
        self._observer = Observer(simulation, index)
        self._head = head
        self._rereads: list[Reread] = []
        # By definition, the steps whose calls needed hidden content, once for each content.
        self.needy_steps: dict[DefinitionName, list[int]] = {name: [] for name in index.keys}
        self._offloads = 0
        self._fetches = 0
        self._pending_fetches: list[MissingContent] | None = None
        self._fetching: MissingContent | None = None
        self.asked = self._session.log.view
        simulation.on_policy_run = self._observer.record_policy_run

    async def replay_all(self, steps: Sequence[Step], on_progress: Callable[[int, int], None]) -> None:
        """Replay all recorded calls in order."""
        for step in steps:
            await self._replay_step(step)
            on_progress(step.number + 1, len(steps))
        await self._pause_until(None)

    async def _pause_until(self, at: int | None) -> None:
        await pause_until(self._session, at, self._simulation.environment.clock)

    async def _replay_step(self, step: Step) -> None:
        """Replay one recorded call: append its inputs, call, and end the turn if it ended there."""
        simulation, log = self._simulation, self._session.log
        await self._pause_until(step.at)
        simulation.step = step.number
        simulation.environment.clock.time = step.at
        if not step.number and not any(isinstance(each.body, ContextStated) and each.body.head is not None for each in step.inputs):
            log.append(ContextStated(head=self._head))
        opened = False
        for recorded_input in step.inputs:
            if step.turn and not opened and isinstance(recorded_input.body, UserSaid) and not recorded_input.body.steering:
                opened = True
                await simulation.start_turn(_input_tokens(recorded_input.body, simulation))
            self._append_input(recorded_input)
        if step.number in self._folds:
            await simulation.fold()
        self._pending_fetches, simulation.answer = None, partial(self._answer, step)
        while await self._call(step):
            pass
        if step.ends:
            await simulation.end_turn()
        self._observer.record_peak()

    async def _call(self, step: Step) -> bool:
        """Make one call through the engine. Returns true if it fetched hidden content, so the step needs another call."""
        reply = await self._simulation.call()
        # No event is recorded between the start of a call and its reply.
        seq = (reply.call or 0) + 1
        missing, self._fetching = self._fetching, None
        if missing is None:
            self._observer.recorded_seqs[seq] = step.seq
            return False
        self._append_fetched(step, seq, missing)
        return True

    def outcome(self, *, timing: bool) -> Outcome:
        """Return the result of the replay."""
        simulation = self._simulation
        self._observer.check()
        return Outcome(
            profile=self._session.profile.name,
            calls=tuple(simulation.calls),
            edits=tuple(self._observer.edits),
            rereads=tuple(self._rereads),
            rereads_by={name: len(steps) for name, steps in self.needy_steps.items()},
            census=self._observer.census(),
            offloads=self._offloads,
            invalid=self._observer.invalid,
            refused=self._observer.refused,
            faults=tuple(self._observer.faults),
            overflows=simulation.overflows,
            too_long=sum(call.tokens > self._session.card.window for call in simulation.calls),
            plan_ms=simulation.plan_seconds * 1_000 if timing else None,
            stopped=simulation.stopped,
            thinking_blocks=simulation.thinking_blocks,
        )

    def _answer(self, step: Step, view: View) -> tuple[ModelReplied, int, Purpose]:
        """Return the reply of a step to a view, its output tokens and its purpose.

        Content that the recorded reply needs and the view does not show is fetched first, one item a call.
        """
        if self._pending_fetches is None:
            self.asked = view
            self._pending_fetches = self._missing_content(step.number, view)
        if not self._pending_fetches:
            return step.reply, step.output, "turn"
        self._fetching = missing = self._pending_fetches.pop(0)
        self._fetches += 1
        call = replace(missing.call, call_id=f"again_{self._fetches}", ref="", given="")
        return ModelReplied((call,), stop="tool_use"), self._simulation.calibration.scaled(palimpsest_size(call)), "reread"

    def _missing_content(self, step: int, view: View) -> list[MissingContent]:
        """Return the contents that a step needs and the view does not show, by the definition that is billed; count them by all."""
        billed: list[MissingContent] = []
        for name, visible_keys in self._simulation.visible_keys.items():
            # Updated at each call, because what was shown once and is hidden since must be known.
            visible_keys.update(view)
            missing = visible_keys.missing(self._index.keys[name].required[step])
            self.needy_steps[name] += [step] * len(missing)
            if name == self._index.billed:
                billed = missing
            else:
                visible_keys.add_fetched(missing)
        return billed

    def _append_fetched(self, step: Step, seq: int, missing: MissingContent) -> None:
        """Append the result of a call that fetched hidden content."""
        simulation = self._simulation
        result = ToolResult(f"again_{self._fetches}", missing.content.parts)
        event = self._append_result(ToolReturned(result, tool=missing.call.tool))
        recorded_seqs = self._observer.recorded_seqs
        recorded = recorded_seqs[seq] = recorded_seqs[event.seq] = recorded_seqs.get(seq_of(missing.item), -1)
        tokens = simulation.counter.item(self._session.log.view.items[-1])
        self._rereads.append(Reread(step.number, simulation.now, missing.keys, recorded, tokens))

    def _append_input(self, recorded_input: RecordedInput) -> None:
        """Append one recorded input; a large result is shortened first by the profile's result limiter."""
        log, body = self._session.log, recorded_input.body
        if isinstance(body, ToolReturned):
            event = self._append_result(body)
        elif isinstance(body, ContextStated) and body.head is not None:
            event = log.append(replace(body, head=(*self._head[:-1], *body.head)))
        else:
            event = log.append(body)
        self._observer.recorded_seqs[event.seq] = recorded_input.seq

    def _append_result(self, returned: ToolReturned) -> Event:
        session, simulation = self._session, self._simulation
        limiter = session.profile.limiter(session.card)
        bounded = carry_out_now(limiter(returned), session)
        if bounded is not returned and isinstance(limiter, PreviewLimiter):
            # As the agent shows it, which has the tool `recall`; other programs have none. What was shortened when it was recorded stays.
            bounded = name_whole(bounded)
        simulation.environment.files.record_result(returned.result)
        event = session.log.append(bounded)
        if bounded.result is not returned.result:
            self._offloads += 1
            for visible_keys in simulation.visible_keys.values():
                visible_keys.update(session.log.view)
                visible_keys.add_truncated(f"{event.seq}.0", returned.result)
        return event


def _input_tokens(message: UserSaid, simulation: Simulation) -> int:
    counter = simulation.session.counter
    return sum(counter.scaled(counter.rule(part)) for part in message.parts)


def unseen_head(recording: RecordedSession) -> tuple[Statement, ...]:
    """Return a head of three blocks with as many tokens as the recording does not contain."""
    small = sum(palimpsest_size(Text(text)) for text in (_OPENING, _CLOSING))
    raw = round(recording.calibration.unseen / recording.calibration.factor) - small
    text = filler_text(_FILLER, raw) or _FILLER.strip()
    return tuple(Statement(f"{UNSEEN_SOURCE}_{number}", text, "system") for number, text in enumerate((_OPENING, text, _CLOSING)))
