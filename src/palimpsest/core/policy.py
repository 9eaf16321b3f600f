"""Who may propose edits, what a plan may want from outside, and how it gets its answers."""

from collections.abc import Callable, Generator
from typing import Literal, Protocol, TypeAlias

from palimpsest.core.edits import Edit
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.items import Item, Value
from palimpsest.core.situation import Moment, Situation


class Ask(Value, frozen=True, tag="ask"):
    """A question to a model about some items: with our head and tools or without, for a purpose, and within limits.

    `grants` names the tools it may use, in at most `turns` turns; `schema` is the JSON schema of the reply.
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


class Look(Value, frozen=True, tag="look"):
    """A file or a fact of the world outside, as it is now; the answer is `None` when there is no such thing."""

    name: str
    what: Literal["file", "fact"] = "file"


class Save(Value, frozen=True, tag="save"):
    """Bytes to be kept before anything points to them; the answer is their address."""

    data: bytes


class Span(Value, frozen=True, tag="span"):
    """Events of the log, both ends included, whether or not the view still shows them."""

    first: int
    last: int


Want: TypeAlias = Ask | Look | Save | Span
Answer: TypeAlias = ModelReplied | str | tuple[Event, ...] | None
Edits: TypeAlias = tuple[Edit, ...]
Steps: TypeAlias = Generator[Want, Answer, Edits]
Plan: TypeAlias = Edits | Steps


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
    """The reply of a model, for `yield from`; its failure arrives there as an exception."""
    answer = yield want
    if isinstance(answer, ModelReplied):
        return answer
    raise _wrong(want, answer)


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


def begin(plan: Plan) -> Want | Edits:
    """The first want of a plan, or its edits when it needs nothing."""
    return plan if isinstance(plan, tuple) else _moved(lambda: next(plan))


def proceed(steps: Steps, answer: Answer | PalimpsestError) -> Want | Edits:
    """The next want after an answer, or the edits; a failure is thrown to where the plan waits."""
    if isinstance(answer, PalimpsestError):
        return _moved(lambda: steps.throw(answer))
    return _moved(lambda: steps.send(answer))


def _moved(move: Callable[[], Want]) -> Want | Edits:
    try:
        return move()
    except StopIteration as stop:
        edits: Edits = stop.value
        return edits


def run_plan(plan: Plan, answer: Callable[[Want], Answer | PalimpsestError]) -> Edits:
    """Drive a plan to its edits; what `answer` raises or returns as a failure reaches the plan's own `except`."""
    if isinstance(plan, tuple):
        return plan
    try:
        step = begin(plan)
        while not isinstance(step, tuple):
            step = proceed(plan, _given(step, answer))
        return step
    finally:
        plan.close()


def _given(want: Want, answer: Callable[[Want], Answer | PalimpsestError]) -> Answer | PalimpsestError:
    try:
        return answer(want)
    except PalimpsestError as error:
        return error
