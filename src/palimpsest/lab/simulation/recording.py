"""A recorded session as steps to replay: inputs, the time of the request, and the reply."""

from collections.abc import Iterable
from dataclasses import dataclass

from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    ContextStated,
    Event,
    ModelReplied,
    NotesTaken,
    Pinned,
    Recalled,
    TaskChanged,
    Titled,
    ToolReturned,
    TurnEnded,
    UserSaid,
)
from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.simulation.calibration import TokenCalibration, calibrate

# Bodies that change the view or the evidence; edits of the recorded program are left out, because the raw conversation is replayed.
_INPUT_BODIES = (UserSaid, ToolReturned, ContextStated, Recalled, TaskChanged, NotesTaken, Pinned)


class RecordedInput(Value, frozen=True):
    """A recorded event body that arrived before a call, with its sequence number and time in milliseconds."""

    seq: int
    at: int
    body: Body


class Step(Value, frozen=True):
    """One recorded call: the inputs since the last reply, the time of the request in milliseconds, and the reply with its output tokens.

    `turn` is true if a user message opened a turn here, `ends` if the turn ended with this reply.
    """

    number: int
    seq: int
    at: int
    reply: ModelReplied
    output: int
    inputs: tuple[RecordedInput, ...] = ()
    turn: bool = False
    ends: bool = False


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session ready for any number of replays; all of them bill tokens by the same `calibration`."""

    session: str
    cwd: str
    origin: str
    model: str
    title: str
    events: int
    steps: tuple[Step, ...]
    calibration: TokenCalibration
    blobs: Blobs

    @property
    def tokens(self) -> int:
        """Tokens of the whole conversation: the size of the last request if nothing were ever edited."""
        contents = [item.content for step in self.steps for body in (*_input_bodies(step), step.reply) for item in items_of(0, body)]
        return self.calibration.unseen + self.calibration.scaled(sum(map(palimpsest_size, contents)))


def _input_bodies(step: Step) -> list[Body]:
    return [each.body for each in step.inputs]


def recording_of(log: Log, blobs: Blobs) -> RecordedSession:
    """Return the recording of a log of any origin, along its current path."""
    events = list(log.events())
    calibration = calibrate(events)
    opened = log.opened
    return RecordedSession(
        session=log.session,
        cwd=opened.cwd,
        origin=opened.origin,
        model=log.view.model,
        title=next((event.body.title for event in reversed(events) if isinstance(event.body, Titled)), ""),
        events=len(events),
        steps=tuple(_steps(events, calibration)),
        calibration=calibration,
        blobs=blobs,
    )


def _steps(events: Iterable[Event], calibration: TokenCalibration) -> list[Step]:
    """Return one step for each reply; inputs after the last reply were never sent and are left out."""
    steps: list[Step] = []
    inputs: list[RecordedInput] = []
    started: Event | None = None
    call_ids: set[str] = set()
    open_turn = False
    for event in events:
        body = event.body
        if isinstance(body, CallStarted):
            started = event if body.purpose == "turn" else started
        elif isinstance(body, ModelReplied):
            if body.purpose != TURN or not body.parts:
                continue
            at = _sent_at(event, started, inputs, steps)
            turn = not open_turn and any(isinstance(each.body, UserSaid) and not each.body.steering for each in inputs)
            steps.append(Step(len(steps), event.seq, at, body, _output_tokens(body, calibration), tuple(inputs), turn))
            call_ids.update(part.call_id for part in body.parts if isinstance(part, ToolCall))
            open_turn = True
            inputs, started = [], None
        elif isinstance(body, TurnEnded):
            _mark_turn_end(steps)
            open_turn = False
        elif isinstance(body, UserSaid) and not body.steering and open_turn and not _has_pending_calls(steps, inputs):
            # Not every program records the end of a turn; a user message after a reply without pending calls begins a new one.
            _mark_turn_end(steps)
            open_turn = False
            inputs.append(RecordedInput(event.seq, event.at, body))
        elif isinstance(body, _INPUT_BODIES) and not (isinstance(body, ToolReturned) and body.result.call_id not in call_ids):
            inputs.append(RecordedInput(event.seq, event.at, body))
    _mark_turn_end(steps)
    return steps


def _sent_at(event: Event, started: Event | None, inputs: list[RecordedInput], steps: list[Step]) -> int:
    """Return the time of the request in milliseconds.

    Some programs stamp a call with the time of its first output; it was sent no later than its last input arrived.
    """
    latest = started.at if started is not None else event.at
    input_at = max((each.at for each in inputs), default=latest)
    at = min(latest, event.at, input_at)
    return max(at, steps[-1].at) if steps else at


def _has_pending_calls(steps: list[Step], inputs: list[RecordedInput]) -> bool:
    """Whether the last reply has tool calls without a result."""
    if not steps:
        return False
    answered = {each.body.result.call_id for each in inputs if isinstance(each.body, ToolReturned)}
    return any(isinstance(part, ToolCall) and part.call_id not in answered for part in steps[-1].reply.parts)


def _mark_turn_end(steps: list[Step]) -> None:
    if steps:
        last = steps[-1]
        steps[-1] = Step(last.number, last.seq, last.at, last.reply, last.output, last.inputs, last.turn, ends=True)


def _output_tokens(reply: ModelReplied, calibration: TokenCalibration) -> int:
    """Return the output tokens: as recorded, but at least our estimate, because some programs record only the first part."""
    recorded = reply.usage.output
    return max(recorded, sum(calibration.scaled(palimpsest_size(part)) for part in reply.parts))
