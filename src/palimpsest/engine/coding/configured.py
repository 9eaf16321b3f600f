"""Builds a coding agent from the settings: its session, limits and jobs, what it may do, and its hooks."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, get_args

from palimpsest.core.errors import BadInput
from palimpsest.core.log.log import Log
from palimpsest.core.policy import Job
from palimpsest.engine.agent import Agent
from palimpsest.engine.children.roles import narrower_mode
from palimpsest.engine.children.tree import AgentSettings
from palimpsest.engine.coding.providers import RunProviders, model_name_of, model_of, profile_of
from palimpsest.engine.coding.settings import CodingSettings, McpSettings
from palimpsest.engine.hooks.configured import ConfiguredHooks, configured_hooks
from palimpsest.engine.loop.limits import Limits
from palimpsest.sources.state import StateMachine
from palimpsest.stores.config.project_hooks import project_hooks, trust_of
from palimpsest.stores.config.schema import StatesConfig
from palimpsest.stores.config.settings import FILE_NAME, Settings
from palimpsest.stores.home import AnyHome
from palimpsest.tools.permissions.decision import Mode
from palimpsest.tools.permissions.rules import check_reach, parse_rule
from palimpsest.wire.models.cards import ModelCard, card, recorded_card, stand_in_note


class RecordedChoice(NamedTuple):
    """Model, profile and mode of a session as its log has them; empty for a new session."""

    model: str = ""
    profile: str = ""
    mode: str = ""


_NEW_SESSION: Final = RecordedChoice()


def recorded_choice(home: AnyHome, session: str) -> RecordedChoice:
    """Return model, profile and mode of a session; empty ones for an empty id. Raises `PalimpsestError` if the log cannot be read."""
    if not session:
        return _NEW_SESSION
    with Log.open(home.store, session, home.clock) as log:
        return RecordedChoice(log.view.model, log.view.profile, log.view.mode)


def configured_agent(
    home: AnyHome,
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


def session_hooks(home: AnyHome, settings: Settings, folder: Path, withheld: frozenset[str]) -> ConfiguredHooks:
    """Return the hooks of the user and those of the project in a folder that the user trusts, and notices about the others."""
    project = project_hooks(folder, None if home.folder is None else home.folder / FILE_NAME)
    trust = trust_of(home.folder, folder)
    return configured_hooks(settings.config.hooks, project, trust, cwd=folder, environment=os.environ, withheld=withheld)


def mcp_settings(settings: Settings) -> McpSettings:
    """Return how MCP servers are used."""
    mcp = settings.config.mcp
    files = tuple(Path(text) for text in mcp.files)
    return McpSettings(files, mcp.start_seconds, mcp.call_seconds, frozenset(mcp.read_only), frozenset(mcp.disabled))
