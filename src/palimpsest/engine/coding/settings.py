"""What a coding agent may do in its project: mode, rules, sandbox, folders and tools."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from palimpsest.core.events import PermissionAsked
from palimpsest.sources.state import StateMachine
from palimpsest.stores.snapshots.taking import LARGEST_BYTES
from palimpsest.tools.permissions.decision import Approval, Mode
from palimpsest.tools.tool import AgentTool
from palimpsest.tools.web.fetch import Fetcher


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule. `withheld` are
    variables of the environment that hold keys and reach no command. `tools` are further tools beside the standard ones; without them
    those that other packages install. `states` is the state machine of the task, if the developer declares one; only with
    `model_sets_state` the model gets the tool that changes it. With `snapshots` the state of files is kept around each turn that may
    change them; files of more than `largest_saved` bytes are left out.
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
    snapshots: bool = True
    largest_saved: int = LARGEST_BYTES


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
