"""Policies and jobs, the wants that their plans yield, and the driver that answers the wants."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import Event, Failed, JobRan, ModelReplied, NoteForgotten, NoteSaved, NotesTaken, Recalled, TaskChanged, Titled
from palimpsest.core.events.stops import stop_reason
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import JobMoment, JobSituation, Moment, Situation


class OfferedTool(Value, frozen=True):
    """A tool that a request offers and its plan runs itself; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: str


class Ask(Value, frozen=True, tag="ask"):
    """Ask a model: send some items and a prompt, with or without the head and the tools of the session. The answer is a `ModelReplied`.

    `system` replaces the head of the session. `reply` limits the reply, in tokens. `grants` are the tools that are run for the model, in
    at most `turns` requests; calls of other tools get an error. With `runs_last` the calls of the last reply are run too. `schema` is the
    JSON schema of the reply. `endpoint` selects another endpoint of the provider: `compact` returns items instead of a reply.
    `breakpoint_rule` overrides the rule for cache breakpoints. `offers` are tools of the plan: their calls come back with the reply, and
    the next want states their results. `effort` replaces that of the session. `instructions` say what a compaction should hold.
    """

    items: tuple[Item, ...]
    prompt: str
    purpose: str
    head: bool = True
    tools: bool = True
    model: str = ""
    reply: int = 0
    schema: str = ""
    grants: tuple[str, ...] = ()
    turns: int = 1
    system: str = ""
    endpoint: str = ""
    breakpoint_rule: str = ""
    runs_last: bool = False
    offers: tuple[OfferedTool, ...] = ()
    effort: str = ""
    instructions: str = ""


class AskTogether(Value, frozen=True, tag="ask_together"):
    """Ask several things at once. The answer is `Replies`: to each its reply, or the error of its call."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers to questions that were asked together, in their order."""

    answers: "tuple[ModelReplied | PalimpsestError, ...]"


class Look(Value, frozen=True, tag="look"):
    """Read a file or a fact of the environment. The answer is its current text, or `None` if it does not exist."""

    name: str
    what: Literal["file", "fact"] = "file"


class Save(Value, frozen=True, tag="save"):
    """Store bytes as a blob, before any event refers to them. The answer is the address of the blob.

    With a `name` the bytes are stored as a file of this session that other programs can read, and the answer is its path. `in_project`
    stores them as a new file of the working folder instead; if the name is taken, a number is added to it.
    """

    data: bytes
    name: str = ""
    in_project: bool = False


class EventSpan(Value, frozen=True, tag="span"):
    """Read the events `first` to `last` of the log, both included, whether or not they are visible. The answer is a tuple of events."""

    first: int
    last: int


class FoldPlanned(Value, frozen=True, tag="fold_planned"):
    """Announce a fold that is about to be installed, to whatever wants to run before it; `tokens` is the size of the view.

    Only the engine yields it. The answer is `None`.
    """

    tokens: int


Want: TypeAlias = Ask | AskTogether | Look | Save | EventSpan | FoldPlanned
Answer: TypeAlias = ModelReplied | Replies | str | tuple[Event, ...] | None
Edits: TypeAlias = tuple[Edit, ...]


# Events that a plan may record beside its edits.
PlanEvent: TypeAlias = NotesTaken | NoteSaved | NoteForgotten | Recalled | JobRan | TaskChanged | Titled


class Proposal(Value, frozen=True):
    """The outcome of a plan: edits with their reason, and events to be recorded before them.

    `failed` are failures that did not stop the plan; `notices` are lines for the user.
    """

    edits: Edits = ()
    why: str = ""
    failed: tuple[Failed, ...] = ()
    notices: tuple[str, ...] = ()
    events: tuple[PlanEvent, ...] = ()


Outcome: TypeAlias = Edits | Proposal
Steps: TypeAlias = Generator[Want, Answer, Outcome]
Plan: TypeAlias = Outcome | Steps
Result = TypeVar("Result")


class Policy(Protocol):
    """Proposes edits of the view at certain moments."""

    @property
    def name(self) -> str:
        """Its name in the log."""
        ...

    @property
    def moments(self) -> frozenset[Moment]:
        """The moments at which it runs."""
        ...

    @property
    def shrinks(self) -> bool:
        """Whether its edits must make the view smaller; the gate enforces it."""
        ...

    def plan(self, situation: Situation) -> Plan:
        """Return edits (an empty tuple for none), or a generator that yields wants and returns edits."""
        ...


