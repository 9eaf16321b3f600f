"""Policies and jobs, the wants that their plans yield, the driver that answers the wants, and the situation that a plan reads."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from msgspec import field as renamed
from msgspec import structs

from palimpsest.core.budget import Budget
from palimpsest.core.calls import Health
from palimpsest.core.errors import BadInput, CannotFold, PalimpsestError
from palimpsest.core.events import (
    Event,
    Failed,
    JobRan,
    ModelReplied,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    Recalled,
    TaskChanged,
    Titled,
    stop_reason,
)
from palimpsest.core.items import EMPTY_MAPPING, Edit, FrozenDict, Item, Value, frozen
from palimpsest.core.ledger import JobState
from palimpsest.core.lines import Path
from palimpsest.core.spending import PRICE_STEPS, Ledger
from palimpsest.core.tokens import TokenSizes
from palimpsest.core.view import View

Moment: TypeAlias = Literal[
    "turn_starts", "before_call", "after_call", "folded", "turn_ends", "idle", "overflow", "asked", "switched", "resumed"
]
JobMoment: TypeAlias = Literal["said", "replied", "turn_ends", "idle", "session_ends", "resumed"]
"""The moments at which a job may start; `said` and `replied` are those of each input of the user and each reply of a turn."""

# Tokens that a fold usually leaves beside head and user messages: evidence 2,000, names 2,400, tail 15,000, results in use 9,000.
PARTS = 28_400


LONG_SUFFIX: Final = "[1m]"
"""The end of the name of a model that asks for its long window."""
WireName: TypeAlias = Literal["anthropic", "responses", "chat"]
ThinkingMode: TypeAlias = Literal["none", "budget", "adaptive", "always"]
"""How a model is asked to think: never, with a budget of tokens, adaptively, or not at all because it always does."""


class LongPrices(Value, frozen=True):
    """Dollars per million tokens for calls whose prompt has more than `above` tokens, one of `PRICE_STEPS`."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None

    def __post_init__(self) -> None:
        if self.above not in PRICE_STEPS:
            steps = ", ".join(map(str, PRICE_STEPS))
            raise BadInput(f"long prompts may have another price above {steps} tokens, not above {self.above}", where="prices.long.above")


class Prices(Value, frozen=True):
    """Dollars per million tokens; tokens whose cache price is `None` cost as much as input.

    Prices of zero are unknown, unless the model is `free`. They hold from the day `since` on (ISO 8601, UTC), and `before` it others.
    `later` are those of the last day that is known, with all before them; `None` if these are the last.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None
    long: LongPrices | None = None
    free: bool = False
    since: str = ""
    before: "Prices | None" = None
    later: "Prices | None" = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read", "cache_write", "cache_write_long"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise BadInput(f"a price must be a number of dollars that is not negative, not {value}", where=f"prices.{name}")
            if self.free and value:
                raise BadInput(f"a free model has no price of {value}", where=f"prices.{name}")

    @property
    def are_known(self) -> bool:
        """Whether these are prices at all."""
        return self.free or self.input > 0 or self.output > 0

    def on(self, day: str) -> "Prices":
        """The prices of a day, given as ISO 8601."""
        found = self if self.later is None else self.later
        while day < found.since and found.before is not None:
            found = found.before
        return found


class ModelCard(Value, frozen=True):
    """The facts about a model: wire, limits in tokens, media, cache and prices.

    `system_messages` says whether system messages may stand inside the conversation; `None` leaves it to the wire.
    `thinking` says how the model is asked to think: within a budget of tokens, adaptively, or not at all because it always does.
    `thinks_unasked` says that it thinks without being asked, which counts towards `max_tokens`; `thinking_off` is the type that asks it
    not to. `default_effort` is the effort it works with unasked; empty if that is not known, and
    `least_effort` the lowest that it accepts, if it refuses lower ones. `chat_tools` says whether it can be offered tools over OpenAI's
    Chat Completions: always, only at effort `none`, or never. `forced_tools` says whether a tool call may
    be demanded, `sampling` whether it accepts a temperature, and `prefill` whether the list may end with a message of the model.
    `compaction` says when the provider summarises: at a threshold only, or also on demand.
    `binds_thinking` says that each thinking block is bound to all that was sent before it: an edit of the past makes it unusable.
    `diagnoses_cache` says that its provider, at its own address, can be asked why its cache missed.
    `reads_thinking` names other models whose thinking this one reads. `drops_reasoning` says that the server leaves out reasoning behind
    a changed history without reporting it.
    """

    name: str
    wire: WireName
    provider: str
    window: int
    reply: int
    family: str = ""
    api_name: str = ""
    input_limit: int | None = None
    images: bool = True
    documents: bool = False
    audio: bool = False
    thinking: ThinkingMode = "none"
    thinks_unasked: bool = False
    thinking_off: Literal["disabled", "between_tools"] = "disabled"
    default_effort: str = ""
    least_effort: str = ""
    chat_tools: Literal["always", "unthinking", "never"] = "always"
    forced_tools: bool = True
    sampling: bool = True
    prefill: bool = True
    compaction: Literal["none", "threshold", "demand"] = "none"
    cache: Literal["none", "breakpoints", "automatic"] = "none"
    cache_minimum: int = 1024
    cache_edits: bool = False
    prices: Prices = Prices()
    call_ids: Literal["any", "claude", "mistral"] = "any"
    system_messages: bool | None = None
    binds_thinking: bool = False
    reads_thinking: tuple[str, ...] = ()
    drops_reasoning: bool = False
    diagnoses_cache: bool = False

    @property
    def takes_system_messages(self) -> bool:
        """Whether system messages may stand inside the conversation; by default on every wire but Anthropic Messages."""
        return self.wire != "anthropic" if self.system_messages is None else self.system_messages

    @property
    def takes_tool_changes(self) -> bool:
        """Whether tools that come and go are announced inside the conversation, because another list of tools would be an edit of all."""
        if self.wire == "responses":
            return self.drops_reasoning
        return self.wire == "anthropic" and self.binds_thinking and self.takes_system_messages

    @property
    def thinks(self) -> bool:
        """Whether the model can think."""
        return self.thinking != "none"

    @property
    def working_window(self) -> int:
        """Tokens of a prompt up to which the model is meant to be used: its limit, or less if the price of the whole call rises earlier.

        A name that asks for the long window accepts its price.
        """
        limit = min(self.window, self.input_limit or self.window)
        long = self.prices.long
        return limit if long is None or self.name.endswith(LONG_SUFFIX) else min(limit, long.above)


class CachedPrefix(Value, frozen=True):
    """A prefix in the provider's cache: its last item, its size in tokens, its last use (`at`) and its lifetime, both in milliseconds."""

    last: str
    tokens: int
    at: int
    ttl: int

    def live(self, now: int) -> bool:
        """Whether the prefix can still be read at time `now`, in milliseconds."""
        return now - self.at < self.ttl


