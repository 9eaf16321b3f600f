"""Trees of coding agents in one process: a script for the root and one for each sub-agent, which is found by its nickname."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coding_tasks import MODEL, Step, scripted, use
from msgspec.structs import replace

from palimpsest.agent.agent import Agent, Approve
from palimpsest.agent.children import ChildAgents
from palimpsest.agent.limits import NO_LIMITS, Limits, recorded_spending
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, refuse_all
from palimpsest.core.events import Body, ChildEnded, ChildOpened, ModelReplied, ToolReturned
from palimpsest.core.items import ToolCall, text_of
from palimpsest.core.ports import Provider
from palimpsest.providers.scripted import RoutedScripts, Scripted, StalledReply
from palimpsest.stores.home import FolderHome

PLAIN = CodingSettings(mode="auto", sandbox="off", allow=("bash",), tools=())


def spawn(nickname: str, message: str = "do it", **more: object) -> ToolCall:
    """A call that starts a sub-agent under a name."""
    return use("spawn_agent", message=message, nickname=nickname, **more)


def wait(*names: str, **more: object) -> ToolCall:
    """A call that waits for sub-agents."""
    return use("wait_agent", ids=names, timeout_ms=600_000, **more)


def stalled(*calls: ToolCall, text: str = "never said") -> StalledReply:
    """A reply that comes only when the test releases it: calls, or a text."""
    named = tuple(replace(call, call_id=f"toolu_stalled_{index}") for index, call in enumerate(calls))
    return StalledReply(ModelReplied(named) if named else text, after=1)


def routed(root: Scripted | None, children: Mapping[str, Scripted]) -> RoutedScripts:
    """A provider for a tree: the requests of a sub-agent hold its briefing, and those of its parent do not."""
    return RoutedScripts({f"You are {name}, a sub-agent": script for name, script in children.items()}, root or Scripted())


@dataclass(frozen=True)
class Family:
    """A project folder with a home beside it, in which trees of agents work."""

    folder: Path
    settings: CodingSettings = PLAIN
    approve: Approve = refuse_all
    profile: str = "palimpsest"
    home: FolderHome = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", FolderHome(self.folder / "home"))
        (self.folder / "project").mkdir(exist_ok=True)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def root(self, provider: Provider, *, resume: str = "", limits: Limits = NO_LIMITS) -> Agent:
        """The agent of the user, new or resumed."""
        agent = Agent(MODEL, provider=provider, cwd=self.project, home=self.home, resume=resume, profile=self.profile, limits=limits)
        equip(agent, self.home, self.settings, self.approve)
        return agent

    def agent(self, *steps: Step, children: Mapping[str, tuple[Step, ...]] | None = None, limits: Limits = NO_LIMITS) -> Agent:
        """A new agent whose sub-agents reply with the steps under their names."""
        scripts = {name: scripted(*replies, model=MODEL) for name, replies in (children or {}).items()}
        return self.root(routed(scripted(*steps, model=MODEL), scripts), limits=limits)

    def bodies(self, session: str) -> list[Body]:
        """The events of a session."""
        with self.home.open(session, write=False) as log:
            return [event.body for event in log.events()]

    def ends(self, session: str) -> list[tuple[str, str, str]]:
        """Nickname, status and text of the recorded ends of sub-agents, in order."""
        bodies = self.bodies(session)
        names = {body.session: body.nickname for body in bodies if isinstance(body, ChildOpened)}
        return [(names[body.session], body.status, body.text) for body in bodies if isinstance(body, ChildEnded)]

    def sessions(self, session: str) -> dict[str, str]:
        """The sessions of all sub-agents below a session, by nickname."""
        found: dict[str, str] = {}
        for body in self.bodies(session):
            if isinstance(body, ChildOpened):
                found |= {body.nickname: body.session} | self.sessions(body.session)
        return found

    def usd(self, session: str) -> float:
        """What the file of one session says that its calls cost."""
        usd = recorded_spending(self.home, session).usd
        assert usd is not None
        return usd


def children_of(agent: Agent) -> ChildAgents:
    """The sub-agents of an agent that was equipped."""
    assert isinstance(agent.children, ChildAgents)
    return agent.children


def answers(bodies: list[Body], tool: str) -> list[object]:
    """The results of the calls of a tool: as JSON, or as text if they are errors."""
    found = [body.result for body in bodies if isinstance(body, ToolReturned) and body.tool == tool]
    return [text_of(result) if result.error else json.loads(text_of(result)) for result in found]
