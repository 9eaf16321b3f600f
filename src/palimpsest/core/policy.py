"""Who may propose edits, what a plan may want from outside, and how it gets its answers."""

from collections.abc import Callable, Generator
from typing import Literal, Protocol, TypeAlias, TypeVar

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import Event, Failed, ModelReplied
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.stops import stop_reason


class Ask(Value, frozen=True, tag="ask"):
    """A question to a model about some items: with our head and tools or without, for a purpose, and within limits.

    `system` is a head of its own in place of ours. `grants` names the tools it may use, in at most `turns` turns; `schema` is the JSON
    schema of the reply. An `endpoint` is another door of the same provider: `compact` answers with items in place of a reply.
    `marks` is the rule of the cache marks, where it is not that of the conversation.
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
    marks: str = ""


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


class Span(Value, frozen=True, tag="span"):
    """Events of the log, both ends included, whether or not the view still shows them."""

    first: int
    last: int


Want: TypeAlias = Ask | Look | Save | Span
Answer: TypeAlias = ModelReplied | str | tuple[Event, ...] | None
Edits: TypeAlias = tuple[Edit, ...]


class Proposal(Value, frozen=True):
    """Edits with the reason for them; `failed` is what went wrong on the way without stopping it, `notices` are lines for the user.

    `told` is what a model wrote of the edits, where they hold words of our own beside it.
    """

    edits: Edits = ()
    why: str = ""
    failed: tuple[Failed, ...] = ()
    notices: tuple[str, ...] = ()
    told: str | None = None


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


def span(want: Span) -> Generator[Want, Answer, tuple[Event, ...]]:
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


def run_plan(plan: Plan, answer: Callable[[Want], Answer | PalimpsestError]) -> Outcome:
    """Drive a plan to its end; what `answer` raises or returns as a failure reaches the plan's own `except`."""
    return plan if isinstance(plan, tuple | Proposal) else run_steps(plan, answer)


def run_steps(steps: Generator[Want, Answer, Result], answer: Callable[[Want], Answer | PalimpsestError]) -> Result:
    """Drive any steps to what they return, one answer after the other."""
    try:
        want = next(steps)
        while True:
            given = _given(want, answer)
            want = steps.throw(given) if isinstance(given, PalimpsestError) else steps.send(given)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        steps.close()


def _given(want: Want, answer: Callable[[Want], Answer | PalimpsestError]) -> Answer | PalimpsestError:
    try:
        return answer(want)
    except PalimpsestError as error:
        return error
