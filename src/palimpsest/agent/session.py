"""A session with its log, profile, model and tools, its environment, and the thinking that an edit could take away."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock, Thread
from typing import Any, Final, Literal, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from palimpsest.audit.cache import FIVE_MINUTES_MS, HOUR_MS, CacheProjection
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.prices import AccountProjection, RentProjection, chosen_lifetime, reserve, room_of, tariff_of
from palimpsest.audit.reasoning import maker_of_thinking, reasoning_lost, still_bound, thinking_of_request, total_lost
from palimpsest.audit.sizes import Metering
from palimpsest.audit.tool_calls import Action, declared_classes
from palimpsest.audit.uses import UsesProjection
from palimpsest.audit.working_state import KnownFile, WorkingProjection, still_shown
from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput, NoModel
from palimpsest.core.events import (
    Event,
    ModeChanged,
    ModelReplied,
    ModelSwitched,
    Noticed,
    Pinned,
    ProfileChanged,
    SessionOpened,
    ToolsOffered,
    items_of,
)
from palimpsest.core.items import EMPTY_MAPPING, Content, Item, ReasoningLost, ToolResult, seq_of
from palimpsest.core.log import Log, recover
from palimpsest.core.plans import PARTS, CacheAccount, CachedPrefix, Edits, Look, Moment, Situation
from palimpsest.core.ports import Blobs, Clock, Provider, Sendable, SessionStore
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import tool_list_size
from palimpsest.core.undo import plan_undo
from palimpsest.core.view import EMPTY_VIEW, Projection, View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.policies.profile import Profile
from palimpsest.providers.retrying import DEFAULT, RetryPolicy
from palimpsest.sources.source import folded_at
from palimpsest.wire.binding import ANY_PREFIX
from palimpsest.wire.encode import Encoder, PastThinking, is_bound, recorded_tools, sent_effort
from palimpsest.wire.media import Fetch, NotedFetch
from palimpsest.wire.models import CARDS, ModelCard, Tariff, card, recorded_card
from palimpsest.wire.request import Params, Tool


class BoundReasoning:
    """The thinking blocks of the view of one log. `card_of` returns the card of a model that the log names.

    A block is left out from the next call on if something before it has changed since the last one, or if that one left it out already.
    """

    def __init__(self, log: Log, card_of: Callable[[str], ModelCard]) -> None:
        self._log = log
        self._card_of = card_of
        # The newest view since the last call from which no edit had taken thinking, and its thinking.
        self._whole: View = EMPTY_VIEW
        self._sent: Mapping[str, int | None] = EMPTY_MAPPING
        self._tokens: dict[str, int | None] = {}

    def tokens(self, view: View, model: ModelCard, counter: TokenCounter) -> Mapping[str, int | None]:
        """The output tokens of each block that the next request sends to a model, `None` where unknown; empty if it binds no thinking."""
        if not is_bound(model):
            return EMPTY_MAPPING
        withheld = frozenset(() if view.call is None else view.call.withheld)
        known = self._tokens
        sent = [item for item in thinking_of_request(view) if item.id not in withheld and self._is_bound(item, model)]
        self._tokens = {item.id: known[item.id] if item.id in known else self.thought(item, model, counter) for item in sent}
        left = self._tokens if view.call is not self._whole.call else still_bound(self._whole, view, self._sent, self._tokens)
        if len(left) == len(self._tokens):
            self._whole, self._sent = view, left
        return left

    def withheld(self, view: View, model: ModelCard, counter: TokenCounter) -> tuple[str, ...]:
        """The ids of the blocks that the next request to a model leaves out."""
        if not is_bound(model):
            return ()
        sent = self.tokens(view, model, counter)
        return tuple(item.id for item in thinking_of_request(view) if item.id not in sent and self._is_bound(item, model))

    def _is_bound(self, item: Item, model: ModelCard) -> bool:
        """Whether an item is thinking that a model can be sent, and that was bound to its list by the model that made it."""
        maker = maker_of_thinking(item, model)
        return maker is not None and (maker == model.name or is_bound(self._card_of(maker)))

    def thought(self, item: Item, model: ModelCard, counter: TokenCounter) -> int | None:
        """The tokens that a block took to think: its share of what the reply reported, else our estimate; `None` if neither tells."""
        reply = self._log.event(seq_of(item.id)).body
        if isinstance(reply, ModelReplied) and reply.usage.reasoning:
            blocks = sum(self._is_bound(each, model) for each in items_of(seq_of(item.id), reply))
            return round(reply.usage.reasoning / max(1, blocks))
        return counter.item(item) or None


Result = TypeVar("Result")


class Encoded(Sendable, Protocol):
    """An encoded request with the facts that are recorded about it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the request body, in hex."""
        ...

    @property
    def breakpoints(self) -> tuple[str, ...]:
        """The items, or `head:n`, at the cache breakpoints of the request."""
        ...


class RequestEncoder(Protocol):
    """Encodes the successive views of one session. A replay has one of its own beside `Encoder`, whose requests have no bytes."""

    def encode(self, view: View) -> Encoded:
        """Return the request that shows a view."""
        ...

    def revised(self, params: Params, tools: tuple[Tool, ...] | None = None) -> Self:
        """Return an encoder for other parameters or tools."""
        ...


class Offload(Protocol):
    """Runs a slow function without blocking the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return the result of the function."""
        ...


@dataclass(frozen=True, slots=True)
class GrantedTool:
    """A tool that a plan may grant to a side call: its declaration, and the function that gets the arguments and returns the output."""

    tool: Tool
    run: Callable[[str], Awaitable[str]]


def nothing_to_look_at(_: Look) -> str | None:
    """Return `None`: an environment without files and facts."""
    return None


async def no_hooks(tokens: int) -> None:
    """Do nothing: an environment without hooks."""


def no_provider(card: ModelCard, purpose: str) -> Provider:
    """Raise `NoModel`: an environment without models."""
    raise NoModel(f"no model is available for {purpose}; set an API key or name a model, or go on without", where=card.name)


def _encoder(card: ModelCard, tools: tuple[Tool, ...], params: Params, fetch: Fetch) -> RequestEncoder:
    return Encoder(card, tools, params, fetch)


class SessionThread:
    """Runs functions one after the other in a thread of its own, which ends with the environment that uses it.

    A thread has a heap of its own in the C library, which grows to the size of the largest request that is made there. The threads of
    asyncio take turns, so that there would be one such heap for each of them.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "session")

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        """Run a function and return its result. A cancelled task ends only after the function has."""
        return await _completed(self._thread, work)


