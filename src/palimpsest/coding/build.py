"""Builds a coding agent from the settings: tools, permissions, sandbox, sources, jobs, hooks, and additions of the profile."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, get_args

from msgspec import structs

from palimpsest.agent.agent import Agent, Approve
from palimpsest.agent.archive import LogArchive, page_for
from palimpsest.agent.business import BusinessState
from palimpsest.agent.child_tools import child_tools
from palimpsest.agent.children import AgentSettings, AgentTree, ChildAgents, new_tree
from palimpsest.agent.confined_files import confined_writer
from palimpsest.agent.context import SourcedContext
from palimpsest.agent.decision import Mode
from palimpsest.agent.hook_commands import configured_hooks
from palimpsest.agent.limits import Limits
from palimpsest.agent.processes import CommandEnvironment
from palimpsest.agent.roles import narrower_mode
from palimpsest.agent.session import Session
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import AgentTool, InstalledTools, installed_tools
from palimpsest.agent.tool_calls import SEARCH, DeferredTools, Toolbox, no_approver, tool_budget, within_budget
from palimpsest.agent.turn_files import TurnFiles, turn_files
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.gatekeeper import Gatekeeper, LiveMode, LiveRules, RuleSet, user_rules
from palimpsest.coding.mcp_servers import serve
from palimpsest.coding.providers import RunProviders, model_name_of, model_of, profile_of
from palimpsest.coding.rules import check_reach, deny_rules, parse_rule
from palimpsest.coding.settings import CodingSettings, Inherited, McpSettings, narrowed
from palimpsest.coding.tools.sandbox import Area, Sandbox, find_sandbox
from palimpsest.coding.tools.search import GLOB, GREP
from palimpsest.coding.tools.toolset import standard_tools, task_graph
from palimpsest.coding.world import LocalWorld, WorldNow, memory_shelf, session_state, shelf_of, skills_of
from palimpsest.core.errors import BadInput
from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.log import Log
from palimpsest.core.plans import Job, Look
from palimpsest.memory.jobs import memory_jobs, stage_notices
from palimpsest.memory.recalling import HidesForgottenNotes, NoteRecall, memory_search, recall_problems, stated_notes
from palimpsest.memory.session_memory import SessionMemory, session_memory
from palimpsest.memory.tools import memory_tools
from palimpsest.sources.progress import StateMachine
from palimpsest.stores.config import StatesConfig
from palimpsest.stores.config_files import FILE_NAME, Settings, project_denials
from palimpsest.stores.home import Home
from palimpsest.stores.project import project_hooks, trust_of
from palimpsest.stores.snapshots import SnapshotLimits
from palimpsest.stores.trust import PermissionRules
from palimpsest.wire.models import ModelCard, card, recorded_card, stand_in_note

if TYPE_CHECKING:
    from palimpsest.stores.scratch import PlanFile


class RecordedChoice(NamedTuple):
    """Model, profile and mode of a session as its log has them; empty for a new session."""

    model: str = ""
    profile: str = ""
    mode: str = ""


_NEW_SESSION: Final = RecordedChoice()


def recorded_choice(home: Home, session: str) -> RecordedChoice:
    """Return model, profile and mode of a session; empty ones for an empty id. Raises `PalimpsestError` if the log cannot be read."""
    if not session:
        return _NEW_SESSION
    with Log.open(home.store, session, home.clock) as log:
        return RecordedChoice(log.view.model, log.view.profile, log.view.mode)


def configured_agent(
    home: Home,
    settings: Settings,
    cards: tuple[ModelCard, ...],
    *,
    session: str = "",
    recorded: RecordedChoice = _NEW_SESSION,
    cwd: Path = Path(),
    jobs: tuple[Job, ...] = (),
    notify: Callable[[str], None],
    asks_at_once: bool = False,
) -> Agent:
    """Return the agent of the settings in a session, or in a new one if `session` is empty. It has no tools yet.

    `recorded` are model and profile of the session. `notify` gets a line for the user before something takes long. Raises `BadInput` for
    an unknown model, `Locked` if another process has the session. If it `asks_at_once`, a model that cannot be asked is refused before
    anything is recorded, as by `RunProviders`; in a terminal a key may still come.
    """
    config = settings.config
    providers = RunProviders(settings, notify, keeps_open=True)
    model = _card(settings, recorded.model, cards, notify)
    if asks_at_once:
        providers(model, "turn")
    agent = Agent(
        model,
        profile=profile_of(settings, recorded.profile, os.environ),
        provider=providers,
        cwd=cwd,
        home=home,
        resume=session,
        limits=Limits(config.max_turns, config.max_tools, config.max_seconds, config.max_usd, config.max_tokens),
        jobs=jobs,
    )
    agent.jobs.exit_seconds = config.jobs.exit_seconds
    agent.resources.push_async_callback(providers.aclose)
    if config.retries is not None:
        environment = agent.session.environment
        agent.session.environment = replace(environment, retries=replace(environment.retries, retries=config.retries))
    return agent


def _card(settings: Settings, recorded: str, cards: tuple[ModelCard, ...], notify: Callable[[str], None]) -> ModelCard:
    """Return the card of the model; only a model that a session recorded may have none, and then a stand-in, which `notify` gets."""
    name = model_name_of(settings, recorded)
    if name != recorded:
        return card(model_of(name), cards)
    note = stand_in_note(name, cards)
    if note:
        notify(f"{note}; name another with --model")
    return recorded_card(model_of(name), cards)


def coding_settings(
    settings: Settings,
    recorded: RecordedChoice = _NEW_SESSION,
    *,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    folders: tuple[Path, ...] = (),
    end_with_turn: bool = False,
    state: str = "",
) -> CodingSettings:
    """Return what the agent may do: the settings, with further rules and folders of this run.

    A session that exists goes on in its mode, unless another one is given now. It is never wider than that of the settings: a log is data.
    `state` is the business state to which this run moves the task. Raises `BadInput` if a rule of this run cannot be read, or allows files
    that no tool reaches, or the declared states contradict each other.
    With `end_with_turn` sub-agents end with the turn of the agent, and no job of memory asks a model after it.
    """
    config, rules = settings.config, settings.config.permissions
    for text in allow:
        # Rules of files hold for other projects too; one of this run must be able to match here.
        check_reach(parse_rule(text), (Path.cwd(), *folders))
    return CodingSettings(
        mode=_mode(settings, recorded),
        allow=(*(f"ask {text}" for text in rules.ask), *rules.allow, *allow),
        deny=(*rules.deny, *deny),
        sandbox=config.sandbox,
        network=config.network,
        folders=folders,
        shown=tuple(map(Path, config.sandbox_shows)),
        variables=frozenset(config.sandbox_variables),
        disabled=frozenset(config.tools.disabled),
        agents=AgentSettings(
            config.agents.max_depth,
            config.agents.max_threads,
            Limits(config.agents.max_turns, None, config.agents.max_seconds, config.agents.max_usd, config.agents.max_tokens),
            end_with_turn=end_with_turn,
        ),
        mcp=mcp_settings(settings),
        states=_state_machine(config.states),
        state=state,
        model_sets_state=config.states.by_model,
        memory=config.memory,
        memory_jobs=not end_with_turn,
        snapshots=config.files.snapshots,
        largest_saved=config.files.largest_mb * 1024 * 1024,
        withheld=frozenset(provider.api_key_env for provider in config.providers.values() if provider.api_key_env),
    )


def _state_machine(config: StatesConfig) -> StateMachine | None:
    if not config.names:
        if config.start or config.moves or config.by_model:
            raise BadInput("without states.names the other keys of [states] mean nothing", where="states")
        return None
    moves = {name: frozenset(targets) for name, targets in config.moves.items()}
    return StateMachine(config.names, config.start or next(iter(config.names)), moves or None)


def _mode(settings: Settings, recorded: RecordedChoice) -> Mode:
    found: Mode | None = next((mode for mode in get_args(Mode) if mode == recorded.mode), None)
    return settings.config.mode if settings.is_given_now("mode") else narrower_mode(settings.config.mode, found)


def mode_notice(settings: Settings, coding: CodingSettings) -> tuple[str, ...]:
    """Return what the user should know if a session goes on in a mode that allows less than the settings."""
    wider = settings.config.mode
    return () if coding.mode == wider else (f"the session goes on in its mode {coding.mode}; --mode {wider} allows more",)


def mcp_settings(settings: Settings) -> McpSettings:
    """Return how MCP servers are used."""
    mcp = settings.config.mcp
    files = tuple(Path(text) for text in mcp.files)
    return McpSettings(files, mcp.start_seconds, mcp.call_seconds, frozenset(mcp.read_only), frozenset(mcp.disabled))


Looking: TypeAlias = Callable[[Look], str | None]
_PLAN: Final = Look("plan", "fact")


@dataclass(frozen=True, slots=True)
class ProfileParts:
    """`folders` may be written to beside the project; `texts` are stated by the sources of those keys."""

    session: Session
    folders: tuple[Path, ...] = ()
    texts: Mapping[str, str] = EMPTY_MAPPING
    plan: "PlanFile | None" = None

    def tools(self, mode: Callable[[], str]) -> tuple[AgentTool, ...]:
        """Return the tool that hands a plan over, if plans are kept."""
        if self.plan is None:
            return ()
        from palimpsest.coding.tools.tasks import plan_tool  # few profiles need it

        return (plan_tool(self._keep, lambda: mode() == "plan"),)

    def look(self, look: Looking) -> Looking:
        """Return what policies may look at, with the plan of the session as it is now."""
        plan = self.plan
        return look if plan is None else lambda want: plan.read() if want == _PLAN else look(want)

    def _keep(self, text: str) -> str:
        path = "" if self.plan is None else self.plan.keep(text)
        self.session.tell("plan", (f"the plan is kept in {path}; you can change it there",), again=True)
        return path


def profile_parts(agent: Agent, home: Home) -> ProfileParts:
    """Return what the profile of an agent adds; sub-agents have nothing of it. Raises `BadInput` for a setting that names nothing.

    Raises `StoreError` if the folder for temporary files cannot be made.
    """
    session = agent.session
    profile, required = session.profile, [source for source in session.profile.sources.sources if source.is_required]
    if required:
        here = LocalWorld(session_state(session, agent.toolbox.workspace.root), home.clock)
        for source in required:
            source.observe(here)
    if session.log.opened.opener is not None or not (profile.scratchpad or profile.keeps_plan):
        return ProfileParts(session)
    from palimpsest.stores.scratch import PlanFile, scratch_folder
    from palimpsest.stores.sessions import ResultFiles

    files = home.store.result_files(agent.id)
    plan = PlanFile(files.folder) if profile.keeps_plan and isinstance(files, ResultFiles) else None
    if not profile.scratchpad:
        return ProfileParts(session, plan=plan)
    scratch = scratch_folder(agent.id)
    return ProfileParts(session, (scratch,), {"scratchpad": scratch.as_posix()}, plan)


def equip(
    agent: Agent, home: Home, settings: CodingSettings, approve: Approve = no_approver, tree: AgentTree | None = None
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
    rules = PermissionRules(home, root)
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
    served = serve(agent, home, settings, environment, deferred=deferred, world=world)
    agent.mode = mode
    mode.record()
    of_family = (*family.problems, *recall_problems(memory), *stage_notices(memory, goes_on=settings.memory_jobs)) if tree is None else ()
    return (*_statement(sandbox), *unsaved, *complaints, *toolset.problems, *served, *of_family)


def equip_with_hooks(
    agent: Agent, home: Home, settings: Settings, coding: CodingSettings, approve: Approve = no_approver
) -> tuple[str, ...]:
    """Equip an agent also with the hooks of the user, and with those of its project if the user trusts them.

    An agent that cannot be equipped is closed, so that its session is not locked, and not kept if it is new.
    """
    try:
        root, user_file = agent.toolbox.workspace.root, None if home.local_folder is None else home.local_folder / FILE_NAME
        project, trust = project_hooks(root, user_file), trust_of(home, root)
        hooks = configured_hooks(settings.config.hooks, project, trust, cwd=root, environment=os.environ, withheld=coding.withheld)
        known = equip(agent, home, replace(coding, hooks=(*hooks.hooks, *coding.hooks)), approve)
    except BaseException:
        agent.close()
        raise
    return (*known, *hooks.notices)


def _area(agent: Agent, workspace: Workspace, home: Home, settings: CodingSettings) -> Area:
    """Return what commands may use: they read the notes that are plain files, and never write them."""
    hidden = () if home.local_folder is None else (home.local_folder,)
    notes = () if workspace.notes is None else (workspace.notes,)
    area = Area.of(workspace, network=settings.network, hidden=hidden, shown=(*settings.shown, *notes))
    agent.resources.callback(area.remove)
    return area


def _archive(agent: Agent, home: Home, memory: SessionMemory | None) -> LogArchive:
    search = None if memory is None else memory_search(memory)
    archive = LogArchive(agent.session.log, home.store, home.blobs, home.clock, home.index, search)
    agent.resources.callback(archive.close)
    return archive


def _turn_files(
    home: Home, root: Path, settings: CodingSettings, gate: Gatekeeper, children: ChildAgents
) -> tuple[TurnFiles, tuple[str, ...]]:
    """Keep the files around turns in the folders of the user, without what a profile adds. Returns what cannot be kept, too."""
    folders = (root, *Workspace(root, settings.folders).extra) if settings.snapshots else ()
    return turn_files(home, folders, SnapshotLimits(settings.largest_saved), gate.may_change_files, children.settle)


def _statement(sandbox: Sandbox) -> tuple[str, ...]:
    return () if sandbox.replaces_questions else (sandbox.describe(),)


def _workspace(session: Session, root: Path, home: Home, folders: tuple[Path, ...], memory: SessionMemory | None) -> Workspace:
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
    home: Home,
    root: Path,
    settings: CodingSettings,
    rules: PermissionRules,
    *,
    mode: LiveMode,
    tools: Collection[str],
) -> tuple[RuleSet, tuple[str, ...]]:
    """The mode and the rules of the user and of the project, and complaints about kept answers that cannot be read."""
    denied = deny_rules(project_denials(root, None if home.local_folder is None else home.local_folder / FILE_NAME), tools)
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
        from palimpsest.coding.codex_tools import in_forms  # most sessions declare our tools as they are

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
