"""All that a policy may look at, as values that each follow from the log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from msgspec import field as renamed

from palimpsest.core.items import EMPTY, FrozenDict, Value, frozen
from palimpsest.core.projections.health import Health
from palimpsest.core.projections.ledger import Ledger
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.view_sizes import TokenSizes
from palimpsest.core.view import View

Moment: TypeAlias = Literal[
    "turn_starts", "before_call", "after_call", "folded", "turn_ends", "idle", "overflow", "asked", "switched", "resumed"
]

# What a fold usually leaves beside head and messages: evidence 2,000, names 2,400, tail 15,000, results in use 9,000.
PARTS = 28_400


class CardPrices(Protocol):
    """Dollars per million tokens; a cache price of `None` means that part is billed as input."""

    @property
    def input(self) -> float:
        """Input that is not read from the cache."""
        ...

    @property
    def output(self) -> float:
        """What it writes."""
        ...

    @property
    def cache_read(self) -> float | None:
        """What it reads from its cache."""
        ...

    @property
    def cache_write(self) -> float | None:
        """What goes into its cache for the usual time."""
        ...

    @property
    def cache_write_long(self) -> float | None:
        """What goes into its cache for longer."""
        ...


class Card(Protocol):
    """What a policy needs to know of a model."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def provider(self) -> str:
        """Who serves it."""
        ...

    @property
    def wire(self) -> str:
        """The shape of its requests."""
        ...

    @property
    def window(self) -> int:
        """How many tokens fit."""
        ...

    @property
    def reply(self) -> int:
        """How many it may write at once."""
        ...

    @property
    def images(self) -> bool:
        """Whether it sees pictures."""
        ...

    @property
    def cache(self) -> Literal["none", "breakpoints", "automatic"]:
        """How its cache is filled: by breakpoints that we set, by itself, or not at all."""
        ...

    @property
    def cache_minimum(self) -> int:
        """The shortest prefix that it keeps."""
        ...

    @property
    def cache_edits(self) -> bool:
        """Whether parts of a cached prefix can be dropped."""
        ...

    @property
    def prices(self) -> CardPrices:
        """What it costs."""
        ...


class CachedPrefix(Value, frozen=True):
    """A prefix that the provider keeps: the last item in it, its tokens, when it was last used, and for how long that lasts."""

    last: str
    tokens: int
    at: int
    ttl: int

    def live(self, now: int) -> bool:
        """Whether it can still be read; times are in milliseconds."""
        return now - self.at < self.ttl


class CacheReads(Value, frozen=True):
    """The cache reads of the last call, whether a drop is expected, and how many tokens the last one dropped that was not."""

    read: int | None = None
    expected: bool = False
    dropped: int = 0


class Cache(Value, frozen=True):
    """What we believe to be cached, from the breakpoints that were sent and the reads that were reported.

    An `automatic` cache can be read up to any item. `frontier` is the item before the oldest place that the newest edit changed, and
    `edited` says that no call was made since. `called` is when the newest call left, and `missed` how many calls in a row read less than
    half of their prompt.
    """

    prefixes: tuple[CachedPrefix, ...] = ()
    frontier: str = ""
    automatic: bool = False
    edited: bool = False
    called: int | None = None
    missed: int = 0
    reads: CacheReads = renamed(name="watch", default=CacheReads())

    def best(self, now: int) -> str:
        """The item that ends the longest live prefix, if there is one."""
        live = [prefix for prefix in self.prefixes if prefix.live(now)]
        return max(live, key=lambda prefix: prefix.tokens).last if live else ""

    def longest(self, now: int) -> int:
        """Tokens of the longest live prefix; 0 when the cache is cold."""
        return max((prefix.tokens for prefix in self.prefixes if prefix.live(now)), default=0)

    def before(self, item_id: str, view: View, now: int) -> int:
        """Tokens of the longest live prefix that ends before an item."""
        places = {item.id: place for place, item in enumerate((*view.head, *view.items))}
        here = places.get(item_id, 0)
        return max(
            (prefix.tokens for prefix in self.prefixes if prefix.live(now) and places.get(prefix.last, here) < here),
            default=0,
        )


class Use(Value, frozen=True):
    """The life of one tool result in model calls: when it arrived, was last named, superseded, and died; `died` is `None` while it lives.

    `failed` is an error that no success of the same command has followed.
    """

    arrived: int
    last_named: int | None = None
    died: int | None = None
    superseded: int | None = None
    kind: Literal["acknowledgement", "read", "report", "recalled", "other"] = "other"
    failed: bool = False


class CommandRun(Value, frozen=True):
    """A command, its exit code if it ended, the event that says so, and the line of its output that sums it up."""

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


class UserMessage(Value, frozen=True):
    """A message of the user: its first item, when it came, its opening words, its tokens, and whether a turn was under way."""

    id: str
    at: int
    opening: str
    tokens: int = 0
    steering: bool = False


class Evidence(Value, frozen=True):
    """What the log proves about the work so far, newest last."""

    edited: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    tests: CommandRun | None = None
    errors: tuple[CommandRun, ...] = ()
    tasks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    user_messages: tuple[UserMessage, ...] = renamed(name="said", default=())
    pending: tuple[PendingCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """One moment of a session, which nothing can change: each part is immutable, and so is what it is made of.

    `tokens` are the sizes of the view's items, `used` counts what the next request would carry, `rent` what a fold has earned by waiting.
    `asked` is what the user wants a fold to look at, `incoming` the tokens of what was typed and is not said yet, `previous` the model
    before a switch; a `child` is the session of a sub-agent. Unless it `may_fold` this turn had its folds;
    `parts` is what a fold leaves beside head and messages, in a window of 200k.
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
    uses: Mapping[str, Use] = EMPTY
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

    def __post_init__(self) -> None:
        if type(self.uses) is not FrozenDict:
            object.__setattr__(self, "uses", frozen(self.uses))
