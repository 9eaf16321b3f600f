"""The coding agent: an agent with the standard tools, permissions, a sandbox, context sources and recall, in a project folder."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from msgspec import structs

from palimpsest.core.events import ModeChanged, PermissionAsked
from palimpsest.core.items import Part, ToolCall
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.loop.archive import LogArchive
from palimpsest.engine.loop.business import BusinessState
from palimpsest.engine.loop.context import SourcedContext
from palimpsest.engine.loop.deferred import DeferredTools, tool_budget, within_budget
from palimpsest.engine.loop.tool_calls import Toolbox, no_approver
from palimpsest.engine.loop.world import LocalWorld, git_head, session_state
from palimpsest.engine.session import Session
from palimpsest.sources.instructions.files import folders_of_project
from palimpsest.sources.instructions.nested import nested_instructions
from palimpsest.sources.source import NetworkPolicy
from palimpsest.sources.state import StateMachine
from palimpsest.stores.home import AnyHome
from palimpsest.stores.permission_rules import FilePermissionRules, MemoryPermissionRules, project_rule_texts
from palimpsest.tools.files.confined import confined_writer
from palimpsest.tools.files.search import GREP
from palimpsest.tools.functions import InstalledTools, installed_tools
from palimpsest.tools.permissions.decision import Approval, Decision, Mode
from palimpsest.tools.permissions.rules import Rule, deny_rules, parse_rule
from palimpsest.tools.session.skill import SkillFolders
from palimpsest.tools.session.tasks import TaskGraph
from palimpsest.tools.session.tool_search import SEARCH
from palimpsest.tools.shell.bash import Shell
from palimpsest.tools.shell.environment import command_environment
from palimpsest.tools.shell.sandbox import Area, Sandbox, find_sandbox
from palimpsest.tools.tool import AgentTool, ToolOutput
from palimpsest.tools.toolset import Toolset, standard_tools, task_graph
from palimpsest.tools.web.fetch import Fetcher
from palimpsest.tools.workspace import Workspace

if TYPE_CHECKING:
    from palimpsest.tools.permissions.permissions import Permissions

KeptRules: TypeAlias = FilePermissionRules | MemoryPermissionRules
_OWN_SKILLS = ".config/palimpsest/skills"
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule. `withheld` are
    variables of the environment that hold keys and reach no command. `tools` are further tools beside the standard ones; without them
    those that other packages install. `states` is the state machine of the task, if the developer declares one; only with
    `model_sets_state` the model gets the tool that changes it.
    """

    mode: Mode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sandbox: Literal["auto", "off"] = "auto"
    network: bool = False
    folders: tuple[Path, ...] = ()
    disabled: frozenset[str] = frozenset()
    fetcher: Fetcher = field(default_factory=Fetcher)
    withheld: frozenset[str] = frozenset()
    tools: tuple[AgentTool, ...] | None = None
    states: StateMachine | None = None
    model_sets_state: bool = False


class _RuleSet(NamedTuple):
    """The mode, the rules of the user, and those of the project, which only deny."""

    mode: Mode
    given: tuple[Rule, ...]
    denied: tuple[Rule, ...]


class _Gatekeeper:
    """Decides about tool calls by the permissions of the session, which grow with each answer "always"."""

    def __init__(self, workspace: Workspace, limits: _RuleSet, rules: KeptRules, shell: Shell, sandbox: Sandbox) -> None:
        self._workspace = workspace
        self._limits = limits
        self._rules = rules
        self._shell = shell
        self._sandbox = sandbox
        self._made: Permissions | None = None

    @property
    def _permissions(self) -> "Permissions":
        if self._made is None:
            from palimpsest.tools.permissions.permissions import Permissions  # noqa: PLC0415 - 30 ms, and only a tool call needs it

            self._made = Permissions(self._limits.mode, self._workspace, self._limits.given, self._limits.denied)
        return self._made

    def decide(self, tool: AgentTool, call: ToolCall) -> Decision:
        """Return the decision about a call in the present mode."""
        cwd = self._shell.directory(self._workspace)
        return self._permissions.decide(tool, call, sandboxed=self._sandbox.confines, cwd=cwd)

    def screened(self, tool: AgentTool) -> AgentTool:
        """The tool `grep` without lines of files that may not be read; every other tool names the files that it reads."""

        async def run(arguments: str, workspace: Workspace) -> ToolOutput:
            output = await tool.run(arguments, workspace)
            return replace(output, text=self._permissions.without_restricted(tool, output.text))

        return replace(tool, run=run)

    def remember(self, rule: str) -> None:
        """Keep a rule for this session and for later ones of this project."""
        self._made = self._permissions.with_rule(rule)
        self._rules.add(rule)


