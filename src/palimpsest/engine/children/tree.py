"""The tree of agents of one run: shared limits of depth and number, nicknames, and the questions to the user, one at a time."""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.events import PermissionAsked
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.children.roles import AgentRole, load_roles
from palimpsest.engine.loop.limits import NO_LIMITS, Limits
from palimpsest.profiles.profile import AgentRules
from palimpsest.tools.permissions.decision import Approval
from palimpsest.tools.tool import ToolError

_NICKNAME: Final = re.compile(r"\w[\w .'-]{0,39}")


class AgentSettings(Struct, frozen=True):
    """Settings of the user for sub-agents; `None` leaves a number to the profile. `limits` hold for each turn of each sub-agent.

    With `end_with_turn`, sub-agents of the agent that the user talks to end with its turn, as those of a sub-agent do in any case.
    """

    max_depth: int | None = None
    max_threads: int | None = None
    limits: Limits = NO_LIMITS
    end_with_turn: bool = False


class Slot(Struct):
    """A place among the open sub-agents of a tree; `release` gives it back, once."""

    tree: "AgentTree"
    held: bool = True

    def release(self) -> None:
        """Give the place back."""
        if self.held:
            self.held = False
            self.tree.open -= 1


class AgentTree:
    """What all agents of a run share. `approve` asks the user; `chance` returns a random number from 0 to 1.

    `roles` are by name, and `problems` says which files are no roles. `open` is the number of reserved places. `paths` are the nicknames
    from the top down to each sub-agent, by its session. `over_budget` are called when a call was paid.
    """

    def __init__(
        self, approve: Approve, rules: AgentRules, settings: AgentSettings, roles: Mapping[str, AgentRole], chance: Callable[[], float]
    ) -> None:
        self.depth = settings.max_depth or rules.depth
        self.threads = settings.max_threads or rules.threads
        self.limits = settings.limits
        self.end_with_turn = settings.end_with_turn
        self.roles = roles
        self.problems: tuple[str, ...] = ()
        self.open = 0
        self.paths: dict[str, tuple[str, ...]] = {}
        self.names: set[str] = set()
        self.over_budget: list[Callable[[], None]] = []
        self._approve = approve
        self._chance = chance
        self._asking = asyncio.Lock()

    def reserve(self) -> Slot:
        """Reserve a place for one more sub-agent. Raises `ToolError` if all are taken."""
        if self.open >= self.threads:
            raise ToolError(f"{self.threads} sub-agents are open, which is the most; wait for one and close it with close_agent first")
        self.open += 1
        return Slot(self)

    def check_depth(self, depth: int) -> None:
        """Raise `ToolError` if no sub-agent may be so deep."""
        if depth > self.depth:
            raise ToolError(f"sub-agents may be {self.depth} deep at most, and this one would be deeper; do the task yourself")

    def nickname(self, wanted: str = "") -> str:
        """Return a nickname that no agent of this tree has had. Raises `ToolError` if the wanted one is taken or no name."""
        from palimpsest.engine.children.nicknames import pick_nickname  # most sessions start no sub-agent

        name = wanted or pick_nickname(self.names, self._chance())
        if wanted and _NICKNAME.fullmatch(wanted) is None:
            raise ToolError("a nickname has letters, digits, spaces and dashes, at most 40")
        if wanted in self.names:
            raise ToolError(f"the nickname {wanted!r} is taken; give another one or none")
        self.names.add(name)
        return name

    async def ask(self, asked: PermissionAsked, path: tuple[str, ...] = ()) -> Approval:
        """Ask the user, after all questions that came before; `path` are the nicknames down to the sub-agent whose call it is."""
        if path:
            # The id of a call is unique in its own session only.
            named = f"Sub-agent {' > '.join(path)} asks: {asked.question}"
            asked = replace(asked, question=named, call_id=f"{'/'.join(path)}/{asked.call_id}")
        async with self._asking:
            return await self._approve(asked)

    def check_budgets(self) -> None:
        """Let each agent of the tree whose turn has reached its cost limit stop its sub-agents."""
        for check in tuple(self.over_budget):
            check()


def new_tree(agent: Agent, approve: Approve, settings: AgentSettings, hides: Callable[[str], bool]) -> AgentTree:
    """Return the tree of an agent that the user talks to, with the roles of the user and of its project but those that a rule `hides`."""
    session = agent.session
    roles, problems = load_roles(Path.home(), agent.toolbox.workspace.root, hides)
    tree = AgentTree(approve, session.profile.agents, settings, roles, session.environment.chance)
    tree.problems = problems
    return tree
