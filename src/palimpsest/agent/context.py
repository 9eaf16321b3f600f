"""States the context of a session: observes the sources of its profile and records what the view does not say yet."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from palimpsest.agent.editing import as_failure
from palimpsest.agent.session import Session
from palimpsest.core.events import ContextStated, Failed, Statement, ViewEdited
from palimpsest.core.items import Mask, Part, Text, seq_of
from palimpsest.core.view import View
from palimpsest.sources.skills import mentioned_bodies, mentioned_skills, mentions_in
from palimpsest.sources.source import Fields, SourceSet, World, folded_at, observe, outdated_by_fold, reconcile

LIVE: Final = frozenset({"business_state", "deferred_tools", "mode", "permissions", "todos"})
"""Sources whose values tools, the developer's code or the user change during a turn."""
NOTES: Final = frozenset({"memory", "cards", "instructions"})
"""Sources that state notes, under one profile or another."""
MISSING_PAGE: Final = "instructions"
"""What failed, in the event of a configured page of instructions that could not be fetched."""
_WORK: Final = frozenset({"tasks", "todos"})
"""Sources of open work. What a fold kept of them may be older than the work of this turn, so that they are stated again."""
_WORK_BY: Final = "work_state"
"""The author of the edit that hides older statements of open work after a fold."""
# What code of another author may raise. Nothing is awaited where it is caught, so a cancellation is its own.
_FOREIGN: Final = (Exception, SystemExit, GeneratorExit, CancelledError)


class Forgetting(Protocol):
    """Hides what shows a note that was forgotten. The class that does so stands in `memory`, above this room."""

    def hide(self) -> bool:
        """Mask the items that show forgotten notes. Returns whether sources have to be observed again: the statements of notes changed."""
        ...

    def shown_in_head(self) -> bool:
        """Return whether the head of the view shows a forgotten note."""
        ...


