"""Asks and decides for the tool calls of a session, with its mode, which can change while it runs."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from msgspec import structs

from palimpsest.agent.child_tools import DELEGATING
from palimpsest.agent.decision import READ_ONLY, SANDBOX, Allow, Decision, Mode
from palimpsest.agent.roles import narrower_mode
from palimpsest.agent.session import Session
from palimpsest.agent.shell import Shell, Wrap
from palimpsest.agent.tool import CURRENT_CALL, AgentTool, ToolError, ToolOutput, own_call
from palimpsest.agent.turn_files import always_changes
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.rules import FETCH_TOOLS, Rule, parse_rule
from palimpsest.coding.tools.sandbox import Area, Sandbox
from palimpsest.core.errors import BadInput, CallOpen
from palimpsest.core.events import ModeChanged
from palimpsest.core.items import ToolCall
from palimpsest.core.plans import Look
from palimpsest.stores.trust import PermissionRules

if TYPE_CHECKING:
    from palimpsest.coding.permissions import Permissions

DEFAULT_COLLABORATION: Final = "default"
"""Ends a way of working together, where a profile has such ways."""


class LiveMode:
    """The mode of a session, and under some profiles a way of working together beside it, such as pair programming.

    The mode of a sub-agent follows `parent` and is never wider than `widest`, the mode of its role.
    """

    def __init__(self, session: Session, mode: Mode, parent: "LiveMode | None" = None, widest: Mode | None = None) -> None:
        self._session = session
        self._own = mode
        self._parent = parent
        self._widest = widest
        self._collaboration = session.log.view.collaboration or session.profile.collaboration

    @property
    def collaborations(self) -> tuple[str, ...]:
        """The ways of working together that the profile of the session has."""
        return self._session.profile.collaborations

    @property
    def collaboration(self) -> str:
        """The way of working together; empty for none."""
        return self._collaboration if self._collaboration in self.collaborations else ""

    @property
    def current(self) -> Mode:
        """The mode that decides about the next tool call."""
        return self._own if self._parent is None else narrower_mode(self._parent.current, self._widest)

    def change(self, mode: str) -> None:
        """Decide by another mode from the next tool call on, for the sub-agents too. Raises `BadInput` if there is no such mode."""
        if self._parent is not None:
            raise BadInput("a sub-agent follows the mode of the agent that started it; change that one")
        if mode in self.collaborations or (self.collaborations and mode == DEFAULT_COLLABORATION):
            self._collaboration = "" if mode == DEFAULT_COLLABORATION else mode
            self._record_mode(self._own)
            return
        found: Mode | None = next((known for known in get_args(Mode) if known == mode), None)
        if found is None:
            known = (*get_args(Mode), *self.collaborations, *([DEFAULT_COLLABORATION] if self.collaborations else []))
            raise BadInput(f"there is no mode {mode!r}; the modes are {', '.join(known)}", where="mode")
        self._record_mode(found)
        self._own = found

    def record(self) -> None:
        """Record the mode if the log has another one. During a model call nothing is recorded; the next safe point does it."""
        self._record_mode(self.current)

    def _record_mode(self, mode: Mode) -> None:
        view = self._session.log.view
        if (view.mode, view.collaboration) != (mode, self.collaboration):
            with suppress(CallOpen):
                self._session.log.append(ModeChanged(mode, view.mode, self.collaboration))


_MOST_NAMED: Final = 5


class RuleSet(NamedTuple):
    """The mode, which can change, the rules of the user, and those of the project, which only deny."""

    mode: LiveMode
    given: tuple[Rule, ...]
    denied: tuple[Rule, ...]


def user_rules(
    kept: PermissionRules, allow: Iterable[str], deny: Iterable[str], tools: Collection[str]
) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """The rules of the user, and complaints about answers "always" that cannot be read any more, which are asked about again.

    `tools` are the tools beside our own. Raises `BadInput` for any other rule that cannot be read, names no tool or can match nothing.
    """
    given = tuple(parse_rule(text, tools) for text in (*allow, *(f"deny {text}" for text in deny)))
    rules, complaints = list[Rule](), list[str]()
    for text in kept.load():
        try:
            # The tool of another package may be gone meanwhile.
            rules.append(parse_rule(text))
        except BadInput as error:
            complaints.append(f"a kept permission is not used: {error}")
    return (*rules, *given), tuple(complaints)


class LiveRules:
    """The rules that answers "always" have created since the start, for an agent and its sub-agents; `kept` stores them for later ones."""

    def __init__(self, kept: PermissionRules) -> None:
        self._kept = kept
        self.added: tuple[str, ...] = ()

    def add(self, rule: str) -> None:
        """Add a rule and store it. Raises `BadInput` if the text is no rule, `StoreError` if it cannot be stored; it holds then too."""
        parse_rule(rule)
        self.added = (*self.added, rule)
        self._kept.add(rule)


class Gatekeeper:
    """Decides about tool calls by the permissions of the session, which grow with each answer "always"."""

    def __init__(self, workspace: Workspace, limits: RuleSet, rules: LiveRules, shell: Shell, confined: tuple[Sandbox, Area]) -> None:
        self._workspace = workspace
        self._limits = limits
        self._rules = rules
        self._shell = shell
        self._sandbox, self._area = confined
        self._unasked: set[str] = set()
        if any(rule.tool == "read" and rule.effect != "allow" for rule in (*limits.given, *limits.denied)):
            shell.guard = self._guard
        self._made: Permissions | None = None
        self._heeded = 0

    @property
    def _permissions(self) -> "Permissions":
        if self._made is None:
            from palimpsest.coding.permissions import Permissions  # 30 ms, and only a tool call needs it

            seen = self._area.visible() if self._shell.guard is not None else ()
            self._made = Permissions(self._limits.mode.current, self._workspace, self._limits.given, self._limits.denied, visible=seen)
        for rule in self._rules.added[self._heeded :]:
            self._made, self._heeded = self._made.with_rule(rule), self._heeded + 1
        if self._made.mode != self._limits.mode.current:
            self._made = replace(self._made, mode=self._limits.mode.current)
        return self._made

    @property
    def domains(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The domains that rules of the user and of the project allow and deny to fetch from."""
        rules = [rule for rule in (*self._limits.given, *self._limits.denied) if rule.tool in FETCH_TOOLS and rule.pattern]
        allowed = tuple(dict.fromkeys(rule.pattern for rule in rules if rule.effect == "allow"))
        return allowed, tuple(dict.fromkeys(rule.pattern for rule in rules if rule.effect == "deny"))

    def decide(self, tool: AgentTool, call: ToolCall) -> Decision:
        """Return the decision about a call that is to run, in the present mode."""
        decision = self._decision(tool, call)
        if decision == Allow(SANDBOX):
            self._unasked.add(call.call_id)
        return decision

    def _decision(self, offered: AgentTool, given: ToolCall) -> Decision:
        tool, call = own_call(offered, given)
        cwd = self._shell.directory(self._workspace)
        return self._permissions.decide(tool, call, sandboxed=self._sandbox.replaces_questions, cwd=cwd)

    def _guard(self) -> tuple[Wrap, str]:
        """The sandbox of the command that is to start: one that the user did not agree to does not see what rules restrict."""
        if CURRENT_CALL.get() not in self._unasked:
            return self._shell.sandbox, ""
        try:
            hidden = self._permissions.hidden()
        except ValueError as error:
            raise ToolError(f"the sandbox cannot hide what rules restrict: {error}") from error
        area = structs.replace(self._area, hidden=(*self._area.hidden, *hidden.files), fixed=hidden.folders)
        named = ", ".join(map(self._workspace.shown, hidden.files[:_MOST_NAMED]))
        more = f" and {len(hidden.files) - _MOST_NAMED} more" if len(hidden.files) > _MOST_NAMED else ""
        return self._sandbox.wrap(area), f"[rules hide {named}{more} from commands that the user was not asked about]" if named else ""

    def may_change_files(self, tool: AgentTool, call: ToolCall) -> bool:
        """Whether a permitted call may change files: commands that are known to only read, and fetched pages, do not; sub-agents may."""
        if tool.name in DELEGATING:
            return True
        return always_changes(tool, call) and tool.name not in FETCH_TOOLS and self._decision(tool, call) != Allow(READ_ONLY)

    def screened(self, tool: AgentTool) -> AgentTool:
        """A tool that searches, without the files that may not be read; every other tool names the files that it reads."""

        async def run(arguments: str, workspace: Workspace) -> ToolOutput:
            output = await tool.run(arguments, workspace)
            return replace(output, text=self._permissions.without_restricted(tool, output.text))

        return replace(tool, run=run)

    def hides(self, path: str) -> bool:
        """Whether a rule restricts reading a file that no call names, such as one that an instruction file includes."""
        rules = (*self._limits.given, *self._limits.denied)
        # Without such rules the permissions need not be loaded.
        if not any(rule.pattern and rule.tool == "read" and rule.effect != "allow" for rule in rules):
            return False
        return self._permissions.restricts_reading(Path(path))

    def permitted(self, look: Callable[[Look], str | None]) -> Callable[[Look], str | None]:
        """What plans read, such as a file before a fold, without the files that a rule denies or asks about: no call names them."""
        return lambda want: look(want) if want.what != "file" or self._permissions.may_read(want.name) else None

    def remember(self, rule: str) -> None:
        """Keep a rule for this session, for all agents of its tree, and for later sessions of this project."""
        self._rules.add(rule)
