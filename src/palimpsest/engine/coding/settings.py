"""What a coding agent may do in its project: mode, rules, sandbox, folders and tools."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from palimpsest.core.events import PermissionAsked
from palimpsest.engine.hooks.hook import Hook
from palimpsest.sources.state import StateMachine
from palimpsest.stores.snapshots.taking import LARGEST_BYTES
from palimpsest.tools.permissions.decision import Approval, Mode
from palimpsest.tools.tool import AgentTool
from palimpsest.tools.web.fetch import Fetcher


@dataclass(frozen=True, slots=True)
class McpSettings:
    """How MCP servers are used. `files` are files of other clients that name some, beside the user's own and the project's `.mcp.json`.

    The first turn waits `start_seconds` for the servers; a call takes at most `call_seconds`, unless a server has a limit of its own.
    `read_only` are servers whose claim that a tool only reads is believed. `disabled` are servers that are not started. With `active`
    false, there are none.
    """

    files: tuple[Path, ...] = ()
    start_seconds: float = 5.0
    call_seconds: float = 120.0
    read_only: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    active: bool = True


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule. `withheld` are
    variables of the environment that hold keys and reach no command. `tools` are further tools beside the standard ones; without them
    those that other packages install. `states` is the state machine of the task, if the developer declares one; only with
    `model_sets_state` the model gets the tool that changes it. `hooks` run at moments of the session, behind those of the agent.
    `mcp` says how MCP servers are used. With `snapshots` the state of files is kept around each turn that may change
    them; files of more than `largest_saved` bytes are left out.
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
    hooks: tuple[Hook, ...] = ()
    mcp: McpSettings = McpSettings()
    snapshots: bool = True
    largest_saved: int = LARGEST_BYTES


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
