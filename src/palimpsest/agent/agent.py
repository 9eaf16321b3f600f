"""The agent as a library, driven by prompts and followed by its feed, with the texts a user interface shows and a clean stop by signals."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace as shown_replace

from palimpsest.agent.business import BusinessState
from palimpsest.agent.calls import resumed, switch
from palimpsest.agent.confined_files import confined_writer, file_creator
from palimpsest.agent.context import ContextStating, NoContext
from palimpsest.agent.decision import AgentMode, Approval, Decision
from palimpsest.agent.feed import Feed, Piece
from palimpsest.agent.hooks import Hook, SessionHooks
from palimpsest.agent.jobs import Jobs, distinct_jobs
from palimpsest.agent.limits import NO_LIMITS, NOTHING, Limits, Spent, TurnMeter, session_usd
from palimpsest.agent.note_citations import CitationFilter, without_citations
from palimpsest.agent.session import Environment, Session
from palimpsest.agent.tool import AgentTool, tools_by_name
from palimpsest.agent.tool_calls import Toolbox, allow_all, no_approver
from palimpsest.agent.turn import Loop, NoRecall, Recalling, run_turn, uncancelled
from palimpsest.agent.workspace import Workspace
from palimpsest.core.deltas import TextDelta
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Event, ModelReplied, PermissionAsked, SessionOpened, ToolsOffered, TurnEnded, UserSaid, UserTyped
from palimpsest.core.items import Content, Part, Text, ToolCall
from palimpsest.core.plans import CacheAccount, Job, JobMoment
from palimpsest.core.ports import Provider, StateSlot
from palimpsest.core.text import PLAN_TAG, between
from palimpsest.policies.profile import Profile
from palimpsest.stores.home import Home, new_id, remove
from palimpsest.stores.sessions import WorkTree, transcript_of
from palimpsest.wire.models import ModelCard, card, total_usd
from palimpsest.wire.request import Tool

if TYPE_CHECKING:
    from palimpsest.agent.limits import ChildAccounts
    from palimpsest.agent.shell import Shell


# Seconds of each hook at the end of a session that was interrupted.
_LAST_SECONDS = 2.0
Approve = Callable[[PermissionAsked], Awaitable[Approval]]
Expand = Callable[[tuple[str | Part, ...]], Awaitable[tuple[str | Part, ...]]]


async def unexpanded(parts: tuple[str | Part, ...]) -> tuple[str | Part, ...]:
    """Return the input as it is."""
    return parts


class SubAgents(Protocol):
    """The sub-agents of an agent, as far as the agent itself deals with them."""

    def spent(self) -> Mapping[str, Spent]:
        """What each of them and those below it have spent so far, by session."""
        ...

    def live(self) -> Mapping[str, str]:
        """The nicknames of those that are open, by session."""
        ...

    def roles(self) -> Mapping[str, str]:
        """The descriptions of the roles that they can have, by name."""
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


class Agent:
    """An agent in one session. Prompts are queued by `say` or given to `run`; a second prompt during a turn steers it.

    `tools` are tools, or functions that `tool_from` can declare: with annotations and a docstring. `decide` and `approve` decide about each
    tool call; without them every call runs. `home` keeps the session (default: in memory). `resume` is the id of an earlier session;
    `opened` is the first event of a new one that another agent starts. `hooks` run at moments of the session; those of its end run when
    the context ends. `jobs` run beside turns (default: those of the profile). Use it as an async context manager, or call `close`. Raises
    `BadInput` if no tool can be made of a function, or two tools or jobs have one name.
    """

    # What equipping an agent and running its turns fill; an agent without them works.
    business: BusinessState | None = None
    children: SubAgents | None = None
    mode: AgentMode | None = None
    shell: "Shell | None" = None
    meter: TurnMeter | None = None
    _feed: Feed | None = None
    _turn: "asyncio.Task[str] | None" = None

    def __init__(
        self,
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
    ) -> None:
        home = Home.in_memory() if home is None else home
        cards = home.cards()
        known = card(model, cards) if isinstance(model, str) else model
        way = _profile_of(profile)
        limits.check(known, way.params)
        root = Path(cwd).resolve()
        # All that can be refused is read before there is a session.
        by_name, at_moments, declared = tools_by_name(tools), tuple(hooks), distinct_jobs(way.jobs if jobs is None else jobs)
        self.resources = AsyncExitStack()
        environment = replace(_environment(home, root, resume), cards=cards, provider=_providers(provider, self.resources))
        if resume:
            self.session = Session.resume(resume, way, known, environment, turn_goes_on=True)
        else:
            first = opened or SessionOpened(new_id(home), cwd=str(root))
            self.session = Session.create(first, way, known, environment)
        # A session in which nothing was said is not kept, unless another program has its id.
        self._root = root
        self._home, self.drops_blank, self._is_resumed = home, not resume, bool(resume)
        try:
            self.hooks = SessionHooks(at_moments, str(root), source="resume" if resume else "startup", since=self.session.log.tip)
            self._place_in(environment)
            workspace = Workspace(root, keep=home.blobs.put, write=confined_writer(root), known=self.session.known_files)
            self.toolbox = Toolbox(by_name, workspace, decide, approve)
            if by_name:
                self.offer(self.toolbox)
            self.limits = limits
            self.jobs = Jobs(self.session, declared)
        except BaseException:
            self._release()
            raise
        self._add_parts()

    def _add_parts(self) -> None:
        """Set what others give to an agent after it was made, as it is without them."""
        self.context: ContextStating = NoContext()
        self.recalling: Recalling = NoRecall()
        # Replaces input that stands for another, such as the name of a prompt of an MCP server.
        self.expand: Expand = unexpanded
        # The prompts that `expand` knows so far: the word that names each, and its description.
        self.prompts: Callable[[], tuple[tuple[str, str], ...]] = tuple
        # Lines about open tasks, for user interfaces.
        self.open_tasks: Callable[[], tuple[str, ...]] = tuple
        self._has_ended = False
        # The tools of which the provider was asked for the size.
        self._counted: tuple[Tool, ...] = ()

    def _place_in(self, environment: Environment) -> None:
        """Let the session keep large results in files of its own, and run the hooks before a fold."""
        keep = self._home.store.result_files(self.session.log.session)
        self.session.environment = replace(
            environment,
            keep=keep,
            transcript=transcript_of(keep),
            create=file_creator(self._root),
            before_fold=lambda tokens: self.hooks.before_fold(self.session, tokens),
        )

    @property
    def id(self) -> str:
        """The id of the session, for `resume` and for the commands of `pal`."""
        return self.session.log.session

    def offer(self, toolbox: Toolbox) -> None:
        """Offer these tools from the next call on, and record it if they differ from those that were offered last."""
        session = self.session
        tools = tuple(tool.declaration for tool in toolbox.tools.values())
        address = session.keep_tools(tools)
        if address != session.offered_tools:
            session.log.append(ToolsOffered(address, tuple(toolbox.tools)))
        session.tools, self.toolbox = tools, toolbox

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

    async def _run_turn(self, feed: Feed, parts: tuple[str | Part, ...]) -> str:
        # Also what policies ask a model before the turn begins counts to its limits.
        self.meter = TurnMeter(self.session, self.limits, self.spent_by_child)
        await self.jobs.pause_ended()
        if parts:
            self.say(*await self.expand(parts))
        if self._is_resumed:
            self._is_resumed = False
            await resumed(self.session)
            self.jobs.start("resumed")
        if self.session.profile.counts_tools and self.session.tools != self._counted:
            from palimpsest.agent.tool_counts import count_tools  # few profiles need it

            self._counted = self.session.tools
            await count_tools(self.session, self._home.tool_counts)
        loop = Loop(self.session, self.toolbox, feed, self.limits, self.context, self.hooks, self.meter, self.recalling)
        return await run_turn(loop)

    def _shown(self, publish: Callable[[Piece], None]) -> Callable[[Piece], None]:
        """Return a way to publish what a user interface is shown under the profile of the session."""
        if not self.session.profile.notes.cites:
            return publish

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

    @cached_property
    def _accounts(self) -> "ChildAccounts":
        from palimpsest.agent.limits import ChildAccounts  # most sessions have no sub-agents

        return ChildAccounts(self._home)

    def children_spent(self) -> Spent:
        """What the sub-agents of this session have spent so far, those below them included."""
        return sum(self.spent_by_child().values(), NOTHING)

    def cost_usd(self) -> float | None:
        """US dollars of this session and its sub-agents so far; `None` if the price of a call is not known."""
        return total_usd((session_usd(self.session), self.children_spent().usd))

    async def compact(self, focus: str = "") -> None:
        """Fold the session now, unless a hook blocks it."""
        await self.jobs.pause_ended()
        await self.hooks.compact(self.session, focus)

    async def switch(self, model: str | ModelCard) -> None:
        """Continue with another model. Raises `BadInput` if there is a limit in dollars and the price of the model is not known."""
        known = self.session.named_card(model) if isinstance(model, str) else model
        self.limits.check(known, self.session.params)
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
            await self.hooks.end(self.session, stop, None if stop == "done" else _LAST_SECONDS)

    def close(self) -> None:
        """Make the session durable and release it; a new one in which nothing was said is not kept.

        Jobs that run are left to themselves; leaving the context manager gives them time.
        """
        self.jobs.abandon()
        if self.session.log.health.turns > 1:
            from palimpsest.agent.jobs import remember_cache

            remember_cache(self._home.pauses, self.session)
        self._release()

    def _release(self) -> None:
        """Close the session, and remove it if it is a new one in which nothing was said."""
        is_empty = False
        try:
            is_empty = self.drops_blank and self.session.is_blank
        finally:
            self.session.close()
        if is_empty:
            with suppress(PalimpsestError, OSError):
                remove(self._home.store, self.id)

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


def _environment(home: Home, root: Path, resume: str) -> Environment:
    return Environment(home.store, home.blobs, home.clock, look=WorkTree(str(root)), earlier=partial(_earlier, home.pauses, resume))


def _earlier(slot: StateSlot, session: str) -> CacheAccount:
    """Return what earlier sessions say about the pauses of the user."""
    if slot.load() is None:
        return CacheAccount()
    from palimpsest.agent.jobs import earlier_caches

    return earlier_caches(slot, session)


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


_PLAN_TAGS: Final = (f"<{PLAN_TAG}>\n", f"\n</{PLAN_TAG}>", f"<{PLAN_TAG}>", f"</{PLAN_TAG}>")


class WithoutPlanTags:
    """Takes the tags of a proposed plan out of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what can be shown; the beginning of what may be a tag is held back."""
        text = _without_plan_tags(self._held + text)
        held = max((size for tag in _PLAN_TAGS for size in range(1, len(tag)) if text.endswith(tag[:size])), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """Return what was held back, which is no tag."""
        rest, self._held = self._held, ""
        return rest


def _without_plan_tags(text: str) -> str:
    for tag in _PLAN_TAGS:
        text = text.replace(tag, "")
    return text


class WithoutCitations:
    """Passes pieces of a feed on to `publish`, texts of replies without citation blocks and plan tags, also of one that is cut off."""

    def __init__(self, publish: Callable[[Piece], None]) -> None:
        self._publish = publish
        self._filter = CitationFilter()
        self._plan = WithoutPlanTags()

    def __call__(self, piece: Piece) -> None:
        """Pass one piece on; a delta of which nothing is shown is left out."""
        match piece:
            case TextDelta(text=text):
                if shown := self._plan.feed(self._filter.feed(text)):
                    self._publish(TextDelta(shown))
            case Event(body=ModelReplied(purpose="turn") as body):
                if rest := self._plan.feed(self._filter.end()) + self._plan.end():
                    self._publish(TextDelta(rest))
                self._filter = CitationFilter()
                self._publish(shown_replace(piece, body=shown_replace(body, parts=tuple(map(_uncited, body.parts)))))
            case _:
                self._publish(piece)


def _uncited(part: Content) -> Content:
    return shown_replace(part, text=_without_plan_tags(without_citations(part.text).text)) if isinstance(part, Text) else part


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