async def in_thread(work: Callable[[], Result], /) -> Result:
    """Run a function in any thread and return its result. A cancelled task ends only after the function has."""
    return await _completed(None, work)


async def _completed(threads: ThreadPoolExecutor | None, work: Callable[[], Result]) -> Result:
    """Run a function in a thread, one of asyncio's if `threads` is `None`, and return its result.

    A thread cannot be stopped, and the session must not continue while a thread still works on its log.
    """
    context = copy_context()
    running = asyncio.get_running_loop().run_in_executor(threads, lambda: context.run(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        if not running.cancelled():
            # Retrieved, because asyncio reports exceptions that were never retrieved.
            running.exception()
        raise


async def outcome_in_thread(work: Callable[[], Result], name: str) -> tuple[Result | None, BaseException | None]:
    """Run a function of another author in a thread of its own, and return its result, or what it raised, whatever that is.

    If the task is cancelled, it ends at once and the thread is left to itself. The thread does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Result | None, BaseException | None]] = loop.create_future()

    def report(result: Result | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - a thread has no caller that could get it
            failure = error
        # The loop may be closed when an abandoned thread ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(report, result, failure)

    Thread(target=run, daemon=True, name=name).start()
    return await ended


async def inline(work: Callable[[], Result], /) -> Result:
    """Run a function immediately and return its result, for replays and tests without an event loop."""
    return work()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside of the library that a session uses.

    `provider` returns the provider for a card and a purpose, or raises `NoModel`. `keep` writes a file of the session that other programs
    can read, and returns its path; `create` does so for a new file of the working folder. `look` reads a file or a fact. `tools` are
    those that plans may grant. `retries` is the retry policy
    of failed calls, `sleep` waits a number of seconds, and `chance` returns a random number from 0 to 1. `before_fold` gets the size of
    the view in tokens before a fold that a policy planned is installed. `earlier` returns what the caches of the user's earlier sessions
    cost and the pauses in them; it is called once, when that first matters. `transcript` is the path of the log, if it is a file.
    """

    store: SessionStore
    blobs: Blobs
    clock: Clock
    keep: Callable[[str, bytes], str] | None = None
    look: Callable[[Look], str | None] = nothing_to_look_at
    cards: Iterable[ModelCard] = CARDS
    provider: Callable[[ModelCard, str], Provider] = no_provider
    tools: Mapping[str, GrantedTool] = field(default_factory=dict)
    encoder: Callable[[ModelCard, tuple[Tool, ...], Params, Fetch], RequestEncoder] = _encoder
    offload: Offload = field(default_factory=SessionThread)
    retries: RetryPolicy = DEFAULT
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    before_fold: Callable[[int], Awaitable[None]] = no_hooks
    earlier: Callable[[], CacheAccount] = CacheAccount
    transcript: str = ""
    create: Callable[[str, bytes], str] | None = None

    @property
    def offload_long(self) -> Offload:
        """As `offload`, for functions that may take minutes: what the session does meanwhile does not wait for them."""
        return in_thread if isinstance(self.offload, SessionThread) else self.offload


_encode = msgspec.json.Encoder().encode


class AuditProjections:
    """Creates and holds the audit projections of one log, with the settings of its session: size rule, cards, tools, fold parts."""

    metering: Metering
    evidence: EvidenceProjection
    uses: UsesProjection
    cache: CacheProjection
    account: AccountProjection
    rent: RentProjection
    working: WorkingProjection

    def __init__(self, card: ModelCard, card_of: Callable[[str], ModelCard], size: str = "palimpsest", parts: int = PARTS) -> None:
        self.card = card
        self._card_of = card_of
        self._size = size
        self._parts = parts
        self._schemas: tuple[bytes, ...] = ()

    def attach(self, views: ViewProjection) -> tuple[Projection, ...]:
        """Create the projections of a log, in the order in which they apply an event."""
        self.metering = Metering(views, self._card_named, self._size)
        self.evidence = EvidenceProjection()
        self.uses = UsesProjection(views)
        self.cache = CacheProjection(views, self.metering)
        self.account = AccountProjection(self.metering, self.cache)
        self.rent = RentProjection(views, self.metering, self.evidence, parts=self._parts)
        self.working = WorkingProjection()
        return self.metering, self.evidence, self.uses, self.cache, self.account, self.rent, self.working

    def _card_named(self, name: str) -> ModelCard:
        """The card of a model that the log names: the card of the session, or one from `card_of`."""
        return self.card if name in ("", self.card.name) else self._card_of(name)

    @property
    def tools_tokens(self) -> int:
        """Tokens of the tool declarations in a request: as the provider counted them for this model, else estimated."""
        model, tokens = self._counted
        return tokens if tokens and model == self.card.name else self.tokens_of(self._schemas)

    def counted(self, model: str, tokens: int) -> None:
        """Take what the provider of a model counted for the tools that are offered."""
        self._counted = (model, tokens)

    def tokens_of(self, schemas: Iterable[bytes]) -> int:
        """Tokens of tool declarations, given as bytes."""
        return self.metering.tools_tokens(sum(map(tool_list_size, schemas)))

    def offer(self, schemas: Sequence[bytes]) -> None:
        """Count these tools from now on, given by their declarations as bytes."""
        self._schemas = tuple(schemas)
        self._counted = ("", 0)

    def remember_names(
        self, names_shown: Callable[[ToolResult, Action | None], tuple[str, ...]], names_used: Callable[[Content], Iterable[str]]
    ) -> None:
        """Replace the functions that find names in results and replies, for example by cached ones that several logs share."""
        self.uses.names_in_result = names_shown
        self.uses.names_used = self.evidence.names_used = names_used


# The events by which a session is set up before anything is said.
_SETUP: Final = (SessionOpened, ToolsOffered, ModeChanged, ModelSwitched, ProfileChanged)


class Session:
    """One log with a profile, a model and an environment. All changes are recorded by `log.append`.

    `derived` are the audit projections if they were registered when the log was opened; without them, they are registered here.
    `two_bills` returns what was paid, and what the same requests would have cost without edits, both in dollars, where both are known.
    `affordable`, where there is one, returns those of some edits that may be made by what the next request costs with them, and `cheapest`
    which message list is best sent next: of several ways to go on, each with its lists, and of these; its second argument
    is the number of messages of the list that are known.
    `spent_out` returns the limit in dollars or tokens that the running turn has reached, if any; it is asked before each request.
    """

    def __init__(
        self,
        log: Log,
        profile: Profile,
        model: ModelCard,
        environment: Environment,
        tools: tuple[Tool, ...] = (),
        *,
        derived: AuditProjections | None = None,
    ) -> None:
        self.log = log
        # Policies and syncs run in threads while input is recorded on the event loop.
        log.share(RLock())
        self.profile = profile
        self.environment = environment
        self.params: Params = replace(profile.params, cache_key=log.session)
        self._model = model
        self.fetch = NotedFetch(environment.blobs.get)
        self._encoder: tuple[ModelCard, RequestEncoder] | None = None
        self._tools_address: tuple[tuple[Tool, ...], str] = ((), "")
        if derived is None:
            derived = _derived(profile, model, environment, tools)
            log.register(derived)
        self._derived = derived
        # The rewinds so far, by which a new one is noticed.
        self._jumps = len(log.reader.jumps)
        self.tools = tools
        # The model that the session had when it was opened with another one, and the tokens of the next request by its reports.
        self.left_model: tuple[ModelCard, int] | None = None
        # Whether the context of this session states open tasks again after a fold.
        self.states_work = False
        self.two_bills: Callable[[], tuple[float, float]] | None = None
        self.affordable: Callable[[Edits], Edits] | None = None
        self.cheapest: Callable[[Sequence[Sequence[Sequence[Any]]], int], tuple[int, int]] | None = None
        self.spent_out: Callable[[], str | None] | None = None
        self._told: dict[str, tuple[str, ...]] = {}
        cards = tuple(environment.cards)
        self._reasoning = BoundReasoning(log, lambda name: recorded_card(name, cards))

    @classmethod
    def create(
        cls, opened: SessionOpened, profile: Profile, model: ModelCard, environment: Environment, tools: tuple[Tool, ...] = ()
    ) -> Self:
        """Create a session. Raises `BadInput` if the id is taken."""
        opened = replace(opened, profile=profile.name, model=model.name)
        derived = _derived(profile, model, environment, tools)
        log = Log.create(environment.store, opened, environment.clock, derived)
        with _closing_on_error(log):
            return cls(log, profile, model, environment, tools, derived=derived)

    @classmethod
    def resume(
        cls,
        session: str,
        profile: Profile,
        model: ModelCard,
        environment: Environment,
        tools: tuple[Tool, ...] = (),
        *,
        turn_goes_on: bool = False,
    ) -> Self:
        """Open an existing session for writing, recover it after a crash, and record a change of model or profile.

        If the `turn_goes_on`, an open turn stays open with the tool calls that had not started, and `run_turn` continues it.

        Raises `BadInput` if there is no such session, `Locked` if another process writes to it.
        """
        derived = _derived(profile, model, environment, tools)
        log = Log.open(environment.store, session, environment.clock, write=True, derived=derived)
        with _closing_on_error(log):
            opened = cls(log, profile, model, environment, tools, derived=derived)
            recover(log, turn_goes_on=turn_goes_on)
            if log.view.profile != profile.name:
                log.append(ProfileChanged(profile.name, log.view.profile))
            if log.view.model != model.name:
                if log.view.model:
                    opened.left_model = recorded_card(log.view.model, tuple(environment.cards)), opened.used
                log.append(ModelSwitched(model.name, log.view.model))
            return opened

    @property
    def card(self) -> ModelCard:
        """The card of the current model; after a rewind, of the model of that branch."""
        if len(self.log.reader.jumps) != self._jumps:
            self._follow_branch()
        return self._model

    def _follow_branch(self) -> None:
        """Take up the model that the current branch has; one that is not known any more is left as it is."""
        self._jumps = len(self.log.reader.jumps)
        name = self.log.view.model
        if name and name != self._model.name:
            with suppress(BadInput):
                self._model = self._derived.card = card(name, self.environment.cards)

    @property
    def derived(self) -> AuditProjections:
        """The audit projections, up to date."""
        self.log.catch_up()
        return self._derived

    @cached_property
    def past_thinking(self) -> PastThinking:
        """What the thinking of this session is bound to."""
        return PastThinking(self.log, self.fetch, (*self.environment.cards, self._model), RLock())

    @property
    def offered_tools(self) -> str:
        """The blob of the tools that were offered to the model last; empty if none were."""
        last = self.log.view.call
        # Other programs record no offer, but what they sent.
        return self.derived.working.tools or ("" if last is None else last.tools)

    def known_files(self) -> Mapping[str, KnownFile]:
        """Return the files that the agent has read or written in this session, by their path; under some profiles while it shows them."""
        with self.log.locked():
            files, view = dict(self.derived.working.files), self.log.view
            if not self.profile.forgets_hidden_reads:
                return files
            fold = folded_at(view)
            return still_shown(files, view, None if fold < 0 else self.log.event(fold).at)

    @property
    def counter(self) -> TokenCounter:
        """The token counter: the size rule of the profile, with the factor that was calibrated by the replies so far."""
        return self.derived.metering.counter

    @property
    def budget(self) -> Budget:
        """The budget of the model under this profile."""
        return self.profile.budget(self.card)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered to the model."""
        return self._tools

    @tools.setter
    def tools(self, tools: tuple[Tool, ...]) -> None:
        self._tools = tools
        self._offered = frozenset(tool.name for tool in tools)
        self.log.tool_classes = declared_classes(tools)
        self.derived.offer(tools_bytes(tools))

    @property
    def tools_tokens(self) -> int:
        """Tokens of the tool declarations in a request."""
        return self.derived.tools_tokens

    @property
    def used(self) -> int:
        """Tokens of the next request, as this profile counts them."""
        return self.profile.count(self.log.view, self.counter, self.tools_tokens)

    @property
    def lifetime(self) -> int:
        """Lifetime of cache entries if nothing chooses, in milliseconds."""
        fixed = self.profile.cache.lifetime
        return HOUR_MS if (fixed if fixed in ("5m", "1h") else self.params.ttl) == "1h" else FIVE_MINUTES_MS

    @cached_property
    def earlier(self) -> CacheAccount:
        """What the caches of the user's earlier sessions cost, and the pauses in them."""
        return self.environment.earlier()

    @property
    def request_params(self) -> Params:
        """The parameters of the next request, with the lifetime of its cache entries and the effort that its reasoning is bound to."""
        params = self._with_bound_effort()
        own, tariff = self.lifetime, tariff_of(self.card)
        if self.profile.cache.lifetime == "auto" and tariff is not None and tariff.long.ms != tariff.short.ms:
            longest = self._longest_prefix()
            cached = None if longest is None else (longest.tokens, longest.ttl)
            account, loss = self.derived.account.value(), self.profile.cache.loss
            own = chosen_lifetime(account, self.earlier, tariff, own, cached=cached, tokens=self.used, loss=loss, bills=self.bills)
        ttl: Literal["5m", "1h"] = "1h" if own == HOUR_MS else "5m"
        return params if ttl == params.ttl else replace(params, ttl=ttl)

    def _with_bound_effort(self) -> Params:
        """The parameters with the effort of the last request, if its reasoning is bound to it: the list states another one."""
        call = self.log.view.call
        if call is None or call.model != self.card.name or call.prefix in ("", ANY_PREFIX) or call.wire != "responses":
            return self.params
        return replace(self.params, effort=sent_effort(call))

    @property
    def bills(self) -> tuple[float, float] | None:
        """Input tokens that were paid, and what the same requests would have cost without us; `None` if that is not known."""
        tariff = Tariff.of(self.card)
        if self.two_bills is None or tariff is None or not tariff.prices.input:
            return None
        paid, direct = self.two_bills()
        return tariff.input_tokens(paid), tariff.input_tokens(direct)

    def _room_for_edits(self) -> float | None:
        """Input tokens that edits may lose, without those that the live prefix may lose because it lives for less than the owner's."""
        bills, tariff, prefix = self.bills, tariff_of(self.card), self._longest_prefix()
        held_back = 0.0 if tariff is None or prefix is None else reserve(tariff, self.lifetime, prefix.ttl, prefix.tokens)
        return None if bills is None else room_of(bills, self.profile.cache.loss) - held_back

    def _longest_prefix(self) -> CachedPrefix | None:
        """The longest live prefix in the cache."""
        return self._longest(self.derived.cache.value().prefixes)

    def cached_tokens(self, tools: str) -> int:
        """The tokens of the next request, with the tools at an address, that its cache is believed to hold."""
        longest = self._longest(self.derived.cache.readable_by(self.card.name, tools))
        return 0 if longest is None else longest.tokens

    def _longest(self, prefixes: tuple[CachedPrefix, ...]) -> CachedPrefix | None:
        now = self.environment.clock.now()
        return max((prefix for prefix in prefixes if prefix.live(now)), key=lambda prefix: prefix.tokens, default=None)

    def encoder(self, model: ModelCard, tools: tuple[Tool, ...], params: Params, *, beside: bool = False) -> RequestEncoder:
        """Return an encoder for requests to a model; it reuses what the previous encoder for that model has encoded.

        One for a request `beside` a turn shares nothing: it may be used at the same time as that of the turn, in another thread.
        """
        if beside:
            return self.environment.encoder(model, tools, params, self.fetch)
        previous = self._encoder
        if previous is not None and previous[0] is model:
            encoder = previous[1].revised(params, tools)
        else:
            encoder = self.environment.encoder(model, tools, params, self.fetch)
        self._encoder = (model, encoder)
        return encoder

    def keep_tools(self, tools: tuple[Tool, ...]) -> str:
        """Store tool declarations as a blob, once for each set of tools, and return its address; empty without tools."""
        if not tools:
            return ""
        # Read once, because another thread may keep the tools of a side call meanwhile.
        known, address = self._tools_address
        if known != tools:
            address = self.environment.blobs.put(_encode(tools))
            self._tools_address = (tools, address)
        return address

    def recorded_tools(self, address: str) -> tuple[Tool, ...]:
        """The tools of a call by the address of their blob. Raises `PalimpsestError` if it cannot be read."""
        known, kept = self._tools_address
        return known if address == kept else recorded_tools(address, self.fetch)

    def situation(
        self, moment: Moment, *, asked: str = "", incoming: int = 0, previous: ModelCard | None = None, used: int | None = None
    ) -> Situation:
        """Return the current situation for policies; `used` overrides the counted size of the view, in tokens."""
        with self.log.locked():
            return self._situation(moment, asked, incoming, previous, used)

    def _situation(self, moment: Moment, asked: str, incoming: int, previous: ModelCard | None, used: int | None) -> Situation:
        log, derived, budget = self.log, self.derived, self.budget
        # Each of these properties updates all projections, so each is read only once.
        counter, tools_tokens = self.counter, self.tools_tokens
        view, health = log.view, log.health
        size = (self.profile.count(view, counter, tools_tokens) if used is None else used) + incoming
        room = budget.block_at or budget.window
        forced = moment == "overflow" or 0 < room <= size
        return Situation(
            view=view,
            budget=budget,
            card=self.card,
            moment=moment,
            tokens=counter.sizes_of(view),
            used=size,
            now=self.environment.clock.now(),
            health=health,
            ledger=log.ledger,
            cache=derived.cache.value(),
            uses=derived.uses.value(),
            rent=derived.rent.value,
            evidence=derived.evidence.value(),
            asked=asked,
            tools_tokens=tools_tokens,
            parts=self.profile.parts,
            offered=self._offered,
            incoming=incoming,
            previous=previous,
            session=log.session,
            child=log.opened.opener is not None,
            may_fold=moment == "asked" or health.may_fold(self.profile.folds_per_turn, forced=forced),
            room=self._room_for_edits(),
            states_work=self.states_work,
            transcript=self.environment.transcript,
            reasoning=self._reasoning.tokens(view, self.card, counter),
            rethought=self.profile.thinking_rethought,
        )

    def reasoning_lost(self, after: View) -> ReasoningLost | None:
        """The thinking that the next request leaves out if the view becomes another one; `None` for a model that binds no thinking."""
        view = self.log.view
        return reasoning_lost(view, after, self._reasoning.tokens(view, self.card, self.counter)) if is_bound(self.card) else None

    @property
    def withheld(self) -> tuple[str, ...]:
        """The ids of the thinking in the view that no longer fits what stands before it, as far as it is known without the requests."""
        return self._reasoning.withheld(self.log.view, self.card, self.counter)

    def reasoning_in(self, items: Iterable[Item]) -> ReasoningLost:
        """What these thinking items took to think, as an edit that hides them costs it."""
        return total_lost([self._reasoning.thought(item, self.card, self.counter) for item in items])

    def undo(self, seq: int, edits: tuple[int, ...] = (), why: str = "") -> tuple[Event, ...]:
        """Undo an edit and the edits that depend on it, and return the events. Raises `BadInput` if the view would not fit then."""
        undoing = plan_undo(self.log, seq, edits, why)
        room = self.budget.block_at or self.budget.window
        tokens = self.profile.count(undoing.view, self.counter, self.tools_tokens)
        if tokens >= room:
            raise BadInput(f"without edit {seq} the view has {tokens:,} tokens and {room:,} fit; undo less, or fork before it")
        return tuple([self.log.append(body) for body in undoing.undone])

    def tell(self, by: str, lines: tuple[str, ...], *, again: bool = False) -> None:
        """Record lines for the user. A policy that says the same as the last time is not heard `again` unless the user asked."""
        if lines and (again or self._told.get(by) != lines):
            self._told[by] = lines
            for line in lines:
                # A policy of another author may return anything.
                self.log.append(Noticed(str(line), by))

    def pin(self, *, ids: tuple[str, ...] = (), paths: tuple[str, ...] = (), on: bool = True) -> Event:
        """Pin items or files, so that no policy hides them, or unpin them. Raises `BadInput` for an unknown item."""
        unknown = next((name for name in ids if self.log.find(name) is None), None)
        if unknown is not None:
            raise BadInput(f"there is no item {unknown} on this branch; `pal show {self.log.session}` lists them", where=self.log.session)
        return self.log.append(Pinned(ids, paths, on))

    def fork(self, session: str, seq: int | None = None) -> "Session":
        """Create a session that continues after event `seq` of this one (default: the newest)."""
        derived = _derived(self.profile, self.card, self.environment, self.tools)
        log = self.log.fork(self.environment.store, session, seq, derived)
        with _closing_on_error(log):
            return Session(log, self.profile, self.card, self.environment, self.tools, derived=derived)

    def switch(self, model: ModelCard) -> Event:
        """Switch to another model. If it cannot be recorded, as during a call, the model stays."""
        derived, previous = self.derived, self.card
        event = self.log.append(ModelSwitched(model.name, previous.name))
        self._model = derived.card = model
        return event

    def change_profile(self, profile: Profile) -> Event:
        """Switch to another profile and rebuild the projections that depend on it. If it cannot be recorded, the profile stays."""
        params = replace(profile.params, cache_key=self.log.session)
        derived = _derived(profile, self.card, self.environment, self.tools)
        event = self.log.append(ProfileChanged(profile.name, self.profile.name))
        self.profile, self.params, self._derived = profile, params, derived
        self.log.register(derived)
        return event

    @property
    def is_blank(self) -> bool:
        """Whether nothing has happened in the session: it was set up, and nothing else is recorded."""
        log = self.log
        return log.opened.base is None and all(isinstance(event.body, _SETUP) for event in log.reader.run(0, log.tip))

    def close(self) -> None:
        """Make all events durable and close the log."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def named_card(self, name: str) -> ModelCard:
        """Return the card of a model by name. Raises `BadInput` if there is none."""
        return self.card if name == self.card.name else card(name, self.environment.cards)


@contextmanager
def _closing_on_error(log: Log) -> Iterator[None]:
    """Close a log whose session cannot be made, so that it does not stay locked."""
    try:
        yield
    except BaseException:
        log.close()
        raise


def tools_bytes(tools: tuple[Tool, ...]) -> list[bytes]:
    """Return schema and description of each tool, which are counted as its tokens."""
    return [bytes(tool.schema) + tool.description.encode() for tool in tools]


def tools_size(tools: tuple[Tool, ...]) -> int:
    """Return the estimated tokens of tool declarations, before calibration."""
    return sum(map(tool_list_size, tools_bytes(tools)))


def _derived(profile: Profile, model: ModelCard, environment: Environment, tools: tuple[Tool, ...]) -> AuditProjections:
    cards = tuple(environment.cards)
    derived = AuditProjections(model, lambda name: recorded_card(name, cards), profile.size_rule, profile.parts)
    derived.offer(tools_bytes(tools))
    return derived
