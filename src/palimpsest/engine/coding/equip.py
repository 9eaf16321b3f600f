"""Equips an agent for coding: the standard tools, permissions, a sandbox, context sources and recall, in a project folder."""

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.engine.agent import Agent, Approve
from palimpsest.engine.children.children import ChildAgents
from palimpsest.engine.children.tools import child_tools
from palimpsest.engine.children.tree import AgentTree, new_tree
from palimpsest.engine.coding.gatekeeper import Gatekeeper, LiveRules, RuleSet, user_rules
from palimpsest.engine.coding.live_mode import LiveMode
from palimpsest.engine.coding.profile_parts import profile_parts
from palimpsest.engine.coding.servers import serve
from palimpsest.engine.coding.settings import CodingSettings, Inherited, narrowed
from palimpsest.engine.coding.shelf import memory_shelf, shelf_of
from palimpsest.engine.coding.world_now import WorldNow, skills_of
from palimpsest.engine.loop.archive import LogArchive
from palimpsest.engine.loop.business import BusinessState
from palimpsest.engine.loop.context import SourcedContext
from palimpsest.engine.loop.deferred import DeferredTools, tool_budget, within_budget
from palimpsest.engine.loop.tool_calls import Toolbox, no_approver
from palimpsest.engine.memory.jobs import memory_jobs, stage_notices
from palimpsest.engine.memory.recalling import HidesForgottenNotes, NoteRecall, memory_search, recall_problems, stated_notes
from palimpsest.engine.memory.session_memory import SessionMemory, session_memory
from palimpsest.engine.memory.tools import memory_tools
from palimpsest.engine.session import Session
from palimpsest.engine.undo_files.turn_snapshots import TurnFiles, turn_files
from palimpsest.stores.config.settings import FILE_NAME, project_denials
from palimpsest.stores.home import AnyHome
from palimpsest.stores.permissions.rules import FilePermissionRules, MemoryPermissionRules
from palimpsest.stores.snapshots.taking import SnapshotLimits
from palimpsest.tools.files.confined import confined_writer
from palimpsest.tools.files.search import GLOB, GREP
from palimpsest.tools.functions import InstalledTools, installed_tools
from palimpsest.tools.permissions.rules import deny_rules
from palimpsest.tools.session.recall import page_for
from palimpsest.tools.session.tool_search import SEARCH
from palimpsest.tools.shell.bash import Shell
from palimpsest.tools.shell.environment import CommandEnvironment
from palimpsest.tools.shell.sandbox import Area, Sandbox, find_sandbox
from palimpsest.tools.tool import AgentTool
from palimpsest.tools.toolset import standard_tools, task_graph
from palimpsest.tools.workspace import Workspace


