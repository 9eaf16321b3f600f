"""Event bodies of tools: declarations, permissions, starts and results, hooks, background processes, file snapshots and their restoring."""

from typing import Literal, TypeAlias

from palimpsest.core.events.calls import EventBody
from palimpsest.core.items import ToolResult, Value

HookMoment: TypeAlias = Literal[
    "session_start", "session_end", "user_prompt", "before_tool", "after_tool", "before_fold", "after_fold", "turn_end"
]
"""When a hook of this program runs."""


class ToolsOffered(EventBody, frozen=True, tag="tools_offered"):
    """The tools of the following requests: the blob with their declarations, and their names."""

    tools: str
    names: tuple[str, ...] = ()


class ToolsChanged(EventBody, frozen=True, tag="tools_changed"):
    """A statement to the model at this place of the view: the tools that it can call from here on, and those that it cannot any more.

    Recorded right before a request to a model for which a changed list of tools would be an edit of everything. `effort` is another
    effort from here on, for a model whose earlier reasoning a changed field would cost; empty if it stays.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    effort: str = ""


class ToolStarted(EventBody, frozen=True, tag="tool_started"):
    """A tool started; after a crash this distinguishes a tool that may have had effects from one that never ran."""

    call_id: str
    tool: str


class SeenFile(Value, frozen=True):
    """A file as a tool left or found it: the SHA-256 of its content, or an empty digest if the tool deleted it."""

    path: str
    digest: str = ""


class ToolReturned(EventBody, frozen=True, tag="tool_returned"):
    """The result of a tool, limited in size; `exit` is the exit code of a command and `paths` the files that the tool read or wrote.

    `seen` are the versions of files that the agent knows from it, so that a later edit of another version is refused.
    """

    result: ToolResult
    tool: str = ""
    exit: int | None = None
    paths: tuple[str, ...] = ()
    took_ms: int = 0
    seen: tuple[SeenFile, ...] = ()


class PermissionAsked(EventBody, frozen=True, tag="permission_asked"):
    """A tool call waits for permission; `rule` is the rule that the answer "always" would create."""

    call_id: str
    tool: str
    question: str = ""
    rule: str = ""


class Permitted(EventBody, frozen=True, tag="permitted"):
    """A tool call was allowed: by a rule, a mode or the user, once or for the named scope."""

    call_id: str
    tool: str
    by: str
    scope: str = "once"


class ToolRefused(EventBody, frozen=True, tag="tool_refused"):
    """A tool call was not allowed to run: who refused it, and why."""

    call_id: str
    tool: str
    by: str
    why: str = ""


class HookRan(EventBody, frozen=True, tag="hook_ran"):
    """A hook ran: its name, the moment, the exit code of a command and what it said; `blocked` is true if it prevented an action.

    `failure` is what went wrong with it, with the kind of failure before the first colon. `notice` is a line for the user; a failure has
    one only the first time in a run of the agent.
    """

    hook: str
    moment: str
    exit: int | None = None
    took_ms: int = 0
    blocked: bool = False
    text: str = ""
    call_id: str = ""
    failure: str = ""
    notice: str = ""


class ProcessStarted(EventBody, frozen=True, tag="process_started"):
    """A background process started; `process` is the handle that later tool calls use for it."""

    process: str
    command: str
    call_id: str = ""
    pid: int | None = None


class ProcessEnded(EventBody, frozen=True, tag="process_ended"):
    """A background process ended; `exit` is its exit code, or `None` if unknown, and `why` the reason if it was stopped."""

    process: str
    exit: int | None = None
    why: str = ""


class FilesSnapshotted(EventBody, frozen=True, tag="files_snapshotted"):
    """The state of a folder was kept, so that files can be restored: `before` the first tool of a turn with effects, and `after` the turn.

    `left_out` names files that are not in it, at most 20, and `left_out_count` says how many there are. Snapshots of other programs, whose
    contents are not ours, have no `moment`.
    """

    snapshot: str
    paths: tuple[str, ...] = ()
    moment: Literal["", "before", "after"] = ""
    root: str = ""
    left_out: tuple[str, ...] = ()
    left_out_count: int = 0
    took_ms: int = 0


class RestoreStarted(EventBody, frozen=True, tag="restore_started"):
    """Files of a folder are brought from the snapshot `before` to the snapshot `after`; the `Rewound` to event `to` follows at the end.

    After a crash in between the same rewind finishes it. `paths` are the files that differ, at most 200, and `conflicts` those left alone.
    """

    root: str
    before: str
    after: str
    to: int
    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
