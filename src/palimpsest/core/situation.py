"""The situations that policies and jobs get: frozen values that are all derived from the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from msgspec import field as renamed
from msgspec import structs

from palimpsest.core.format.path import Path
from palimpsest.core.items import EMPTY_MAPPING, FrozenDict, Value, frozen
from palimpsest.core.projections.health import Health
from palimpsest.core.projections.jobs import JobState
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.spending import Ledger
from palimpsest.core.tokens.view_sizes import TokenSizes
from palimpsest.core.view import View

Moment: TypeAlias = Literal[
    "turn_starts", "before_call", "after_call", "folded", "turn_ends", "idle", "overflow", "asked", "switched", "resumed"
]
JobMoment: TypeAlias = Literal["said", "replied", "turn_ends", "idle", "session_ends", "resumed"]
"""The moments at which a job may start; `said` and `replied` are those of each input of the user and each reply of a turn."""

# Tokens that a fold usually leaves beside head and user messages: evidence 2,000, names 2,400, tail 15,000, results in use 9,000.
PARTS = 28_400


class CardPrices(Protocol):
    """Prices of a model in dollars per million tokens; a cache price of `None` means that the part is billed as input."""

    @property
    def input(self) -> float:
        """Input that is not read from the cache."""
        ...

    @property
    def output(self) -> float:
        """Output."""
        ...

    @property
    def cache_read(self) -> float | None:
        """Input that is read from the cache."""
        ...

    @property
    def cache_write(self) -> float | None:
        """Input that is written to the cache with the default lifetime."""
        ...

    @property
    def cache_write_long(self) -> float | None:
        """Input that is written to the cache with the extended lifetime."""
        ...


class Card(Protocol):
    """The facts about a model that a policy may use."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider that serves the model."""
        ...

    @property
    def wire(self) -> str:
        """Name of the wire format of its requests."""
        ...

    @property
    def window(self) -> int:
        """Size of the context window, in tokens."""
        ...

    @property
    def working_window(self) -> int:
        """Tokens of a prompt up to which the model is meant to be used, which is less where the price of the whole call rises."""
        ...

    @property
    def reply(self) -> int:
        """Longest reply, in tokens."""
        ...

    @property
    def images(self) -> bool:
        """Whether it accepts images."""
        ...

    @property
    def cache(self) -> Literal["none", "breakpoints", "automatic"]:
        """Kind of prompt cache: none, filled at the breakpoints of a request, or automatic."""
        ...

    @property
    def cache_minimum(self) -> int:
        """Shortest prefix that is cached, in tokens."""
        ...

    @property
    def cache_edits(self) -> bool:
        """Whether the provider clears tool results itself when a request asks for it."""
        ...

    @property
    def compaction(self) -> Literal["none", "threshold", "demand"]:
        """Whether the provider summarises the conversation: never, at a threshold only, or also on demand."""
        ...

    @property
    def binds_thinking(self) -> bool:
        """Whether its thinking is refused or dropped once anything before it has changed."""
        ...

    @property
    def drops_reasoning(self) -> bool:
        """Whether the provider silently leaves out reasoning once anything before it has changed."""
        ...

    @property
    def prices(self) -> CardPrices:
        """Its prices."""
        ...


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
    card: Card
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
    previous: Card | None = None
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
    card: Card
    health: Health
    ledger: Ledger
    cache: Cache
    evidence: Evidence
    used: int = 0
    account: CacheAccount = field(default_factory=CacheAccount)
    earlier: CacheAccount = field(default_factory=CacheAccount)
    lifetime: int = 300_000
    bills: tuple[float, float] | None = None