class SourcedContext:
    """States the sources of the profile of a session. `world` returns the world as it is now; it is called once for each turn.

    `renewed` returns that world with what the session itself changed since, for the sources in `LIVE`, which are stated during a turn too.
    `forgetting` hides forgotten notes before anything is stated. `await_tools` waits for tools that join a session late and offers them;
    with some names, only if one of these is missing. `due` returns what else has to be stated, at the safe points of the loop only.
    """

    def __init__(
        self,
        session: Session,
        world: Callable[[], World],
        renewed: Callable[[], World | None] = lambda: None,
        forgetting: Forgetting | None = None,
        *,
        await_tools: Callable[[frozenset[str] | None], Awaitable[None]] | None = None,
        due: Callable[[], tuple[Statement, ...]] = tuple,
    ) -> None:
        self._session = session
        session.states_work = True
        self._forgetting = forgetting
        self._world_now = world
        self._renewed = renewed
        self._await_tools = await_tools
        self._due = due
        self._world: World | None = None
        self._observed: Mapping[str, Fields | None] = {}
        self._named: set[str] = set()

    async def prepare(self, tools: frozenset[str]) -> None:
        """Make tools of these names available if they join a session late: pending calls need them before anything is observed."""
        if self._await_tools is not None:
            await self._await_tools(tools)

    async def observe(self) -> None:
        """Observe every source outside the event loop, and state what changed since it was last stated."""
        session = self._session
        if self._await_tools is not None:
            await self._await_tools(None)

        def observed() -> Mapping[str, Fields | None]:
            if self._forgetting is not None:
                self._forgetting.hide()
            self._world = self._world_now()
            return observe(self._working_sources(), self._world, self._failed)

        self._observed = await session.environment.offload(observed)
        self._name_unfetched()
        self.restate()

    def _name_unfetched(self) -> None:
        """Record the pages of instructions that could not be fetched, each once, so that the user sees which rules are missing."""
        for address, why in () if self._world is None else self._world.unfetched.items():
            if address not in self._named:
                self._named.add(address)
                message = f"{address} could not be fetched and is not among them: {why}"
                self._session.log.append(Failed(MISSING_PAGE, "unreachable", message))

    def restate(self) -> None:
        """State what the view does not show of the last observation, or what the session itself changed since."""
        if self._observed:
            forgot = self._forgetting is not None and self._forgetting.hide()
            self._renew(NOTES if forgot else frozenset())
            self._hide_outdated_work()
            renew = self._forgetting is not None and self._forgetting.shown_in_head()
            stated = self._reconciled(renew=renew)
            if stated is not None:
                self._session.log.append(stated)
        if due := self._due():
            self._session.log.append(ContextStated(due))

    def _hide_outdated_work(self) -> None:
        """Mask what the newest fold kept of the state of open work, if that has changed since."""
        log = self._session.log
        outdated = outdated_by_fold(log.view, {key: self._observed[key] for key in _WORK & self._observed.keys()})
        if outdated:
            why = "the state of the open work has changed, and is stated again after the fold"
            edits = (Mask(outdated),)
            lost = self._session.reasoning_lost(log.trial(edits))
            log.append(ViewEdited(edits, by=_WORK_BY, why=why, tokens_before=self._session.used, reasoning_lost=lost))

    def _reconciled(self, *, renew: bool) -> ContextStated | None:
        """Return what has to be stated, without the sources that fail to say it."""
        view, sources = self._session.log.view, self._session.profile.sources
        try:
            return reconcile(view, sources, self._observed, renew=renew)
        except _FOREIGN:
            # One of another author; which one is found below.
            kept: dict[str, Fields | None] = {}
            for source in sources.sources:
                if source.key in self._observed:
                    one = {source.key: self._observed[source.key]}
                    try:
                        reconcile(view, SourceSet((source,)), one, renew=renew)
                    except _FOREIGN as error:
                        self._failed(source.key, error)
                    else:
                        kept |= one
            self._observed = kept
            return reconcile(view, sources, kept, renew=renew)

    def _working_sources(self, keys: frozenset[str] | None = None) -> SourceSet:
        """The sources of the profile, or some of them, without those that failed so often that they are left alone."""
        limit, health = self._session.profile.circuit, self._session.log.health
        found = self._session.profile.sources
        working = (each for each in found.sources if not (limit and health.is_circuit_open(_author(each.key), limit)))
        return replace(found, sources=tuple(each for each in working if keys is None or each.key in keys))

    def _failed(self, key: str, error: BaseException) -> None:
        failure = as_failure(error)
        self._session.log.append(Failed("observing", failure.kind, failure.message, by=_author(key)))

    def _renew(self, further: frozenset[str]) -> None:
        """Observe the sources again whose values the session itself changes, open work if it was folded since, and `further` ones."""
        world = self._world_now() if further else self._renewed()
        if world is None:
            return
        keys = further | LIVE | (_WORK if tasks_are_due(self._session.log.view) else frozenset())
        self._observed = {**self._observed, **observe(self._working_sources(keys), world, self._failed)}

    def mention(self, parts: tuple[Part, ...]) -> None:
        """State the bodies of the skills that the user mentions, such as `$name`; what was attached mentions none."""
        find = self._session.profile.mentioned_skills
        typed = (part.text for part in parts if isinstance(part, Text) and not part.attached)
        names = mentions_in("\n".join(typed), self._session.profile.mention_sigils)
        if find is None or self._world is None or not (names.names or names.paths):
            return
        try:
            stated, _ = mentioned_bodies(self._world, mentioned_skills(names, find(self._world)))
        except _FOREIGN as error:
            self._failed("skills", error)
            return
        if stated is not None:
            self._session.log.append(stated)


def _author(key: str) -> str:
    """The name under which the failures of a source are counted."""
    return f"source {key}"


def tasks_are_due(view: View) -> bool:
    """Return whether open tasks have to be read again: the view was folded, and has no newer statement of them."""
    fact = view.facts.get("tasks")
    return (-1 if fact is None else seq_of(fact.id)) < folded_at(view)
