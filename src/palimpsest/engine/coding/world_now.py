"""The world that the context sources of a coding agent observe: files, git, date, tasks, and what commands may do."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Part
from palimpsest.engine.agent import Agent
from palimpsest.engine.coding.live_mode import LiveMode
from palimpsest.engine.coding.settings import CodingSettings
from palimpsest.engine.loop.deferred import DeferredTools
from palimpsest.engine.loop.world import LocalWorld, git_head, session_state
from palimpsest.sources.instructions.files import folders_of_project
from palimpsest.sources.instructions.nested import nested_instructions
from palimpsest.sources.source import NetworkPolicy
from palimpsest.tools.session.skill import SkillFolders
from palimpsest.tools.session.tasks import TaskGraph
from palimpsest.tools.shell.sandbox import Area, Sandbox
from palimpsest.tools.tool import AgentTool

_OWN_SKILLS = ".config/palimpsest/skills"
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")


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
    ) -> None:
        self._hides = hides
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

    @property
    def served_tools(self) -> tuple[AgentTool, ...]:
        """The tools of MCP servers that were offered so far."""
        return () if self.servers is None else self.servers.tools

    def __call__(self) -> LocalWorld:
        """Return the world for one observation."""
        known: dict[str, Any] = {
            "sandbox": "workspace-write" if self._sandbox.confines else "full-access",
            "network": NetworkPolicy(self._settings.network) if self._sandbox.confines else None,
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

    def _texts_now(self) -> Mapping[str, str]:
        """Return the texts for sources; the last ones if they cannot be read now, so that nothing is concluded from that."""
        with suppress(PalimpsestError):
            self._last_texts = self.texts()
        return self._last_texts

    def renewed(self) -> LocalWorld | None:
        """Return the world of the last call with what the session itself changed since, and without asking git again; `None` before it."""
        # Here and not where the user changes it, for that may be in the middle of a model call.
        self._mode.record()
        if self._world is None:
            return None
        # Reading the tasks again is needed only if a fold removed their statement.
        tasks: dict[str, Any] = {} if "tasks" in self._session.log.view.facts else {"tasks": self._tasks.open_lines()}
        return replace(self._world, state=structs.replace(self._world.state, **self._changing(), **tasks))

    def _changing(self) -> dict[str, Any]:
        return {
            "approval": self._mode.current,
            # The other modes are about approvals only.
            "mode": "plan" if self._mode.current == "plan" else "",
            "tools": self._session.tools,
            "deferred": self._deferred.declarations,
            "business": None if self._business is None else self._business.value(),
        }

    def attached(self, tool: AgentTool, paths: tuple[str, ...]) -> tuple[Part, ...]:
        """Return the instruction files of the folders of files that were read, if the view does not show them yet."""
        if tool.kind != "reads" or self._world is None:
            return ()
        view, world = self._session.log.view, self._world
        return tuple(text for path in paths for text in nested_instructions(view, world, (self._root / path).as_posix()))


def skill_folders(world: LocalWorld) -> SkillFolders:
    """The folders of the skills that the context lists: the user's, then those from the project root down, which win."""
    home = Path(world.state.home)
    projects = [Path(folder) for folder in folders_of_project(world)]
    shared = [folder / name for folder in (home, *projects) for name in _SKILL_FOLDERS]
    return SkillFolders((home / _OWN_SKILLS, *shared), projects[0])
