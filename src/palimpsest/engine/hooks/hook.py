"""Values of hooks: the moments, what a hook gets, what it may return, and the hook itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, TypeAlias, get_args

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events.tools import HookMoment
from palimpsest.core.items import Value

MARK: Final = "PAL_HOOK_RUN"
"""Variable of every process that a hook starts. Its value is unique to one run, so that processes which left the group are found."""
MOMENTS: Final[tuple[HookMoment, ...]] = get_args(HookMoment)
SECONDS: Final = 60.0
"""Time limit of a hook that names none."""
LONGEST_SECONDS: Final = 3_600.0
CONTEXT_CHARS: Final = 10_000
"""Most characters of the text that one hook adds to the context."""
REASON_CHARS: Final = 2_000
NOTICE_CHARS: Final = 300
_TOOL_MOMENTS: Final = frozenset({"before_tool", "after_tool"})
_NAME_CHARS: Final = 80
_CONTROLS: Final = {code: None for code in (*range(0x20), 0x7F) if chr(code) not in "\n\t"}


class HookCall(Value, frozen=True):
    """What a hook gets; fields that do not belong to the moment are at their default.

    cwd: the project folder.
    agent, role: nickname and role of the sub-agent in whose session the hook runs; empty in that of the main agent.
    source: of `session_start`: startup, resume or compact, the last of which means that a fold happened.
    prompt: the text of the user, of `user_prompt`.
    tool, call_id, arguments: the tool call; `arguments` is the JSON text that the model sent, never shortened.
    result, error: the text of the tool result as the model gets it, at most 256 kB, and whether it is an error.
    stop, reply: why the turn or the session ends, and the text of the last reply.
    continued: how often hooks made this turn go on already.
    asked, focus: whether the user or the model asked for the fold, and on what it should concentrate.
    tokens_before, tokens_after: size of the view before and after a fold, as far as it is known.
    """

    session: str
    moment: HookMoment
    cwd: str = ""
    agent: str = ""
    role: str = ""
    source: str = ""
    prompt: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    result: str = ""
    error: bool = False
    stop: str = ""
    reply: str = ""
    continued: int = 0
    asked: bool = False
    focus: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class HookResult(Value, frozen=True):
    """What a hook returns.

    block: the reason for which the action must not happen; empty to let it happen.
    context: text for the model.
    notice: a line for the user.
    state: the business state to which the task moves.
    failure: what went wrong although there is a result, with the kind of failure before the first colon.
    exit: the exit code of a command.
    """

    block: str = ""
    context: str = ""
    notice: str = ""
    state: str = ""
    failure: str = ""
    exit: int | None = None


class HookFailed(PalimpsestError):
    """A hook did not do its work; the session goes on without its result. The kind of failure stands before the first colon."""

    kind = "hook"

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


HookReturn: TypeAlias = HookResult | str | None
"""What the function of a hook returns; a text is context."""
HookFunction: TypeAlias = Callable[[HookCall], HookReturn | Awaitable[HookReturn]]


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that runs at a moment of a session.

    moment: when it runs.
    run: gets the call and returns a `HookResult`, a text that is context, or `None`. A plain function runs in a thread.
    name: its name in the log; default: that of the function.
    tool: pattern for the name of the tool, such as `mcp_*`; only for `before_tool` and `after_tool`.
    seconds: its time limit.

    Raises `BadInput` for an unknown moment, a name that is no short line, a pattern at another moment, or a limit that is not positive.
    """

    moment: HookMoment
    run: HookFunction = field(repr=False)
    name: str = ""
    tool: str = "*"
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        name = self.name or getattr(self.run, "__name__", type(self.run).__name__)
        object.__setattr__(self, "name", name)
        if self.moment not in MOMENTS:
            raise BadInput(f"there is no moment {self.moment!r}; the moments are {', '.join(MOMENTS)}", where=name)
        if not name.isprintable() or not name.strip() or len(name) > _NAME_CHARS:
            raise BadInput(f"the name of a hook is one line of at most {_NAME_CHARS} characters", where=repr(name[:_NAME_CHARS]))
        if self.tool != "*" and self.moment not in _TOOL_MOMENTS:
            raise BadInput(f"a hook of {self.moment} has no tool; leave the pattern {self.tool!r} out", where=name)
        if not 0 < self.seconds <= LONGEST_SECONDS:
            raise BadInput(f"the time limit of a hook is more than 0 and at most {LONGEST_SECONDS:g} seconds", where=name)

    def matches(self, moment: HookMoment, tool: str) -> bool:
        """Whether it runs at a moment, and for a tool if the moment has one."""
        return self.moment == moment and (moment not in _TOOL_MOMENTS or fnmatchcase(tool, self.tool))


class HookContext(Value, frozen=True):
    """A text that a hook adds, with the name of the hook."""

    hook: str
    text: str


class HookVerdict(Value, frozen=True):
    """What the hooks of a moment say together: the first that blocks with its reason, and the texts of all, in declared order."""

    blocked_by: str = ""
    reason: str = ""
    contexts: tuple[HookContext, ...] = ()


def cleaned(text: str, limit: int) -> str:
    """A text that can be recorded and shown: without control characters, of at most `limit` characters and a note on the rest."""
    kept = text[:limit].encode("utf-8", "replace").decode().translate(_CONTROLS).strip()
    return kept if len(text) <= limit else f"{kept}\n[{len(text) - limit:,} characters left out]"
