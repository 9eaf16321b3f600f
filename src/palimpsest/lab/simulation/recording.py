"""A recorded session as steps to be replayed: what arrived, when the request left, and what the model replied."""

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
from palimpsest.lab.simulation.measure import Measure, measure_of

# What changes the view or what is known of the work. The recorded program's own edits are left out: the raw conversation is replayed.
_ARRIVES = (UserSaid, ToolReturned, ContextStated, Recalled, TaskChanged, NotesTaken, Pinned)


class Arrived(Value, frozen=True):
    """Something that was there before a call, and the recorded event that brought it."""

    seq: int
    at: int
    body: Body


class Step(Value, frozen=True):
    """One recorded call: what arrived since the last reply, when the request left, and the reply with the tokens it had.

    `turn` says that a user message opened a turn here, `ends` that the turn ended with this reply.
    """

    number: int
    seq: int
    at: int
    reply: ModelReplied
    output: int
    arrived: tuple[Arrived, ...] = ()
    turn: bool = False
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """A session ready to be replayed, as often as wanted; `measure` is the one way in which its tokens are counted for money."""

    session: str
    cwd: str
    origin: str
    model: str
    title: str
    events: int
    steps: tuple[Step, ...]
    measure: Measure
    blobs: Blobs

    @property
    def tokens(self) -> int:
        """What all of it weighs together, as the last request would carry it if nothing were ever edited."""
        contents = [item.content for step in self.steps for body in (*_bodies(step), step.reply) for item in items_of(0, body)]
        return self.measure.unseen + self.measure.scaled(sum(map(palimpsest_size, contents)))


def _bodies(step: Step) -> list[Body]:
    return [arrived.body for arrived in step.arrived]


def recording_of(log: Log, blobs: Blobs) -> Recording:
    """The recording of a log of any origin, along its path."""
    events = list(log.events())
    measure = measure_of(events)
    opened = log.opened
    return Recording(
        session=log.session,
        cwd=opened.cwd,
        origin=opened.origin,
        model=log.view.model,
        title=next((event.body.title for event in reversed(events) if isinstance(event.body, Titled)), ""),
        events=len(events),
        steps=tuple(_steps(events, measure)),
        measure=measure,
        blobs=blobs,
    )


def _steps(events: Iterable[Event], measure: Measure) -> list[Step]:
    """Replies with what came before them; what comes after the last reply is never sent, so that it is left out."""
    steps: list[Step] = []
    arrived: list[Arrived] = []
    started: Event | None = None
    asked: set[str] = set()
    open_turn = False
    for event in events:
        body = event.body
        if isinstance(body, CallStarted):
            started = event if body.purpose == "turn" else started
        elif isinstance(body, ModelReplied):
            if body.purpose != TURN or not body.parts:
                continue
            at = _left(event, started, arrived, steps)
            turn = not open_turn and any(isinstance(each.body, UserSaid) and not each.body.steering for each in arrived)
            steps.append(Step(len(steps), event.seq, at, body, _output(body, measure), tuple(arrived), turn))
            asked.update(part.call_id for part in body.parts if isinstance(part, ToolCall))
            open_turn = True
            arrived, started = [], None
        elif isinstance(body, TurnEnded):
            _end(steps)
            open_turn = False
        elif isinstance(body, UserSaid) and not body.steering and open_turn and not _waits(steps, arrived):
            # Not every program records the end of a turn: a message after a reply without calls begins one.
            _end(steps)
            open_turn = False
            arrived.append(Arrived(event.seq, event.at, body))
        elif isinstance(body, _ARRIVES) and not (isinstance(body, ToolReturned) and body.result.call_id not in asked):
            arrived.append(Arrived(event.seq, event.at, body))
    _end(steps)
    return steps


def _left(event: Event, started: Event | None, arrived: list[Arrived], steps: list[Step]) -> int:
    """When the request left: some programs stamp a call with the time of its first answer, but it left when the last input was there."""
    latest = started.at if started is not None else event.at
    input_at = max((each.at for each in arrived), default=latest)
    at = min(latest, event.at, input_at)
    return max(at, steps[-1].at) if steps else at


def _waits(steps: list[Step], arrived: list[Arrived]) -> bool:
    """Whether calls of the last reply still wait for their results."""
    if not steps:
        return False
    answered = {each.body.result.call_id for each in arrived if isinstance(each.body, ToolReturned)}
    return any(isinstance(part, ToolCall) and part.call_id not in answered for part in steps[-1].reply.parts)


def _end(steps: list[Step]) -> None:
    if steps:
        last = steps[-1]
        steps[-1] = Step(last.number, last.seq, last.at, last.reply, last.output, last.arrived, last.turn, ends=True)


def _output(reply: ModelReplied, measure: Measure) -> int:
    """What the model wrote: as recorded, but some programs record only the first words of it."""
    recorded = reply.usage.output
    return max(recorded, sum(measure.scaled(palimpsest_size(part)) for part in reply.parts))