class CacheReads(Value, frozen=True):
    """Cache reads of the last call, for detecting unexpected drops.

    `read` is in tokens, or `None` before the first report. `expected` is true if an edit explains a lower next read.
    `dropped` is the size of the last drop without such an explanation, in tokens.
    """

    read: int | None = None
    expected: bool = False
    dropped: int = 0


class Cache(Value, frozen=True):
    """Estimated state of the provider's cache, from the breakpoints that were sent and the reads that were reported.

    An `automatic` cache can be read up to any item. `frontier` is the item before the first position that the newest edit changed;
    `edited` is true until the next call. `called` is the time of the newest call in milliseconds. `missed` counts the calls in a row
    that read less than half of their prompt from the cache.
    """

    prefixes: tuple[CachedPrefix, ...] = ()
    frontier: str = ""
    automatic: bool = False
    edited: bool = False
    called: int | None = None
    missed: int = 0
    reads: CacheReads = renamed(name="watch", default=CacheReads())

    def best(self, now: int) -> str:
        """Return the last item of the longest live prefix; empty if the cache is cold."""
        live = [prefix for prefix in self.prefixes if prefix.live(now)]
        return max(live, key=lambda prefix: prefix.tokens).last if live else ""

    def longest(self, now: int) -> int:
        """Return the tokens of the longest live prefix; 0 if the cache is cold."""
        return max((prefix.tokens for prefix in self.prefixes if prefix.live(now)), default=0)


class CacheAccount(Value, frozen=True):
    """What the turns of a session cost with the cache as it was used, and as it would have been without any care for it.

    All costs are in input tokens, replies included: `paid` really, with the reads that only kept a prefix alive; `short` and `long` without
    such reads, if every prefix had lived for the default or for the extended lifetime. The other fields are pauses between calls that
    outlast the default lifetime, in milliseconds and oldest first: `working` while a turn was open, `waiting` for the user. `ends` counts
    sessions after which the user did not come back.
    """

    paid: float = 0.0
    short: float = 0.0
    long: float = 0.0
    working: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    ends: int = 0


class Use(Value, frozen=True):
    """Use of one tool result, in numbers of model calls: when it arrived, was last referred to, superseded, and became useless (`died`).

    `failed` marks an error that no later success of the same command has resolved.
    """

    arrived: int
    last_named: int | None = None
    died: int | None = None
    superseded: int | None = None
    kind: Literal["acknowledgement", "read", "report", "recalled", "other"] = "other"
    failed: bool = False


class CommandRun(Value, frozen=True):
    """A command that was run: its exit code (`None` while it runs), the event of its result, and the summary line of its output."""

    command: str
    exit: int | None = None
    seq: int = -1
    note: str = ""


class PendingCall(Value, frozen=True):
    """A tool call without a result, or a command that still runs in the background, and the evidence that its result will give.

    `handle` is the name by which later calls refer to a background command. `tests` is true for a command that runs tests. `tasks`
    replaces the whole task list, `task` adds one task and `drop` removes one.
    """

    call_id: str
    kind: str = "other"
    command: str = ""
    edited: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    handle: str = ""
    tasks: tuple[str, ...] | None = None
    task: str = ""
    drop: str = ""
    tests: bool = False


