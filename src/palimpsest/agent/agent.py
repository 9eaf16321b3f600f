"""The agent as a library, driven by prompts and followed by its feed, with the texts a user interface shows and a clean stop by signals."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from msgspec import Struct

from palimpsest.agent.business import BusinessState
from palimpsest.agent.calls import resumed, switch
from palimpsest.agent.confined_files import confined_writer, file_creator
from palimpsest.agent.context import SourcedContext
from palimpsest.agent.decision import AgentMode, Approval, Decision
from palimpsest.agent.feed import Feed, Piece
from palimpsest.agent.hooks import Hook, SessionHooks
from palimpsest.agent.jobs import EXIT_SECONDS, Jobs, distinct_jobs, earlier_caches, remember_cache
from palimpsest.agent.limits import NO_LIMITS, NOTHING, ChildAccounts, Limits, Spent, TurnMeter, session_usd
from palimpsest.agent.session import Environment, Session
from palimpsest.agent.tool import AgentTool, tools_by_name
from palimpsest.agent.tool_calls import Toolbox, allow_all, no_approver, offer_tools
from palimpsest.agent.turn import Loop, run_turn, uncancelled
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, ModelReplied, PermissionAsked, SessionOpened, TurnEnded, UserSaid, UserTyped
from palimpsest.core.items import Part, Text, ToolCall
from palimpsest.core.plans import CacheAccount, Job, JobMoment
from palimpsest.core.ports import Provider, StateSlot
from palimpsest.core.text import PLAN_TAG, between
from palimpsest.policies.profile import Profile
from palimpsest.stores.home import Home, new_id, remove
from palimpsest.stores.sessions import WorkTree, transcript_of
from palimpsest.wire.models import ModelCard, card, total_usd
from palimpsest.wire.request import Tool

if TYPE_CHECKING:
    from palimpsest.agent.shell import Shell


# Seconds of each hook at the end of a session that was interrupted.
_LAST_SECONDS = 2.0
Approve = Callable[[PermissionAsked], Awaitable[Approval]]
Expand = Callable[[tuple[str | Part, ...]], Awaitable[tuple[str | Part, ...]]]


async def unexpanded(parts: tuple[str | Part, ...]) -> tuple[str | Part, ...]:
    """Return the input as it is."""
    return parts


class SubAgents(Protocol):
    """The sub-agents of an agent, as far as it deals with them itself. The class that they are, `ChildAgents`, imports this module."""

    def watch(self, meter: TurnMeter) -> None:
        """Stop them once this turn of the agent has reached its limit in dollars or tokens."""
        ...

    def spent(self) -> Mapping[str, Spent]:
        """What each of them and those below it have spent so far, by session."""
        ...

    def live(self) -> Mapping[str, str]:
        """The nicknames of those that are open, by session."""
        ...

    async def interrupt(self) -> None:
        """End the turns of all of them, and of those below them."""
        ...


class Answer(Struct, frozen=True, repr_omit_defaults=True):
    """The outcome of one prompt: the text of the last reply, why the turn ended, and the plan that the model proposed in plan mode."""

    text: str
    stop: str
    plan: str | None = None


def proposed_plan(reply: ModelReplied) -> str | None:
    """Return the plan that a reply proposes, which in plan mode stands in a tag of its own; `None` if it has none."""
    return between(PLAN_TAG, "".join(part.text for part in reply.parts if isinstance(part, Text)))


def _profile_of(given: str | Profile) -> Profile:
    if isinstance(given, Profile):
        return given
    from palimpsest.agent.named_profiles import profile  # `pal` hands over the profile itself

    return profile(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an agent consists of. It is built whole before there is an agent, and replaced as a whole.

    resources: what is closed with the agent, after its turn and before its log.
    is_resumed: whether the session existed; its first turn then tells the policies so.
    drops_blank: whether a session in which nothing was said is removed. Another program may have its id.
    context: states what the model should know about the world; `None` if the log has it all.
    recall: records what outlives a session and bears on a prompt, before the prompt enters the view. It never fails.
    expand: replaces input that stands for another, such as the name of a prompt of an MCP server.
    prompts: the prompts that `expand` knows so far: the word that names each, and its description.
    open_tasks: lines about open tasks, for user interfaces.
    notices: what the user should know before the first turn.
    """

    home: Home
    session: Session
    toolbox: Toolbox
    hooks: SessionHooks
    jobs: Jobs
    limits: Limits
    resources: AsyncExitStack
    is_resumed: bool
    drops_blank: bool
    context: SourcedContext | None = None
    recall: Callable[[tuple[Part, ...]], Awaitable[None]] | None = None
    expand: Expand = unexpanded
    prompts: Callable[[], tuple[tuple[str, str], ...]] = tuple
    open_tasks: Callable[[], tuple[str, ...]] = tuple
    business: BusinessState | None = None
    children: SubAgents | None = None
    mode: AgentMode | None = None
    shell: "Shell | None" = None
    notices: tuple[str, ...] = ()

    def release(self) -> None:
        """Make the session durable and close it; remove it if it is a new one in which nothing was said."""
        release_session(self.session, self.home, drops_blank=self.drops_blank)