# Events that a job may record. How its run ended is recorded by the engine.
JobEvent: TypeAlias = NotesTaken | NoteSaved | NoteForgotten | Recalled | TaskChanged | Titled


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a run that did its work: the events to be recorded, and a reason that is recorded with them.

    `commit` has the effects of the job outside of the log. It is called once, when the run can no longer be cancelled, and returns further
    events; so what it does and what the log says about it cannot come apart. `cursor` is the last event that the job is done with, if that
    is not the newest one. `notice` is a line for the user.
    """

    events: tuple[JobEvent, ...] = ()
    why: str = ""
    notice: str = ""
    commit: "Callable[[], JobEnd] | None" = None
    cursor: int | None = None


# What a run of a job comes to; `None` means that there was nothing to do, and nothing is recorded.
JobOutcome: TypeAlias = tuple[JobEvent, ...] | JobEnd | None
JobSteps: TypeAlias = Generator[Want, Answer, JobOutcome]
JobPlan: TypeAlias = JobOutcome | JobSteps


class JobLimits(Value, frozen=True):
    """The most that a job may use: US dollars in a session (`None`: no limit), and model calls and seconds in one run.

    `pause_ms` is the shortest time between two runs, in milliseconds.
    """

    usd: float | None = None
    calls: int = 4
    seconds: float = 120.0
    pause_ms: int = 0


class Job(Protocol):
    """Background work beside turns: reads the events since its cursor, and returns events that do not change what the model sees now."""

    @property
    def name(self) -> str:
        """Its name in the log."""
        ...

    @property
    def moments(self) -> frozenset[JobMoment]:
        """The moments at which it may start; at `idle` it may start although there is nothing new."""
        ...

    @property
    def limits(self) -> JobLimits:
        """What it may use."""
        ...

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return events or a `JobEnd`, `None` if there is nothing to do, or a generator that yields wants and returns one of these."""
        ...


def ask(want: Ask) -> Generator[Want, Answer, ModelReplied]:
    """Yield the want and return the reply, for `yield from`.

    Raises `CannotFold` if the model refuses, and the `PalimpsestError` of a failed call.
    """
    answer = yield want
    if not isinstance(answer, ModelReplied):
        raise _wrong_answer(want, answer)
    if stop_reason(answer.stop) == "refusal":
        raise CannotFold(f"the model refused to answer ({want.purpose})", kind="refused")
    return answer


def look(want: Look) -> Generator[Want, Answer, str | None]:
    """Yield the want and return the text, or `None` if it does not exist; for `yield from`."""
    answer = yield want
    if answer is None or isinstance(answer, str):
        return answer
    raise _wrong_answer(want, answer)


def look_or_none(want: Look) -> Generator[Want, Answer, str | None]:
    """Yield the want and return the text; `None` if it does not exist or cannot be read."""
    try:
        return (yield from look(want))
    except PalimpsestError:
        return None


def save(want: Save) -> Generator[Want, Answer, str]:
    """Yield the want and return the address or path of the stored bytes, for `yield from`."""
    answer = yield want
    if isinstance(answer, str):
        return answer
    raise _wrong_answer(want, answer)


def span(want: EventSpan) -> Generator[Want, Answer, tuple[Event, ...]]:
    """Yield the want and return the events, for `yield from`."""
    answer = yield want
    if isinstance(answer, tuple):
        return answer
    raise _wrong_answer(want, answer)


def path_events(situation: JobSituation, first: int, last: int) -> Generator[Want, Answer, tuple[Event, ...]]:
    """Read the events `first` to `last`, and return those of the current path, for `yield from`."""
    return tuple(event for event in (yield from span(EventSpan(first, last))) if event.seq in situation.path)


def _wrong_answer(want: Want, answer: Answer) -> BadInput:
    return BadInput(f"the want {type(want).__name__} was answered with {type(answer).__name__}; check the driver of the plan")


def proposal_of(outcome: Outcome) -> Proposal:
    """Return an outcome as a `Proposal`."""
    return outcome if isinstance(outcome, Proposal) else Proposal(outcome)


def steps_of(plan: Plan) -> Generator[Want, Answer, Proposal]:
    """Return a plan as a generator that returns a `Proposal`, for `yield from`."""
    if isinstance(plan, tuple | Proposal):
        return proposal_of(plan)
    return proposal_of((yield from plan))


class _Done(NamedTuple):
    """The return value of finished steps."""

    result: object


async def drive(
    steps: Generator[Want, Answer, Result],
    answer: Callable[[Want], Awaitable[Answer]],
    offload: Callable[[Callable[[], "Want | _Done"]], "Awaitable[Want | _Done]"] | None = None,
) -> Result:
    """Run steps to their end and return their result. Each want is passed to `answer`; what that raises is thrown into the steps.

    `offload` runs the code between two wants outside the event loop.
    """

    def advance(given: Answer | Exception) -> Want | _Done:
        # A StopIteration cannot pass through a coroutine or a thread, so the result is wrapped in a value.
        try:
            return steps.throw(given) if isinstance(given, Exception) else steps.send(given)
        except StopIteration as stop:
            return _Done(stop.value)

    given: Answer | Exception = None
    try:
        while True:
            want = advance(given) if offload is None else await offload(partial(advance, given))
            if isinstance(want, _Done):
                result: Result = cast("Result", want.result)
                return result
            try:
                given = await answer(want)
            except Exception as error:  # noqa: BLE001 - whose want cannot be answered must learn of it, whatever is wrong with the want
                given = error
    finally:
        steps.close()


def complete(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, without an event loop, and return its result. Raises `RuntimeError` if it waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    work.close()
    raise RuntimeError("the work had to wait for something, which needs an event loop")


def run_steps(steps: Generator[Want, Answer, Result], answer: Callable[[Want], Answer | PalimpsestError]) -> Result:
    """Run steps without an event loop and return their result; `answer` may raise or return a `PalimpsestError`."""

    async def answered(want: Want) -> Answer:
        given = answer(want)
        if isinstance(given, PalimpsestError):
            raise given
        return given

    return complete(drive(steps, answered))
