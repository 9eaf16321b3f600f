"""What a coding agent may do in its project: mode, rules, sandbox, folders and tools."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from palimpsest.core.events import PermissionAsked
from palimpsest.engine.children.roles import AgentRole, narrower_mode
from palimpsest.engine.children.tree import AgentSettings
from palimpsest.engine.coding.gatekeeper import LiveRules
from palimpsest.sources.state import StateMachine
from palimpsest.tools.permissions.decision import Approval, Mode
from palimpsest.tools.shell.sandbox import Sandbox
from palimpsest.tools.tool import AgentTool
from palimpsest.tools.web.fetch import Fetcher


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a sub-agent has of the agent that started it: the sandbox that was found, and the rules, which grow for both."""

    sandbox: Sandbox
    rules: LiveRules


@dataclass(frozen=True, slots=True)
class CodingSettings:
    """What a coding agent may do. `allow` are further rules of the user for this run; `folders` are granted beside the project.

    With `sandbox` off, commands run unconfined, and every command that may change something needs an approval or a rule. `withheld` are
    variables of the environment that hold keys and reach no command. `tools` are further tools beside the standard ones; without them
    those that other packages install. `states` is the state machine of the task, if the developer declares one; only with
    `model_sets_state` the model gets the tool that changes it. `agents` are the limits of sub-agents. `only` are the names of all tools
    that a sub-agent may have, `None` for any, and `inherited` is set for a sub-agent.
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
    agents: AgentSettings = field(default_factory=AgentSettings)
    only: frozenset[str] | None = None
    inherited: Inherited | None = None

    def offers(self, tool: str) -> bool:
        """Whether a tool may be offered to the model, by its name."""
        return tool not in self.disabled and (self.only is None or tool in self.only)


def narrowed(settings: CodingSettings, role: AgentRole, inherited: Inherited) -> CodingSettings:
    """Return the settings of a sub-agent: those of its parent without the tools and the mode that its role does not have.

    The business state is that of the parent's task, so a sub-agent has none.
    """
    only = settings.only if role.tools is None else role.tools if settings.only is None else settings.only & role.tools
    return replace(settings, mode=narrower_mode(settings.mode, role.mode), only=only, inherited=inherited, states=None)


async def refuse_all(asked: PermissionAsked) -> Approval:
    """Refuse, with advice for a run without a user."""
    advice = f"allow it with --allow {asked.rule!r}" if asked.rule else "it cannot be allowed by a rule; run it in a terminal"
    return Approval("no", "unattended", f"no user can be asked here ({advice})")