def equip(
    agent: Agent, home: AnyHome, settings: CodingSettings, approve: Approve = no_approver, tree: AgentTree | None = None
) -> tuple[str, ...]:
    """Give an agent the standard tools, permissions, sandbox and context of its project folder. Returns what the user should know.

    The resources of the tools are released when the agent is closed. A sub-agent gets the `tree` of its parent. Raises `BadInput` for a
    malformed rule.
    """
    session, root = agent.session, agent.toolbox.workspace.root
    parts, memory = profile_parts(agent, home), session_memory(agent, home, settings.memory)
    workspace = _workspace(session, root, home, (*settings.folders, *parts.folders), memory)
    # What a project or a user may have spoilt is read first, so that nothing is left behind if it is refused.
    tasks = task_graph(workspace, owner=agent.id)
    rules = MemoryPermissionRules() if home.folder is None else FilePermissionRules(home.folder, root)
    mode = _live_mode(session, settings)
    installed = _installed(settings)
    limits, complaints = _limits(home, root, settings, rules, mode=mode, tools=[tool.name for tool in installed.tools])
    area = _area(agent, workspace, home, settings)
    inherited = settings.inherited or Inherited(_sandbox(settings, area), LiveRules(rules), mode, served=lambda: world.served_tools)
    sandbox = inherited.sandbox
    environment = CommandEnvironment(os.environ, keep=settings.variables, withhold=settings.withheld)
    shell = Shell(root, environment, sandbox=sandbox.wrap(area), temp=area.temp)
    agent.resources.push_async_callback(_close_shell, session, shell)
    agent.open_tasks, agent.shell = tasks.open_lines, shell
    archive = _archive(agent, home, memory)
    gate = Gatekeeper(workspace, limits, inherited.rules, shell, (sandbox, area))
    toolset = standard_tools(
        shell,
        tasks=tasks,
        archive=archive,
        recalled_page=lambda: page_for(session.card.window),
        skills=skills_of(session, root, gate.hides),
        lists_skills=all(source.key != "skills" for source in session.profile.sources.sources),
        hides=gate.hides,
        fetcher=settings.fetcher,
        installed=installed,
    )
    agent.business = _business_state(agent, settings)
    below = structs.replace(inherited, mode=mode)
    family = tree or new_tree(agent, approve, settings.agents, gate.hides)
    children = ChildAgents(agent, home, family, lambda child, role, ask: equip(child, home, narrowed(settings, role, below), ask, family))
    own = (*toolset.tools, *parts.tools(lambda: mode.current), *child_tools(children), *memory_tools(memory))
    deferred, tools = _declared(agent, own, installed, settings, shell)
    tools |= {name: gate.screened(tools[name]) for name in (GREP, GLOB) if name in tools}
    session.environment = replace(session.environment, look=parts.look(gate.permitted(session.environment.look)))
    world = WorldNow(
        agent, sandbox, settings, tasks, deferred, area=area, mode=mode, hides=gate.hides, domains=gate.domains, texts=parts.texts
    )
    files, unsaved = _turn_files(home, root, settings, gate, children)
    toolbox = Toolbox(tools, workspace, gate.decide, family.ask if tree is None else approve, gate.remember, world.attached, files)
    agent.offer(toolbox)
    deferred.offer = lambda: agent.offer(toolbox)
    forgetting = None if memory is None else _remember(memory, world, settings)
    agent.context = children.context(SourcedContext(session, world, world.renewed, forgetting))
    agent.hooks.add(settings.hooks)
    served = serve(agent, home.folder, settings, environment, deferred=deferred, world=world)
    agent.mode = mode
    mode.record()
    of_family = (*family.problems, *recall_problems(memory), *stage_notices(memory, goes_on=settings.memory_jobs)) if tree is None else ()
    return (*_statement(sandbox), *unsaved, *complaints, *toolset.problems, *served, *of_family)


def _area(agent: Agent, workspace: Workspace, home: AnyHome, settings: CodingSettings) -> Area:
    """Return what commands may use: they read the notes that are plain files, and never write them."""
    hidden = () if home.folder is None else (home.folder,)
    notes = () if workspace.notes is None else (workspace.notes,)
    area = Area.of(workspace, network=settings.network, hidden=hidden, shown=(*settings.shown, *notes))
    agent.resources.callback(area.remove)
    return area


def _archive(agent: Agent, home: AnyHome, memory: SessionMemory | None) -> LogArchive:
    search = None if memory is None else memory_search(memory)
    archive = LogArchive(agent.session.log, home.store, home.blobs, home.clock, home.index, search)
    agent.resources.callback(archive.close)
    return archive


def _turn_files(
    home: AnyHome, root: Path, settings: CodingSettings, gate: Gatekeeper, children: ChildAgents
) -> tuple[TurnFiles, tuple[str, ...]]:
    """Keep the files around turns in the folders of the user, without what a profile adds. Returns what cannot be kept, too."""
    folders = (root, *Workspace(root, settings.folders).extra) if settings.snapshots else ()
    return turn_files(home, folders, SnapshotLimits(settings.largest_saved), gate.may_change_files, children.settle)


def _statement(sandbox: Sandbox) -> tuple[str, ...]:
    return () if sandbox.replaces_questions else (sandbox.describe(),)


def _workspace(session: Session, root: Path, home: AnyHome, folders: tuple[Path, ...], memory: SessionMemory | None) -> Workspace:
    """Return the folders in which the tools work: the project, those that the user granted, and that of notes which are plain files."""
    writer, shelf = confined_writer(root, *folders), shelf_of(session.log, home.store, partial(memory_shelf, memory))
    workspace = Workspace(root, folders, keep=home.blobs.put, write=writer, known=session.known_files, shelf=shelf)
    if memory is None or memory.topics is None or session.log.opened.opener is not None:
        return workspace
    topics = memory.topics
    write = topics.writer(confined_writer(root, *folders, topics.path))
    return structs.replace(workspace, write=write, notes=topics.path, before_removal=topics.keep)


