"""Who may propose edits, what a plan may want from outside, and how it gets its answers."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import Event, Failed, JobRan, ModelReplied, NoteForgotten, NoteSaved, NotesTaken, Recalled, TaskChanged, Titled
from palimpsest.core.events.stops import stop_reason
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import Moment, Situation


class Ask(Value, frozen=True, tag="ask"):
    """A question to a model about some items: with our head and tools or without, for a purpose, and within limits.

    `system` is a head of its own in place of ours. `grants` names the tools that the model may use, in at most `turns` requests; no
    other tool is run, whatever the reply calls. `schema` is the JSON schema of the reply.
    An `endpoint` is another door of the same provider: `compact` answers with items in place of a reply.
    `breakpoint_rule` is that of the cache breakpoints, where it is not that of the conversation.
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


class Look(Value, frozen=True, tag="look"):
    """A file or a fact of the world outside, as it is now; the answer is `None` when there is no such thing."""

    name: str
    what: Literal["file", "fact"] = "file"


class Save(Value, frozen=True, tag="save"):
    """Bytes to be kept before anything points to them; the answer is their address.

    With a `name` they become a file of this session that other programs can read, never rewritten, and the answer is its path.
    """

    data: bytes
    name: str = ""


class EventSpan(Value, frozen=True, tag="span"):
    """Events of the log, both ends included, whether or not the view still shows them."""

    first: int
    last: int


Want: TypeAlias = Ask | Look | Save | EventSpan
Answer: TypeAlias = ModelReplied | str | tuple[Event, ...] | None
Edits: TypeAlias = tuple[Edit, ...]


# What a plan may record beside edits: what it noted, recalled or did.
PlanEvent: TypeAlias = NotesTaken | NoteSaved | NoteForgotten | Recalled | JobRan | TaskChanged | Titled


class Proposal(Value, frozen=True):
    """Edits with the reason for them, and events to be recorded before them.

    `failed` is what went wrong on the way without stopping it, `notices` are lines for the user.
    """

    edits: Edits = ()
    why: str = ""
    failed: tuple[Failed, ...] = ()
    notices: tuple[str, ...] = ()
    events: tuple[PlanEvent, ...] = ()


# How providers end a reply that the model would not give; what it says then is no answer.
Outcome: TypeAlias = Edits | Proposal
Steps: TypeAlias = Generator[Want, Answer, Outcome]
Plan: TypeAlias = Outcome | Steps
Result = TypeVar("Result")


class Policy(Protocol):
    """Proposes edits at its moments; one that `shrinks` never makes a view larger."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    @property
    def moments(self) -> frozenset[Moment]:
        """When it is asked for a plan."""
        ...

    @property
    def shrinks(self) -> bool:
        """Whether its edits may only make a view smaller."""
        ...

    def plan(self, situation: Situation) -> Plan:
        """The edits, or steps that want something first; an empty tuple rests."""
        ...


def ask(want: Ask) -> Generator[Want, Answer, ModelReplied]:
    """The reply of a model, for `yield from`; its failure arrives there as an exception, and so does its refusal."""
    answer = yield want
    if not isinstance(answer, ModelReplied):
        raise _wrong(want, answer)
    if stop_reason(answer.stop) == "refusal":
        raise CannotFold(f"the model refused to answer ({want.purpose})", kind="refused")
    return answer


def look(want: Look) -> Generator[Want, Answer, str | None]:
    """What is there, or nothing, for `yield from`."""
    answer = yield want
    if answer is None or isinstance(answer, str):
        return answer
    raise _wrong(want, answer)


def save(want: Save) -> Generator[Want, Answer, str]:
    """Where the bytes are kept, for `yield from`."""
    answer = yield want
    if isinstance(answer, str):
        return answer
    raise _wrong(want, answer)


def span(want: EventSpan) -> Generator[Want, Answer, tuple[Event, ...]]:
    """Events of the log, for `yield from`."""
    answer = yield want
    if isinstance(answer, tuple):
        return answer
    raise _wrong(want, answer)


def _wrong(want: Want, answer: Answer) -> BadInput:
    return BadInput(f"a {type(want).__name__} was answered with a {type(answer).__name__}; check the driver of the plan")


def proposal_of(outcome: Outcome) -> Proposal:
    """What was proposed, whichever way it was returned."""
    return outcome if isinstance(outcome, Proposal) else Proposal(outcome)


def steps_of(plan: Plan) -> Generator[Want, Answer, Proposal]:
    """A plan as steps, for `yield from`, whether or not it wants anything."""
    if isinstance(plan, tuple | Proposal):
        return proposal_of(plan)
    return proposal_of((yield from plan))


class _Done(NamedTuple):
    """What steps returned."""

    result: object


async def drive(
    steps: Generator[Want, Answer, Result],
    answer: Callable[[Want], Awaitable[Answer]],
    offload: Callable[[Callable[[], "Want | _Done"]], "Awaitable[Want | _Done]"] | None = None,
) -> Result:
    """Drive steps to what they return: the one place where wants meet answers. A `PalimpsestError` of an answer is thrown to the steps.

    `offload` runs what happens between two wants where it does not block the event loop.
    """

    def advance(given: Answer | PalimpsestError) -> Want | _Done:
        # A StopIteration must not leave a coroutine or a thread, so that the result comes back in a value.
        try:
            return steps.throw(given) if isinstance(given, PalimpsestError) else steps.send(given)
        except StopIteration as stop:
            return _Done(stop.value)

    given: Answer | PalimpsestError = None
    try:
        while True:
            want = advance(given) if offload is None else await offload(partial(advance, given))
            if isinstance(want, _Done):
                result: Result = cast("Result", want.result)
                return result
            try:
                given = await answer(want)
            except PalimpsestError as error:
                given = error
    finally:
        steps.close()


def complete(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never has to wait, without an event loop. Raises `RuntimeError` if it does wait."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    work.close()
    raise RuntimeError("the work had to wait for something, which needs an event loop")


def run_plan(plan: Plan, answer: Callable[[Want], Answer | PalimpsestError]) -> Outcome:
    """Drive a plan to its end without an event loop."""
    return plan if isinstance(plan, tuple | Proposal) else run_steps(plan, answer)


def run_steps(steps: Generator[Want, Answer, Result], answer: Callable[[Want], Answer | PalimpsestError]) -> Result:
    """Drive steps without an event loop; a failure may be raised or returned by `answer`."""

    async def answered(want: Want) -> Answer:
        given = answer(want)
        if isinstance(given, PalimpsestError):
            raise given
        return given

    return complete(drive(steps, answered))
