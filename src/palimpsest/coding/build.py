"""Builds a coding agent from the settings: tools, permissions, sandbox, sources, jobs, hooks, and additions of the profile."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, get_args

from msgspec import structs

from palimpsest.agent.agent import Agent, Approve, Parts, open_parts
from palimpsest.agent.archive import LogArchive, page_for
from palimpsest.agent.business import BusinessState, require_source
from palimpsest.agent.child_tools import child_tools
from palimpsest.agent.children import AgentSettings, AgentTree, ChildAgents, new_tree
from palimpsest.agent.confined_files import confined_writer
from palimpsest.agent.context import SourcedContext
from palimpsest.agent.decision import Mode
from palimpsest.agent.hook_commands import configured_hooks
from palimpsest.agent.jobs import Jobs
from palimpsest.agent.limits import Limits, price_of_limit
from palimpsest.agent.processes import CommandEnvironment
from palimpsest.agent.roles import narrower_mode
from palimpsest.agent.session import Environment, Session
from palimpsest.agent.shell import Shell
from palimpsest.agent.tool import AgentTool, InstalledTools, installed_tools
from palimpsest.agent.tool_calls import SEARCH, DeferredTools, Toolbox, no_approver, offer_tools, tool_budget, within_budget
from palimpsest.agent.turn_files import TurnSnapshots, turn_files
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.gatekeeper import Gatekeeper, LiveMode, LiveRules, RuleSet, user_rules
from palimpsest.coding.mcp_servers import McpServers, session_servers
from palimpsest.coding.providers import RunProviders, model_name_of, model_of, profile_of
from palimpsest.coding.rules import Rule, check_reach, deny_rules, parse_rule
from palimpsest.coding.settings import CodingSettings, Inherited, McpSettings, narrowed
from palimpsest.coding.tools.sandbox import Area, Sandbox, find_sandbox
from palimpsest.coding.tools.search import GLOB, GREP
from palimpsest.coding.tools.tasks import TaskGraph, plan_tool
from palimpsest.coding.tools.toolset import Toolset, standard_tools, task_graph
from palimpsest.coding.world import ContextParts, LocalWorld, WorldNow, memory_shelf, session_state, shelf_of, skills_of, unconfined
from palimpsest.core.errors import BadInput
from palimpsest.core.items import EMPTY_MAPPING
from palimpsest.core.log import Log
from palimpsest.core.plans import Job, Look
from palimpsest.memory.jobs import memory_jobs, stage_notices
from palimpsest.memory.recalling import HidesForgottenNotes, NoteRecall, memory_search, recall_problems, stated_notes
from palimpsest.memory.session_memory import SessionMemory, session_memory
from palimpsest.memory.tools import memory_tools
from palimpsest.policies.profile import Profile
from palimpsest.sources.progress import StateMachine
from palimpsest.stores.config import StatesConfig
from palimpsest.stores.config_files import FILE_NAME, Settings, project_denials
from palimpsest.stores.home import Home
from palimpsest.stores.project import project_hooks, trust_of
from palimpsest.stores.sessions import ResultFiles
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


def coding_agent(
    home: Home,
    settings: Settings,
    coding: CodingSettings,
    *,
    cards: tuple[ModelCard, ...],
    notify: Callable[[str], None],
    session: str = "",
    recorded: RecordedChoice = _NEW_SESSION,
    cwd: Path = Path(),
    jobs: tuple[Job, ...] = (),
    approve: Approve = no_approver,
    asks_at_once: bool = False,
    drops_blank: bool = True,
) -> Agent:
    """Return the coding agent of the settings in a session, or in a new one if `session` is empty. Its parts have the notices for the user.

    `coding` says what the agent may do (`coding_settings`); it gets the hooks of the user too, and those of its project if the user trusts
    them. `recorded` are model and profile of the session. `notify` gets a line for the user before something takes long. Raises `BadInput`
    for an unknown model or a malformed rule, `Locked` if another process has the session. If it `asks_at_once`, a model that cannot be
    asked is refused before anything is recorded, as by `RunProviders`; in a terminal a key may still come. An agent that cannot be made
    leaves its session closed, and a new one is not kept. Without `drops_blank` a new one is kept also if nothing is said in it.
    """
    config, root = settings.config, cwd.resolve()
    providers = RunProviders(settings, notify, keeps_open=True)
    model = _card(settings, recorded.model, cards, notify)
    _check_limits(settings, model, cards)
    if asks_at_once:
        providers(model, "turn")
    profile = profile_of(settings, recorded.profile, os.environ)
    trust = trust_of(home, root)
    own, found = config.hooks, project_hooks(root, _user_file(home))
    hooks = configured_hooks(own, found, trust, cwd=root, environment=os.environ, withheld=coding.withheld)
    coding = replace(coding, hooks=(*hooks.hooks, *coding.hooks))
    project = read_project(home, root, coding, profile)
    opened = open_parts(
        model,
        profile=profile,
        provider=providers,
        cwd=root,
        home=home,
        resume=session,
        limits=Limits(config.max_turns, config.max_tools, config.max_seconds, config.max_usd, config.max_tokens),
        jobs=jobs,
        exit_seconds=config.jobs.exit_seconds,
        adjust=lambda around: _with_retries(around, config.retries),
    )
    try:
        opened.resources.push_async_callback(providers.aclose)
        parts = equipped(opened, coding, project, approve)
    except BaseException:
        opened.release()
        raise
    return Agent(replace(parts, notices=(*parts.notices, *hooks.notices), drops_blank=parts.drops_blank and drops_blank))


def equip(agent: Agent, home: Home, settings: CodingSettings, approve: Approve = no_approver) -> tuple[str, ...]:
    """Give an agent that has not begun the standard tools, permissions, sandbox and context of its project folder.

    Returns what the user should know. The resources of the tools are released when the agent is closed. Raises `BadInput` for a malformed
    rule. `coding_agent` makes an agent that has them from the start.
    """
    opened = agent.parts
    project = read_project(home, opened.toolbox.workspace.root, settings, opened.session.profile)
    agent.parts = replace(equipped(replace(opened, home=home), settings, project, approve), home=opened.home)
    return agent.parts.notices


def _with_retries(around: Environment, retries: int | None) -> Environment:
    return around if retries is None else replace(around, retries=replace(around.retries, retries=retries))


def _user_file(home: Home) -> Path | None:
    return None if home.local_folder is None else home.local_folder / FILE_NAME


def _check_limits(settings: Settings, model: ModelCard, cards: tuple[ModelCard, ...]) -> None:
    """Raise `BadInput` if sub-agents or jobs have a limit in dollars that cannot be kept, because the price of their model is not known."""
    agents, jobs = settings.config.agents, settings.config.jobs
    if agents.max_usd is not None:
        price_of_limit(model, agents.max_usd, "limit tokens instead (agents.max_tokens)", "agents.max_usd")
    asked = [*([recorded_card(model_of(jobs.model), cards)] if jobs.model else []), *([model] if jobs.keep_alive else [])]
    for card_of_job in asked if jobs.max_usd is not None else ():
        price_of_limit(card_of_job, jobs.max_usd or 0.0, "leave it out", "jobs.max_usd")


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
        return (plan_tool(self._keep, lambda: mode() == "plan"),)

    def look(self, look: Looking) -> Looking:
        """Return what policies may look at, with the plan of the session as it is now."""
        plan = self.plan
        return look if plan is None else lambda want: plan.read() if want == _PLAN else look(want)

    def _keep(self, text: str) -> str:
        path = "" if self.plan is None else self.plan.keep(text)
        self.session.tell("plan", (f"the plan is kept in {path}; you can change it there",), again=True)
        return path


def profile_parts(session: Session, root: Path, home: Home) -> ProfileParts:
    """Return what the profile of a session adds in a project folder; sub-agents have nothing of it.

    Raises `BadInput` for a setting that names nothing, and `StoreError` if the folder for temporary files cannot be made.
    """
    profile, required = session.profile, [source for source in session.profile.sources.sources if source.is_required]
    if required:
        # What is observed is only checked; it is stated by the world of the session, which hides what rules restrict.
        here = LocalWorld(session_state(session, root), home.clock, hides=lambda _: False, wrap=unconfined)
        for source in required:
            source.observe(here)
    if session.log.opened.opener is not None or not (profile.scratchpad or profile.keeps_plan):
        return ProfileParts(session)
    from palimpsest.stores.scratch import PlanFile, scratch_folder

    files = home.store.result_files(session.log.session)
    plan = PlanFile(files.folder) if profile.keeps_plan and isinstance(files, ResultFiles) else None
    if not profile.scratchpad:
        return ProfileParts(session, plan=plan)
    scratch = scratch_folder(session.log.session)
    return ProfileParts(session, (scratch,), {"scratchpad": scratch.as_posix()}, plan)


@dataclass(frozen=True, slots=True)
class ProjectRules:
    """What is read of a project and its user before an agent works there: the rules, and the tools of other packages.

    `complaints` are about kept answers that cannot be read.
    """

    kept: PermissionRules
    given: tuple[Rule, ...]
    denied: tuple[Rule, ...]
    installed: InstalledTools
    complaints: tuple[str, ...] = ()


def read_project(home: Home, root: Path, settings: CodingSettings, profile: Profile) -> ProjectRules:
    """Read what a project or a user may have spoilt. Raises `BadInput` for a malformed rule, or a state that the task cannot have."""
    if settings.states is not None:
        require_source(profile)
    elif settings.state:
        raise BadInput("there are no states; declare them as states.names in the settings", where=f"--state {settings.state[:60]}")
    kept = PermissionRules(home, root)
    installed = installed_tools() if settings.tools is None else InstalledTools(settings.tools)
    # A sub-agent has the tools of the MCP servers of its parent.
    served = () if settings.inherited is None else settings.inherited.served()
    installed = installed._replace(tools=(*installed.tools, *served))
    names = [tool.name for tool in installed.tools]
    denied = deny_rules(project_denials(root, _user_file(home)), names)
    given, complaints = user_rules(kept, settings.allow, settings.deny, names)
    return ProjectRules(kept, given, denied, installed, complaints)


def equipped(
    opened: Parts, settings: CodingSettings, project: ProjectRules, approve: Approve = no_approver, tree: AgentTree | None = None
) -> Parts:
    """Return the parts of an opened session with the standard tools, permissions, sandbox and context of its project folder.

    What the tools hold is released with the resources of the parts, or at once if something is refused. A sub-agent gets the `tree` of its
    parent.
    """
    held = ExitStack()
    # Released after what is registered from here on: the shell, the sub-agents and the servers.
    opened.resources.push(held)
    try:
        return _equipped(opened, settings, project, approve, tree, held=held)
    except BaseException:
        held.close()
        raise


def _equipped(
    opened: Parts, settings: CodingSettings, project: ProjectRules, approve: Approve, tree: AgentTree | None, *, held: ExitStack
) -> Parts:
    session, home, root = opened.session, opened.home, opened.toolbox.workspace.root
    added, memory = profile_parts(session, root, home), session_memory(session, root, home, settings.memory)
    workspace = _workspace(session, root, home, (*settings.folders, *added.folders), memory)
    tasks = task_graph(workspace, owner=session.log.session)
    area = _area(workspace, home, settings)
    held.callback(area.remove)
    mode = _live_mode(session, settings)
    # The servers are made below, and asked for their tools when a sub-agent starts.
    inherited = settings.inherited or Inherited(_sandbox(settings, area), LiveRules(project.kept), mode, served=lambda: servers.tools)
    environment = CommandEnvironment(os.environ, keep=settings.variables, withhold=settings.withheld)
    shell = Shell(root, environment, sandbox=inherited.sandbox.wrap(area), temp=area.temp)
    opened.resources.push_async_callback(_close_shell, session, shell)
    gate = Gatekeeper(workspace, RuleSet(mode, project.given, project.denied), inherited.rules, shell, (inherited.sandbox, area))
    business = _business_state(session, settings)
    hooks = opened.hooks.extended(settings.hooks, None if business is None else business.transition)
    look = added.look(gate.permitted(session.environment.look))
    session.environment = replace(session.environment, look=look, before_fold=partial(hooks.before_fold, session))
    family = tree or new_tree(session, root, approve, settings.agents, gate.hides)
    below = structs.replace(inherited, mode=mode)
    children = ChildAgents(opened, family, lambda child, role, ask: _equipped_child(child, narrowed(settings, role, below), ask, family))
    toolset = _toolset(session, root, home, settings, project.installed, shell=shell, tasks=tasks, memory=memory, gate=gate, held=held)
    own = (*toolset.tools, *added.tools(lambda: mode.current), *child_tools(children), *memory_tools(memory))
    deferred = _declared(session, own, project.installed, settings, shell=shell, business=business)
    deferred.tools.update({name: gate.screened(deferred.tools[name]) for name in (GREP, GLOB) if name in deferred.tools})
    wanted, unserved = session_servers(settings, root, home)
    servers = McpServers(session, workspace, wanted, settings, environment=environment, deferred=deferred)
    opened.resources.push_async_callback(servers.close)
    around = ContextParts(inherited.sandbox, area, mode, gate, tasks, deferred, servers, children, business)
    texts = dict if memory is None else partial(stated_notes, memory)
    world = WorldNow(session, workspace, settings, around, fixed_texts=added.texts, texts=texts)
    files, unsaved = _turn_files(home, root, settings, gate, children)
    toolbox = Toolbox(deferred.tools, workspace, gate.decide, family.ask if tree is None else approve, gate.remember, world.attached, files)
    offer_tools(session, deferred.tools)
    forgetting = None if memory is None else HidesForgottenNotes(memory)
    mode.record()
    notices = (*_statement(inherited.sandbox), *unsaved, *project.complaints, *toolset.problems, *unserved)
    if tree is None:
        notices += (*family.problems, *recall_problems(memory), *stage_notices(memory, goes_on=settings.memory_jobs))
    parts = replace(
        opened,
        toolbox=toolbox,
        hooks=hooks,
        context=SourcedContext(session, world, world.renewed, forgetting, await_tools=servers.await_tools, due=children.due),
        expand=servers.expand,
        prompts=servers.prompts,
        open_tasks=tasks.open_lines,
        business=business,
        children=children,
        mode=mode,
        shell=shell,
        notices=notices,
    )
    return parts if memory is None else _remembering(parts, memory, settings, held)


def _equipped_child(opened: Parts, settings: CodingSettings, approve: Approve, family: AgentTree) -> Parts:
    project = read_project(opened.home, opened.toolbox.workspace.root, settings, opened.session.profile)
    return equipped(opened, settings, project, approve, family)


def _toolset(
    session: Session,
    root: Path,
    home: Home,
    settings: CodingSettings,
    installed: InstalledTools,
    *,
    shell: Shell,
    tasks: TaskGraph,
    memory: SessionMemory | None,
    gate: Gatekeeper,
    held: ExitStack,
) -> Toolset:
    search = None if memory is None else memory_search(memory)
    archive = LogArchive(session.log, home.store, home.blobs, home.clock, home.index, search)
    held.callback(archive.close)
    return standard_tools(
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


def _area(workspace: Workspace, home: Home, settings: CodingSettings) -> Area:
    """Return what commands may use: they read the notes that are plain files, and never write them."""
    hidden = () if home.local_folder is None else (home.local_folder,)
    notes = () if workspace.notes is None else (workspace.notes,)
    return Area.of(workspace, network=settings.network, hidden=hidden, shown=(*settings.shown, *notes))


def _turn_files(
    home: Home, root: Path, settings: CodingSettings, gate: Gatekeeper, children: ChildAgents
) -> tuple[TurnSnapshots, tuple[str, ...]]:
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


def _remembering(parts: Parts, memory: SessionMemory, settings: CodingSettings, held: ExitStack) -> Parts:
    """Return the parts of an agent that uses its memory: with its jobs, and with what prompts recall."""
    session, jobs = parts.session, memory_jobs(memory, parts, goes_on=settings.memory_jobs)
    seconds = parts.jobs.exit_seconds
    if not settings.memory_jobs and any(job.limits.calls for job in jobs):
        seconds = max(seconds, settings.memory.end_seconds)
    parts = replace(parts, jobs=Jobs(session, (*parts.jobs.jobs, *jobs), seconds))
    if session.log.opened.opener is not None:
        return parts
    recall = NoteRecall(memory, parts.open_tasks)
    recall.prepare()
    held.callback(recall.close)
    return replace(parts, recall=recall.recall)


def _business_state(session: Session, settings: CodingSettings) -> BusinessState | None:
    """The state of the task where this run begins, which hooks may change. Raises `BadInput` for a state that it cannot have."""
    if settings.states is None:
        return None
    business = BusinessState(session, settings.states)
    if settings.state and settings.state != business.current:
        business.transition(settings.state)
    return business


def _live_mode(session: Session, settings: CodingSettings) -> LiveMode:
    above = settings.inherited
    return LiveMode(session, settings.mode) if above is None else LiveMode(session, settings.mode, above.mode, above.widest)


def _sandbox(settings: CodingSettings, area: Area) -> Sandbox:
    return find_sandbox(area) if settings.sandbox == "auto" else Sandbox("none", why="it is turned off")


def _declared(
    session: Session,
    offered: Iterable[AgentTool],
    installed: InstalledTools,
    settings: CodingSettings,
    *,
    shell: Shell,
    business: BusinessState | None,
) -> DeferredTools:
    """The tools that are declared to the model, and those that it has to search for."""
    only = settings.only
    enabled = [tool for tool in offered if tool.name not in settings.disabled and (only is None or tool.name in only)]
    own = [tool for tool in enabled if tool not in installed.tools]
    if session.profile.tool_forms != "own" or session.card.wire == "responses":
        from palimpsest.coding.codex_tools import in_forms  # most sessions declare our tools as they are

        own = in_forms(own, session, shell)
    if business is not None and settings.model_sets_state:
        own.append(business.tool())
    # A tool of another package never takes the place of one of ours.
    taken = {SEARCH, *(tool.name for tool in own)}
    others = [tool for tool in enabled if tool in installed.tools and tool.name not in taken]
    loaded, rest = within_budget(own, others, tool_budget(session))
    return DeferredTools(session, {tool.name: tool for tool in loaded}, rest)


async def _close_shell(session: Session, shell: Shell) -> None:
    for ended in await shell.close():
        session.log.append(ended)