class ClosingMessage(Value, frozen=True):
    """The last text of the agent in a turn: its item, its time in milliseconds, and its first words on one line."""

    id: str
    at: int
    opening: str


class UserMessage(Value, frozen=True):
    """A user message: its first item, its time in milliseconds, its first words, its tokens, and whether it came during a turn.

    `closing` is the closing message of its turn; of several messages in a turn, the last one before that text has it.
    """

    id: str
    at: int
    opening: str
    tokens: int = 0
    steering: bool = False
    closing: ClosingMessage | None = None


class Evidence(Value, frozen=True):
    """What the log proves about the work so far; each list is ordered from oldest to newest.

    `numbered` are the keys of the tasks of a task graph, which stand last in `tasks`; a new list replaces all others. `earlier` counts
    the user messages before those in `user_messages`, and `earlier_tokens` are their tokens. `other_tools` are the tools whose calls left
    no other trace here, with the number of their results.
    """

    edited: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    tests: CommandRun | None = None
    errors: tuple[CommandRun, ...] = ()
    tasks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    user_messages: tuple[UserMessage, ...] = renamed(name="said", default=())
    pending: tuple[PendingCall, ...] = ()
    numbered: tuple[str, ...] = ()
    earlier: int = 0
    earlier_tokens: int = 0
    other_tools: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """A session at one moment, as a deeply immutable value.

    `tokens` are the sizes of the items in the view. `used` is the size of the next request in tokens, `incoming` the tokens of queued
    input and `tools_tokens` those of the tool declarations. `rent` is the rent since the last fold, in input tokens. `asked` is the focus
    that the user gave for a fold. `previous` is the model before a switch. `child` is true in the session of a sub-agent. `may_fold` is
    false if this turn has used up its folds. `parts` are the tokens that a fold leaves beside head and messages, in a window of 200k.
    `offered` are the names of the tools that the next request declares. `room` are the input tokens that edits may still cost more than
    they have saved; `None` is no limit. `states_work` is true in a session of our own agent, which itself states open tasks and the todo
    list after a fold. `transcript` is the path of the log, empty if it is not a file that the model could read. `reasoning` are the
    thinking blocks that the next request sends and that are bound to what stands before them: their output tokens by item, `None` where
    unknown; it is empty for other models. `rethought` is the share of lost reasoning that is expected to be thought again.
    """

    view: View
    budget: Budget
    card: ModelCard
    moment: Moment
    tokens: TokenSizes
    used: int = 0
    now: int = 0
    health: Health = field(default_factory=Health)
    ledger: Ledger = field(default_factory=Ledger)
    cache: Cache = field(default_factory=Cache)
    uses: Mapping[str, Use] = EMPTY_MAPPING
    rent: float = 0.0
    evidence: Evidence = field(default_factory=Evidence)
    asked: str = ""
    tools_tokens: int = 0
    incoming: int = 0
    previous: ModelCard | None = None
    session: str = ""
    child: bool = False
    may_fold: bool = True
    parts: int = PARTS
    offered: frozenset[str] = frozenset()
    room: float | None = None
    states_work: bool = False
    transcript: str = ""
    reasoning: Mapping[str, int | None] = EMPTY_MAPPING
    rethought: float = 0.0

    @property
    def listed_evidence(self) -> Evidence:
        """The evidence for the texts of a fold: without open tasks, if the engine states them after the fold."""
        evidence = self.evidence
        return structs.replace(evidence, tasks=(), numbered=()) if self.states_work and evidence.tasks else evidence

    def __post_init__(self) -> None:
        for name in ("uses", "reasoning"):
            if type(found := getattr(self, name)) is not FrozenDict:
                object.__setattr__(self, name, frozen(found))


@dataclass(frozen=True, slots=True)
class JobSituation:
    """All that a job may use when it starts. `tip` is the newest event, and `path` the events that led to it.

    `job` is what the log says about the job itself. `has_news` is true if the conversation went on since its cursor. `usd` is what its
    calls in this session have cost, in US dollars, or `None` if that is not known, and `now` is in milliseconds. `used` are the tokens of
    the next request of a turn, as the profile counts them. `account` is what its cache has cost and the pauses so far, `earlier` the same
    of the user's earlier sessions; `lifetime` is the one that its prefixes have if nothing chooses, in milliseconds. `bills`, where they
    are known, are the input tokens that were paid, and those that the same requests would have cost without edits and reads.
    """

    moment: JobMoment
    session: str
    now: int
    tip: int
    path: Path
    job: JobState
    has_news: bool
    usd: float | None
    view: View
    card: ModelCard
    health: Health
    ledger: Ledger
    cache: Cache
    evidence: Evidence
    used: int = 0
    account: CacheAccount = field(default_factory=CacheAccount)
    earlier: CacheAccount = field(default_factory=CacheAccount)
    lifetime: int = 300_000
    bills: tuple[float, float] | None = None


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