def release_session(session: Session, home: Home, *, drops_blank: bool) -> None:
    """Close a session, and remove it if nothing was said in it and it is one that is dropped then."""
    is_empty = False
    try:
        is_empty = drops_blank and session.is_blank
    finally:
        session.close()
    if is_empty:
        with suppress(PalimpsestError, OSError):
            remove(home.store, session.log.session)


def open_parts(
    model: str | ModelCard,
    *,
    tools: Iterable[AgentTool | Callable[..., Any]] = (),
    profile: str | Profile = "palimpsest",
    provider: Provider | Callable[[ModelCard, str], Provider] | None = None,
    cwd: str | Path = ".",
    home: Home | None = None,
    resume: str = "",
    limits: Limits = NO_LIMITS,
    decide: Callable[[AgentTool, ToolCall], Decision] = allow_all,
    approve: Approve = no_approver,
    hooks: Iterable[Hook] = (),
    jobs: Iterable[Job] | None = None,
    opened: SessionOpened | None = None,
    exit_seconds: float = EXIT_SECONDS,
    adjust: Callable[[Environment], Environment] = lambda environment: environment,
) -> Parts:
    """Open a session, and return the parts of an agent that has these tools in it. The parameters are those of `Agent`.

    `exit_seconds` are given to jobs at the end. `adjust` changes the environment of the session before it is opened. All
    that can be refused here is read before there is a session.
    """
    home = Home.in_memory() if home is None else home
    cards = home.cards()
    known = card(model, cards) if isinstance(model, str) else model
    way = _profile_of(profile)
    limits.check(known, way.params)
    root = Path(cwd).resolve()
    by_name, at_moments, beside = tools_by_name(tools), tuple(hooks), distinct_jobs(way.jobs if jobs is None else jobs)
    resources, first = AsyncExitStack(), opened or SessionOpened(new_id(home), cwd=str(root))
    around = replace(_environment(home, root, first.session, resume), cards=cards, provider=_providers(provider, resources))
    around = adjust(around)
    session = Session.resume(resume, way, known, around, turn_goes_on=True) if resume else Session.create(first, way, known, around)
    try:
        running = SessionHooks(at_moments, str(root), source="resume" if resume else "startup", since=session.log.tip)
        session.environment = replace(around, before_fold=partial(running.before_fold, session))
        workspace = Workspace(root, keep=home.blobs.put, write=confined_writer(root), known=session.known_files)
        toolbox = Toolbox(by_name, workspace, decide, approve)
        if by_name:
            offer_tools(session, by_name)
    except BaseException:
        release_session(session, home, drops_blank=not resume)
        raise
    return Parts(
        home=home,
        session=session,
        toolbox=toolbox,
        hooks=running,
        jobs=Jobs(session, beside, exit_seconds),
        limits=limits,
        resources=resources,
        is_resumed=bool(resume),
        drops_blank=not resume,
    )


