"""The world that the context sources of a coding agent observe: files, git, date, tasks, and what commands may do."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, TaskChanged
from palimpsest.core.items import EMPTY_MAPPING, Part, text_of
from palimpsest.engine.agent import Agent
from palimpsest.engine.coding.live_mode import LiveMode
from palimpsest.engine.coding.settings import CodingSettings
from palimpsest.engine.loop.context import tasks_are_due
from palimpsest.engine.loop.deferred import DeferredTools
from palimpsest.engine.loop.world import LocalWorld, git_head, session_state
from palimpsest.engine.session import Session
from palimpsest.sources.instructions.nested import nested_instructions
from palimpsest.sources.reconcile import folded_at
from palimpsest.sources.source import NetworkPolicy
from palimpsest.tools.session.skill import FindsSkills, KnownSkill
from palimpsest.tools.session.tasks import TaskGraph
from palimpsest.tools.session.todo import TODOS, rendered, todo_list
from palimpsest.tools.shell.sandbox import Area, Sandbox
from palimpsest.tools.tool import AgentTool


class Servers(Protocol):
    """MCP servers, as far as the context and sub-agents need them."""

    @property
    def instructions(self) -> Mapping[str, str]:
        """What each server says about itself, by its name."""
        ...

    @property
    def tools(self) -> tuple[AgentTool, ...]:
        """All tools that were offered."""
        ...


class WorldNow:
    """The world of a session as it is when it is called: files, git, date, tasks, and what commands may do."""

    def __init__(
        self,
        agent: Agent,
        sandbox: Sandbox,
        settings: CodingSettings,
        tasks: TaskGraph,
        deferred: DeferredTools,
        *,
        area: Area,
        mode: LiveMode,
        hides: Callable[[str], bool],
        domains: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
        texts: Mapping[str, str] = EMPTY_MAPPING,
    ) -> None:
        self._hides = hides
        self._domains = domains
        self._agent = agent
        self._session = agent.session
        self._business = agent.business
        self._deferred = deferred
        self._root = agent.toolbox.workspace.root
        self._settings = settings
        self._sandbox = sandbox
        self._mode = mode
        self._wrap, self._temp = sandbox.wrap(area), area.temp
        self._tasks = tasks
        self._world: LocalWorld | None = None
        self._head: str | None = None
        self.servers: Servers | None = None
        # What the engine states for sources by their key, such as notes.
        self.texts: Callable[[], Mapping[str, str]] = dict
        self._last_texts: Mapping[str, str] = {}
        # Those that stay as they are while the session is open.
        self._fixed_texts = texts
        self._todo_event: tuple[Event, ...] = ()
        self._todos_read = -1

    @property
    def served_tools(self) -> tuple[AgentTool, ...]:
        """The tools of MCP servers that were offered so far."""
        return () if self.servers is None else self.servers.tools

    def __call__(self) -> LocalWorld:
        """Return the world for one observation."""
        known: dict[str, Any] = {
            "sandbox": "workspace-write" if self._sandbox.confines else "full-access",
            "network": self._network(),
            "folders": tuple(folder.as_posix() for folder in self._agent.toolbox.workspace.extra),
            "writable": (self._root.as_posix(), *(folder.as_posix() for folder in self._settings.folders)),
            "tasks": self._tasks.open_lines(),
            "mcp": {} if self.servers is None else self.servers.instructions,
            **({} if self._agent.children is None else {"agents": self._agent.children.roles(), "subagents": self._agent.children.live()}),
            "texts": self._texts_now(),
            **self._changing(),
        }
        state = session_state(self._session, self._root, **known)
        clock = self._session.environment.clock
        # Asking git starts processes; while its statement is visible, only another branch or commit is worth stating.
        head, previous = git_head(self._root), self._head
        same = "git_status" in self._session.log.view.facts and head is not None and head == previous
        world = (
            LocalWorld(state, clock, wrap=self._wrap, temp=self._temp, hides=self._hides)
            if self._world is None
            else self._world.observing(state, same_commit=same)
        )
        self._world, self._head = world, head
        return world

    def _network(self) -> NetworkPolicy | None:
        """What the network policy of the user is: that of the sandbox, and the domains of rules; `None` without either."""
        allowed, denied = self._domains
        if not (self._sandbox.confines or allowed or denied):
            return None
        return NetworkPolicy(self._settings.network or not self._sandbox.confines, allowed, denied)

    def _texts_now(self) -> Mapping[str, str]:
        """Return the texts for sources; the last ones if they cannot be read now, so that nothing is concluded from that."""
        with suppress(PalimpsestError):
            self._last_texts = self.texts()
        return {**self._last_texts, **self._fixed_texts}

    def renewed(self) -> LocalWorld | None:
        """Return the world of the last call with what the session itself changed since, and without asking git again; `None` before it."""
        # Here and not where the user changes it, for that may be in the middle of a model call.
        self._mode.record()
        if self._world is None:
            return None
        # Reading the tasks again is needed only after a fold.
        tasks: dict[str, Any] = {"tasks": self._tasks.open_lines()} if tasks_are_due(self._session.log.view) else {}
        return replace(self._world, state=structs.replace(self._world.state, **self._changing(), **tasks))

    def _changing(self) -> dict[str, Any]:
        return {
            "approval": self._mode.current,
            # The other modes are about approvals only.
            "mode": "plan" if self._mode.current == "plan" else self._mode.collaboration,
            "personality": self._session.profile.personality,
            "tools": self._session.tools,
            "deferred": self._deferred.declarations,
            "business": None if self._business is None else self._business.value(),
            "folded": folded_at(self._session.log.view) >= 0,
            "todos": self._todo_lines() if folded_at(self._session.log.view) >= 0 else (),
        }

    def _todo_lines(self) -> tuple[str, ...]:
        """Return the todo list, if it has open items and no visible result shows it; that of another program by its open items."""
        evidence, view = self._session.derived.evidence.value(), self._session.log.view
        numbered = len(evidence.numbered)
        listed = evidence.tasks[: len(evidence.tasks) - numbered]
        foreign = evidence.tasks[len(listed) :]
        # Tasks with numbers are those of a graph, which has a source of its own where its files are here.
        others = tuple(f"[ ] {task}" for task in foreign) if foreign and not self._tasks.files.load() else ()
        if not listed:
            return others
        own = todo_list(self._todo_events())
        is_own = tuple(dict.fromkeys(item.text for item in own if item.status != "completed")) == listed
        text = rendered(own) if is_own else "\n".join(f"[ ] {task}" for task in listed)
        if any(item.kind == "result" and item.mask is None and text_of(item.content) == text for item in view.items):
            return others
        return (*text.splitlines(), *others)

    def _todo_events(self) -> tuple[Event, ...]:
        """Return the newest event with a todo list, if there is one. What was read before is not read again."""
        log = self._session.log
        for event in log.reader.run(self._todos_read + 1, log.tip):
            if isinstance(event.body, TaskChanged) and event.body.task == TODOS:
                self._todo_event = (event,)
        self._todos_read = log.tip
        return self._todo_event

    def attached(self, tool: AgentTool, paths: tuple[str, ...]) -> tuple[Part, ...]:
        """Return the instruction files of the folders of files that were read, if the view does not show them yet."""
        if tool.kind != "reads" or self._world is None:
            return ()
        view, world = self._session.log.view, self._world
        return tuple(text for path in paths for text in nested_instructions(view, world, (self._root / path).as_posix()))


def skills_of(session: Session, root: Path, hides: Callable[[str], bool]) -> FindsSkills:
    """Return what finds the skills of a session: those that its profile lists, so that what is listed can be loaded."""

    def find() -> tuple[KnownSkill, ...]:
        world = LocalWorld(session_state(session, root), session.environment.clock, hides=hides)
        return tuple(KnownSkill(skill.name, skill.description, skill.path) for skill in session.profile.skills(world))

    return find