def equip(agent: Agent, home: AnyHome, settings: CodingSettings, approve: Approve = no_approver) -> tuple[str, ...]:
    """Give an agent the standard tools, permissions, sandbox and context of its project folder. Returns what the user should know.

    The resources of the tools are released when the agent is closed. Raises `BadInput` for a malformed rule.
    """
    session, root = agent.session, agent.toolbox.workspace.root
    workspace = Workspace(root, settings.folders, keep=home.blobs.put, write=confined_writer(root, *settings.folders))
    # What a project or a user may have spoilt is read first, so that nothing is left behind if it is refused.
    tasks = task_graph(workspace, owner=agent.id)
    rules = MemoryPermissionRules() if home.folder is None else FilePermissionRules(home.folder, root)
    denied, complaints = deny_rules(project_rule_texts(root))
    given = (*rules.load(), *settings.allow, *(f"deny {text}" for text in settings.deny))
    limits = _RuleSet(settings.mode, tuple(parse_rule(text) for text in given), denied)
    area = Area.of(workspace, network=settings.network, hidden=() if home.folder is None else (home.folder,))
    agent.resources.callback(area.remove)
    sandbox = find_sandbox(area) if settings.sandbox == "auto" else Sandbox("none", why="it is turned off")
    environment = command_environment(os.environ, withhold=settings.withheld)
    shell = Shell(root, environment, sandbox=sandbox.wrap(area), temp=area.temp)
    agent.resources.push_async_callback(_close_shell, session, shell)
    archive = LogArchive(session.log, home.store, home.blobs, home.clock, home.index)
    agent.resources.callback(archive.close)
    installed = installed_tools() if settings.tools is None else InstalledTools(settings.tools)
    toolset = standard_tools(
        shell,
        tasks=tasks,
        archive=archive,
        skills=_skills(LocalWorld(session_state(session, root), home.clock)),
        lists_skills=all(source.key != "skills" for source in session.profile.sources.sources),
        fetcher=settings.fetcher,
        installed=installed,
    )
    agent.business = None if settings.states is None else BusinessState(session, settings.states)
    gate = _Gatekeeper(workspace, limits, rules, shell, sandbox)
    deferred, tools = _declared(agent, toolset, installed, settings)
    if GREP in tools:
        tools[GREP] = gate.screened(tools[GREP])
    world = _WorldNow(agent, sandbox, settings, tasks, deferred, area=area)
    toolbox = Toolbox(tools, workspace, gate.decide, approve, gate.remember, world.attached)
    agent.offer(toolbox)
    deferred.offer = lambda: agent.offer(toolbox)
    agent.context = SourcedContext(session, world, world.renewed)
    if session.log.view.mode != settings.mode:
        session.log.append(ModeChanged(settings.mode, session.log.view.mode))
    statement = () if sandbox.confines else (sandbox.describe(),)
    return (*statement, *complaints, *toolset.problems)


def _declared(
    agent: Agent, toolset: Toolset, installed: InstalledTools, settings: CodingSettings
) -> tuple[DeferredTools, dict[str, AgentTool]]:
    """The tools that are declared to the model, by name, and those that it has to search for."""
    enabled = [tool for tool in toolset.tools if tool.name not in settings.disabled]
    own = [tool for tool in enabled if tool not in installed.tools]
    if agent.business is not None and settings.model_sets_state:
        own.append(agent.business.tool())
    # A tool of another package never takes the place of one of ours.
    taken = {SEARCH, *(tool.name for tool in own)}
    others = [tool for tool in enabled if tool in installed.tools and tool.name not in taken]
    loaded, rest = within_budget(own, others, tool_budget(agent.session))
    tools = {tool.name: tool for tool in loaded}
    deferred = DeferredTools(tools, rest)
    deferred.load_again(agent.session)
    return deferred, tools


class _WorldNow:
    """The world of a session as it is when it is called: files, git, date, tasks, and what commands may do."""

    def __init__(
        self, agent: Agent, sandbox: Sandbox, settings: CodingSettings, tasks: TaskGraph, deferred: DeferredTools, *, area: Area
    ) -> None:
        self._session = agent.session
        self._business = agent.business
        self._deferred = deferred
        self._root = agent.toolbox.workspace.root
        self._settings = settings
        self._sandbox = sandbox
        self._wrap = sandbox.wrap(area)
        self._tasks = tasks
        self._world: LocalWorld | None = None
        self._head: str | None = None

    def __call__(self) -> LocalWorld:
        """Return the world for one observation."""
        known: dict[str, Any] = {
            "sandbox": "workspace-write" if self._sandbox.confines else "full-access",
            "network": NetworkPolicy(self._settings.network) if self._sandbox.confines else None,
            "approval": self._settings.mode,
            # The other modes are about approvals only.
            "mode": "plan" if self._settings.mode == "plan" else "",
            "writable": (self._root.as_posix(), *(folder.as_posix() for folder in self._settings.folders)),
            "tasks": self._tasks.open_lines(),
            **self._changing(),
        }
        state = session_state(self._session, self._root, **known)
        clock = self._session.environment.clock
        # Asking git starts processes; while its statement is visible, only another branch or commit is worth stating.
        head, previous = git_head(self._root), self._head
        same = "git_status" in self._session.log.view.facts and head is not None and head == previous
        world = LocalWorld(state, clock, wrap=self._wrap) if self._world is None else self._world.observing(state, same_commit=same)
        self._world, self._head = world, head
        return world

    def renewed(self) -> LocalWorld | None:
        """Return the world of the last call with what the session itself changed since, and without asking git again; `None` before it."""
        if self._world is None:
            return None
        # Reading the tasks again is needed only if a fold removed their statement.
        tasks: dict[str, Any] = {} if "tasks" in self._session.log.view.facts else {"tasks": self._tasks.open_lines()}
        return replace(self._world, state=structs.replace(self._world.state, **self._changing(), **tasks))

    def _changing(self) -> dict[str, Any]:
        return {
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


async def _close_shell(session: Session, shell: Shell) -> None:
    for ended in await shell.close():
        session.log.append(ended)


def _skills(world: LocalWorld) -> SkillFolders:
    """The folders of the skills that the context lists: the user's, then those from the project root down, which win."""
    home = Path(world.state.home)
    projects = [Path(folder) for folder in folders_of_project(world)]
    shared = [folder / name for folder in (home, *projects) for name in _SKILL_FOLDERS]
    return SkillFolders((home / _OWN_SKILLS, *shared), projects[0])


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