class Agent:
    """An agent in one session. Prompts are queued by `say` or given to `run`; a second prompt during a turn steers it.

    Instead of a model it gets its parts, if another function has made them; the options are then those of the parts.
    `tools` are tools, or functions that `tool_from` can declare: with annotations and a docstring. `decide` and `approve` decide about each
    tool call; without them every call runs. `home` keeps the session (default: in memory). `resume` is the id of an earlier session;
    `opened` is the first event of a new one that another agent starts. `hooks` run at moments of the session; those of its end run when
    the context ends. `jobs` run beside turns (default: those of the profile). Use it as an async context manager, or call `close`. Raises
    `BadInput` if no tool can be made of a function, or two tools or jobs have one name.
    """

    def __init__(
        self,
        model: str | ModelCard | Parts,
        *,
        tools: Iterable[AgentTool | Callable[..., Any]] = (),
        profile: str | Profile = "palimpsest",
        provider: Provider | Callable[[ModelCard, str], Provider] | None = None,
        cwd: str | Path = ".",
        home: Home | None = None,
        resume: str = "",
        limits: Limits = NO_LIMITS,
        decide: Callable[[AgentTool, ToolCall], Decision] = allow_all,
        approve: Approve = no_approver,
        hooks: Iterable[Hook] = (),
        jobs: Iterable[Job] | None = None,
        opened: SessionOpened | None = None,
    ) -> None:
        if not isinstance(model, Parts):
            model = open_parts(
                model,
                tools=tools,
                profile=profile,
                provider=provider,
                cwd=cwd,
                home=home,
                resume=resume,
                limits=limits,
                decide=decide,
                approve=approve,
                hooks=hooks,
                jobs=jobs,
                opened=opened,
            )
        self.parts = model
        self._feed: Feed | None = None
        self._turn: asyncio.Task[str] | None = None
        self._has_ended = False
        # Whether the first turn has to tell the policies that the session was resumed.
        self._resumes = self.parts.is_resumed
        # The tools of which the provider was asked for the size.
        self._counted: tuple[Tool, ...] = ()
        self._accounts = ChildAccounts(self.parts.home)

    @property
    def session(self) -> Session:
        """The session of the agent, with its log."""
        return self.parts.session

    @property
    def toolbox(self) -> Toolbox:
        """The tools, and what decides about their calls."""
        return self.parts.toolbox

    @property
    def jobs(self) -> Jobs:
        """The jobs beside its turns."""
        return self.parts.jobs

    @property
    def resources(self) -> AsyncExitStack:
        """What is closed with the agent."""
        return self.parts.resources

    @property
    def children(self) -> SubAgents | None:
        """Its sub-agents; `None` if it can have none."""
        return self.parts.children

    @property
    def business(self) -> BusinessState | None:
        """The business state of its task; `None` if none is declared."""
        return self.parts.business

    @property
    def mode(self) -> AgentMode | None:
        """What it may do without a question; `None` without permissions."""
        return self.parts.mode

    @property
    def shell(self) -> "Shell | None":
        """What runs its commands, if it can run any."""
        return self.parts.shell

    @property
    def id(self) -> str:
        """The id of the session, for `resume` and for the commands of `pal`."""
        return self.session.log.session

    def offer(self, toolbox: Toolbox) -> None:
        """Offer these tools from the next call on, and record it if they differ from those that were offered last."""
        offer_tools(self.session, toolbox.tools)
        self.parts = replace(self.parts, toolbox=toolbox)

    def say(self, *parts: str | Part) -> Event:
        """Queue input: it starts the next turn, or joins the running one at its next safe point. It is recorded at once."""
        if not parts:
            raise BadInput("there is nothing to say; give a text or a part")
        return self.session.log.append(UserTyped(tuple(Text(part) if isinstance(part, str) else part for part in parts)))

    async def run(self, *parts: str | Part) -> AsyncGenerator[Piece, None]:
        """Queue the input if any, run one turn, and yield its events and stream deltas as they come.

        Events since the last turn, such as those of jobs, come first, unless `unseen` has returned them.
        Without input, queued input is worked on, or an interrupted turn goes on. Closing the generator interrupts the turn. Raises
        `PalimpsestError` if the turn fails; the session stays usable.
        """
        if self._turn is not None and not self._turn.done():
            raise BadInput("a turn is running; use `say` to steer it")
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._feed = feed = Feed(self.session.log, self._shown(pieces.put_nowait), None if self._feed is None else self._feed.cursor)
        # From here on a second run is refused, and an interrupt ends this one, also while its input is expanded.
        self._turn = turn = asyncio.ensure_future(self._run_turn(feed, parts))
        turn.add_done_callback(_seen)
        turn.add_done_callback(lambda _: pieces.put_nowait(None))
        has_ended = False
        try:
            while (piece := await pieces.get()) is not None:
                if isinstance(piece, Event) and (moment := _job_moment(piece)) is not None:
                    self.jobs.start(moment)
                yield piece
            has_ended = True
            # An interrupted turn has recorded how it ended; only failures are raised.
            if not turn.cancelled():
                turn.result()
        finally:
            if not turn.done():
                await self.interrupt()
            # A run that is not followed to its end is one of a program that ends, too.
            if has_ended:
                self.jobs.turn_ended()

    async def _run_turn(self, feed: Feed, given: tuple[str | Part, ...]) -> str:
        parts, session = self.parts, self.session
        # Also what policies ask a model before the turn begins counts to its limits.
        meter = TurnMeter(session, parts.limits, self.spent_by_child)
        if parts.children is not None:
            parts.children.watch(meter)
        await self.jobs.pause_ended()
        if given:
            self.say(*await parts.expand(given))
        if self._resumes:
            self._resumes = False
            await resumed(session)
            self.jobs.start("resumed")
        if session.profile.counts_tools and session.tools != self._counted:
            from palimpsest.agent.tool_counts import count_tools  # few profiles need it

            self._counted = session.tools
            await count_tools(session, parts.home.tool_counts)
        return await run_turn(Loop(session, parts.toolbox, feed, parts.limits, parts.context, parts.hooks, meter, parts.recall))

    def _shown(self, publish: Callable[[Piece], None]) -> Callable[[Piece], None]:
        """Return a way to publish what a user interface is shown under the profile of the session."""
        if not self.session.profile.notes.cites:
            return publish

        from palimpsest.agent.note_citations import WithoutCitations  # few profiles cite notes

        return WithoutCitations(publish)

    async def ask(self, *parts: str | Part) -> Answer:
        """Run one turn and return the text of its last reply."""
        text = stop = ""
        plan: str | None = None
        async for piece in self.run(*parts):
            if isinstance(piece, Event) and isinstance(piece.body, ModelReplied) and piece.body.purpose == "turn":
                text = "".join(part.text for part in piece.body.parts if isinstance(part, Text)) or text
                recorded = self.session.log.event(piece.seq).body
                plan = proposed_plan(recorded) if isinstance(recorded, ModelReplied) else None
            elif isinstance(piece, Event) and isinstance(piece.body, TurnEnded):
                stop = piece.body.stop
        return Answer(text, stop, plan)

    async def interrupt(self) -> None:
        """End the running turn, if any: the partial reply is kept and every tool call is answered. Then end those of its sub-agents.

        A cancellation of the caller is raised after that.
        """
        turn = self._turn
        try:
            if turn is not None and not turn.done():
                turn.cancel()
                await uncancelled(_ended(turn))
        finally:
            if self.children is not None:
                await self.children.interrupt()

    def spent_by_child(self) -> Mapping[str, Spent]:
        """What each sub-agent of this session and those below it have spent so far, by session."""
        if not self.session.log.children:
            return {}
        recorded = self._accounts.spent(self.session.log)
        live = {} if self.children is None else self.children.spent()
        return recorded | {name: spent for name, spent in live.items() if name in recorded}

    def children_spent(self) -> Spent:
        """What the sub-agents of this session have spent so far, those below them included."""
        return sum(self.spent_by_child().values(), NOTHING)

    def cost_usd(self) -> float | None:
        """US dollars of this session and its sub-agents so far; `None` if the price of a call is not known."""
        return total_usd((session_usd(self.session), self.children_spent().usd))

    async def compact(self, focus: str = "") -> None:
        """Fold the session now, unless a hook blocks it."""
        await self.jobs.pause_ended()
        await self.parts.hooks.compact(self.session, focus)

    async def switch(self, model: str | ModelCard) -> None:
        """Continue with another model. Raises `BadInput` if there is a limit in dollars and the price of the model is not known."""
        known = self.session.named_card(model) if isinstance(model, str) else model
        self.parts.limits.check(known, self.session.params)
        await switch(self.session, known)

    def change_profile(self, profile: str | Profile) -> None:
        """Continue under another profile."""
        self.session.change_profile(_profile_of(profile))

    def unseen(self) -> tuple[Event, ...]:
        """Return the events since the last that `run` or this method brought, such as those of jobs after a turn; none before a turn."""
        return () if self._feed is None else self._feed.unpublished()

    async def end(self, stop: str = "done") -> None:
        """Run the hooks of the session end, once. Leaving the context does it too.

        After an interrupt or an error (`stop` is not `done`) each has two seconds, because the program is about to end.
        """
        if not self._has_ended:
            self._has_ended = True
            await self.parts.hooks.end(self.session, stop, None if stop == "done" else _LAST_SECONDS)

    def close(self) -> None:
        """Make the session durable and release it; a new one in which nothing was said is not kept.

        Jobs that run are left to themselves; leaving the context manager gives them time.
        """
        self.jobs.abandon()
        if self.session.log.health.turns > 1:
            remember_cache(self.parts.home.pauses, self.session)
        self.parts.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.interrupt()
            await self.end("done" if kind is None else "failed" if issubclass(kind, Exception) else "interrupted")
            # A program that was interrupted or failed does not wait for jobs.
            await self.jobs.close(at_once=error is not None)
        finally:
            # Also if the task is cancelled once more, or a sub-agent cannot be ended in order.
            try:
                await self.resources.aclose()
            finally:
                self.close()


