"""The coding agent: an agent with the standard tools, permissions, a sandbox, context sources and recall, in a project folder."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from palimpsest.core.events import ModeChanged, PermissionAsked
from palimpsest.core.items import Part, ToolCall
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.loop.archive import LogArchive
from palimpsest.engine.loop.context import SourcedContext
from palimpsest.engine.loop.tool_calls import Toolbox, no_approver
from palimpsest.engine.loop.world import LocalWorld, session_state
from palimpsest.engine.session import Session
from palimpsest.sources.instructions.nested import nested_instructions
from palimpsest.sources.source import NetworkPolicy
from palimpsest.stores.home import AnyHome
from palimpsest.stores.permission_rules import FilePermissionRules, MemoryPermissionRules, project_rule_texts
from palimpsest.tools.files.confined import confined_writer
from palimpsest.tools.files.search import GREP
from palimpsest.tools.functions import installed_tools
from palimpsest.tools.permissions.decision import Approval, Decision, Mode
from palimpsest.tools.permissions.permissions import Permissions
from palimpsest.tools.permissions.rules import deny_rules, parse_rule
from palimpsest.tools.session.skill import SkillFolders
from palimpsest.tools.session.tasks import TaskGraph
from palimpsest.tools.shell.bash import Shell
from palimpsest.tools.shell.sandbox import Area, Sandbox, find_sandbox
from palimpsest.tools.tool import AgentTool, ToolOutput
from palimpsest.tools.toolset import standard_tools, task_graph
from palimpsest.tools.web.fetch import Fetcher
from palimpsest.tools.workspace import Workspace

KeptRules: TypeAlias = FilePermissionRules | MemoryPermissionRules
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule.
    """

    mode: Mode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sandbox: Literal["auto", "off"] = "auto"
    network: bool = False
    folders: tuple[Path, ...] = ()
    disabled: frozenset[str] = frozenset()
    fetcher: Fetcher = field(default_factory=Fetcher)


class _Gatekeeper:
    """Decides about tool calls by the permissions of the session, which grow with each answer "always"."""

    def __init__(
        self, permissions: Permissions, rules: FilePermissionRules | MemoryPermissionRules, shell: Shell, sandbox: Sandbox
    ) -> None:
        self._permissions = permissions
        self._rules = rules
        self._shell = shell
        self._sandbox = sandbox

    def decide(self, tool: AgentTool, call: ToolCall) -> Decision:
        """Return the decision about a call in the present mode."""
        cwd = self._shell.directory(self._permissions.workspace)
        return self._permissions.decide(tool, call, sandboxed=self._sandbox.confines, cwd=cwd)

    def screened(self, tool: AgentTool) -> AgentTool:
        """The tool `grep` without lines of files that may not be read; every other tool names the files that it reads."""
        if tool.name != GREP:
            return tool

        async def run(arguments: str, workspace: Workspace) -> ToolOutput:
            output = await tool.run(arguments, workspace)
            return replace(output, text=self._permissions.without_restricted(tool, output.text))

        return replace(tool, run=run)

    def remember(self, rule: str) -> None:
        """Keep a rule for this session and for later ones of this project."""
        self._permissions = self._permissions.with_rule(rule)
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
    permissions = Permissions(settings.mode, workspace, tuple(parse_rule(text) for text in given), denied)
    area = Area.of(workspace, network=settings.network, hidden=() if home.folder is None else (home.folder,))
    agent.resources.callback(area.remove)
    sandbox = find_sandbox(area) if settings.sandbox == "auto" else Sandbox("none", why="it is turned off")
    shell = Shell(root, sandbox=sandbox.wrap(area), temp=area.temp)
    agent.resources.push_async_callback(_close_shell, session, shell)
    archive = LogArchive(session.log, home.store, home.blobs, home.clock, home.index)
    agent.resources.callback(archive.close)
    toolset = standard_tools(
        shell, tasks=tasks, archive=archive, skills=_skills(root), fetcher=settings.fetcher, installed=installed_tools()
    )
    gate = _Gatekeeper(permissions, rules, shell, sandbox)
    world = _WorldNow(agent, sandbox, area, settings, tasks)
    tools = {tool.name: gate.screened(tool) for tool in toolset.tools if tool.name not in settings.disabled}
    agent.offer(Toolbox(tools, workspace, gate.decide, approve, gate.remember, world.attached))
    agent.context = SourcedContext(session, world)
    if session.log.view.mode != settings.mode:
        session.log.append(ModeChanged(settings.mode, session.log.view.mode))
    statement = () if sandbox.confines else (sandbox.describe(),)
    return (*statement, *complaints, *toolset.problems)


class _WorldNow:
    """The world of a session as it is when it is called: files, git, date, tasks, and what commands may do."""

    def __init__(self, agent: Agent, sandbox: Sandbox, area: Area, settings: CodingSettings, tasks: TaskGraph) -> None:
        self._session = agent.session
        self._root = agent.toolbox.workspace.root
        self._settings = settings
        self._sandbox = sandbox
        self._wrap = sandbox.wrap(area)
        self._tasks = tasks
        self._world: LocalWorld | None = None

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
        }
        state = session_state(self._session, self._root, **known)
        clock = self._session.environment.clock
        self._world = LocalWorld(state, clock, wrap=self._wrap) if self._world is None else self._world.observing(state)
        return self._world

    def attached(self, tool: AgentTool, paths: tuple[str, ...]) -> tuple[Part, ...]:
        """Return the instruction files of the folders of files that were read, if the view does not show them yet."""
        if tool.kind != "reads" or self._world is None:
            return ()
        view, world = self._session.log.view, self._world
        return tuple(text for path in paths for text in nested_instructions(view, world, (self._root / path).as_posix()))


async def _close_shell(session: Session, shell: Shell) -> None:
    for ended in await shell.close():
        session.log.append(ended)


def _skills(root: Path) -> SkillFolders:
    """The folders of skills: the user's, then the project's, which win."""
    homes = (Path.home(), root)
    return SkillFolders(tuple(folder / name for folder in homes for name in _SKILL_FOLDERS), root)


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
