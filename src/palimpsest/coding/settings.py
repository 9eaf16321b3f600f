"""Settings of a coding agent: mode, rules, sandbox, folders and tools."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from palimpsest.agent.children import AgentSettings
from palimpsest.agent.decision import Approval, Mode
from palimpsest.agent.hooks import Hook
from palimpsest.agent.roles import AgentRole, narrower_mode
from palimpsest.agent.tool import AgentTool
from palimpsest.coding.gatekeeper import LiveMode, LiveRules
from palimpsest.coding.tools.sandbox import Sandbox
from palimpsest.coding.tools.web import Fetcher
from palimpsest.core.events import PermissionAsked
from palimpsest.sources.progress import StateMachine
from palimpsest.stores.memory_config import MemoryConfig
from palimpsest.stores.project import McpServer
from palimpsest.stores.snapshots import LARGEST_BYTES


class McpSettings(Struct, frozen=True):
    """How MCP servers are used. `files` are files of other clients that name some, beside the user's own and the project's `.mcp.json`.

    The first turn waits `start_seconds` for the servers; a call takes at most `call_seconds`, unless a server has a limit of its own.
    `read_only` are servers whose claim that a tool only reads is believed. `disabled` are servers that are not started. `given` are
    servers that the user's editor names for this session; they take the place of configured ones with the same name. With `active` false,
    there are none.
    """

    files: tuple[Path, ...] = ()
    start_seconds: float = 5.0
    call_seconds: float = 120.0
    read_only: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    active: bool = True
    given: tuple[McpServer, ...] = ()


class Inherited(Struct, frozen=True):
    """What a sub-agent has of the agent that started it: the sandbox that was found, and the rules, which grow for both.

    `served` returns the tools of its MCP servers, which a sub-agent shares instead of starting servers of its own. `mode` is the mode of
    that agent, which the sub-agent follows, up to `widest`.
    """

    sandbox: Sandbox
    rules: LiveRules
    mode: LiveMode
    widest: Mode | None = None
    served: Callable[[], tuple[AgentTool, ...]] = tuple


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule. `withheld` are
    variables of the environment that hold keys and reach no command, `variables` reach commands although they look like secrets, and
    `shown` are files and folders that confined commands may read. `tools` are further tools beside the standard ones; without them
    those that other packages install. `states` is the state machine of the task, if the developer declares one, and `state`
    the state to which this run moves it; only with `model_sets_state` the model gets the tool that changes it. `hooks` run at moments of
    the session, behind those of the agent.
    `mcp` says how MCP servers are used. With `snapshots` the state of files is kept around each turn that may change
    them; files of more than `largest_saved` bytes are left out. `agents` are the limits of sub-agents; `memory` says how notes are used.
    With `memory_jobs` the jobs of memory that ask a model run beside turns; for sessions that go on after a turn.
    `only` are the names of all tools that a sub-agent may have, `None` for any, and `inherited` is set for a sub-agent.
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
    variables: frozenset[str] = frozenset()
    shown: tuple[Path, ...] = ()
    tools: tuple[AgentTool, ...] | None = None
    states: StateMachine | None = None
    state: str = ""
    model_sets_state: bool = False
    hooks: tuple[Hook, ...] = ()
    mcp: McpSettings = field(default_factory=McpSettings)
    snapshots: bool = True
    largest_saved: int = LARGEST_BYTES
    agents: AgentSettings = field(default_factory=AgentSettings)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    memory_jobs: bool = False
    only: frozenset[str] | None = None
    inherited: Inherited | None = None


def narrowed(settings: CodingSettings, role: AgentRole, inherited: Inherited) -> CodingSettings:
    """Return the settings of a sub-agent: those of its parent without the tools and the mode that its role does not have.

    The business state is that of the parent's task, so a sub-agent has none.
    """
    only = settings.only if role.tools is None else role.tools if settings.only is None else settings.only & role.tools
    mode, servers = narrower_mode(inherited.mode.current, role.mode), structs.replace(settings.mcp, active=False)
    own = structs.replace(inherited, widest=role.mode)
    return replace(settings, mode=mode, only=only, inherited=own, states=None, state="", mcp=servers)


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