def _remember(memory: SessionMemory, world: WorldNow, settings: CodingSettings) -> HidesForgottenNotes:
    """Let an agent use its memory: jobs, what the context states of notes, and what prompts recall. Returns what hides forgotten notes."""
    agent = memory.agent
    jobs = memory_jobs(memory, goes_on=settings.memory_jobs)
    agent.jobs.add(jobs)
    if not settings.memory_jobs and any(job.limits.calls for job in jobs):
        agent.jobs.exit_seconds = max(agent.jobs.exit_seconds, settings.memory.end_seconds)
    world.texts = partial(stated_notes, memory)
    if agent.session.log.opened.opener is None:
        agent.recalling = recall = NoteRecall(memory)
        recall.prepare()
        agent.resources.callback(recall.close)
    return HidesForgottenNotes(memory)


def _business_state(agent: Agent, settings: CodingSettings) -> BusinessState | None:
    """The state of the task where this run begins, which hooks may change. Raises `BadInput` for a state that it cannot have."""
    if settings.states is None:
        if settings.state:
            raise BadInput("there are no states; declare them as states.names in the settings", where=f"--state {settings.state[:60]}")
        return None
    business = BusinessState(agent.session, settings.states)
    if settings.state and settings.state != business.current:
        business.transition(settings.state)
    agent.hooks.set_state = business.transition
    return business


def _limits(
    home: AnyHome,
    root: Path,
    settings: CodingSettings,
    rules: MemoryPermissionRules | FilePermissionRules,
    *,
    mode: LiveMode,
    tools: Collection[str],
) -> tuple[RuleSet, tuple[str, ...]]:
    """The mode and the rules of the user and of the project, and complaints about kept answers that cannot be read."""
    denied = deny_rules(project_denials(root, None if home.folder is None else home.folder / FILE_NAME), tools)
    given, complaints = user_rules(rules, settings.allow, settings.deny, tools)
    return RuleSet(mode, given, denied), complaints


def _live_mode(session: Session, settings: CodingSettings) -> LiveMode:
    above = settings.inherited
    return LiveMode(session, settings.mode) if above is None else LiveMode(session, settings.mode, above.mode, above.widest)


def _sandbox(settings: CodingSettings, area: Area) -> Sandbox:
    return find_sandbox(area) if settings.sandbox == "auto" else Sandbox("none", why="it is turned off")


def _installed(settings: CodingSettings) -> InstalledTools:
    """The tools of other packages, and in a sub-agent those of its parent's MCP servers."""
    found = installed_tools() if settings.tools is None else InstalledTools(settings.tools)
    served = () if settings.inherited is None else settings.inherited.served()
    return found._replace(tools=(*found.tools, *served))


def _declared(
    agent: Agent, offered: Iterable[AgentTool], installed: InstalledTools, settings: CodingSettings, shell: Shell
) -> tuple[DeferredTools, dict[str, AgentTool]]:
    """The tools that are declared to the model, by name, and those that it has to search for."""
    enabled = [tool for tool in offered if settings.offers(tool.name)]
    own = [tool for tool in enabled if tool not in installed.tools]
    session = agent.session
    if session.profile.tool_forms != "own" or session.card.wire == "responses":
        from palimpsest.engine.coding.codex_tools import in_forms  # most sessions declare our tools as they are

        own = in_forms(own, session, shell)
    if agent.business is not None and settings.model_sets_state:
        own.append(agent.business.tool())
    # A tool of another package never takes the place of one of ours.
    taken = {SEARCH, *(tool.name for tool in own)}
    others = [tool for tool in enabled if tool in installed.tools and tool.name not in taken]
    loaded, rest = within_budget(own, others, tool_budget(agent.session))
    tools = {tool.name: tool for tool in loaded}
    deferred = DeferredTools(tools, rest, agent.session.offered_tools)
    deferred.load_again(agent.session)
    return deferred, tools


async def _close_shell(session: Session, shell: Shell) -> None:
    for ended in await shell.close():
        session.log.append(ended)