async def _ended(turn: "asyncio.Task[str]") -> None:
    await asyncio.wait((turn,))


def _seen(turn: "asyncio.Task[str]") -> None:
    """Look at the failure of a turn, which is in its log: asyncio prints one that no caller is left to look at."""
    if not turn.cancelled():
        turn.exception()


def _environment(home: Home, root: Path, new: str, resume: str) -> Environment:
    """What surrounds a session that is new or resumed; it keeps large results in files of its own."""
    keep = home.store.result_files(resume or new)
    return Environment(
        *(home.store, home.blobs, home.clock, keep),
        look=WorkTree(str(root)),
        earlier=partial(_earlier, home.pauses, resume),
        transcript=transcript_of(keep),
        create=file_creator(root),
    )


def _earlier(slot: StateSlot, session: str) -> CacheAccount:
    """Return what earlier sessions say about the pauses of the user."""
    return CacheAccount() if slot.load() is None else earlier_caches(slot, session)


def _job_moment(event: Event) -> JobMoment | None:
    """Return the moment of jobs that an event of a turn is, if any."""
    match event.body:
        case UserSaid():
            return "said"
        case ModelReplied(purpose="turn"):
            return "replied"
        case _:
            return None


def _providers(
    given: Provider | Callable[[ModelCard, str], Provider] | None, resources: AsyncExitStack
) -> Callable[[ModelCard, str], Provider]:
    """Return the providers by model: one provider for all, a function of the caller, or HTTP with the keys of the environment.

    Connections of the last are closed with the resources.
    """
    if given is None:
        from palimpsest.providers.http import HttpProviders  # only a real call needs it

        providers = HttpProviders()
        resources.push_async_callback(providers.aclose)
        return providers
    if hasattr(given, "stream"):
        provider: Provider = given
        return lambda *_: provider
    return given


Result = TypeVar("Result")
# Sent by the keyboard, by service managers and by closed terminals. Asyncio would turn only the first Ctrl-C into a cancellation and raise
# an exception for the second at any line, also in the middle of what removes temporary folders.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the coroutine. Raises `SystemExit(128 + signal number)` if a signal of `SIGNALS` arrives first."""
    stopped: list[int] = []

    async def stoppable() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def stop(number: int) -> None:
            stopped.append(number)
            if task is not None:
                task.cancel()

        for number in SIGNALS:
            # Signal handlers can be installed only in the main thread, and only on Unix.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise SystemExit(128 + stopped[0]) from None
