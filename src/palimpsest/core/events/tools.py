"""Bodies about tools: what was offered, permitted, started and returned, and the processes and hooks around them."""

from palimpsest.core.events.calls import EventBody
from palimpsest.core.items import ToolResult


class ToolsOffered(EventBody, frozen=True, tag="tools_offered"):
    """The tools of the requests from here on: the blob that holds their declarations, and their names."""

    tools: str
    names: tuple[str, ...] = ()


class ToolStarted(EventBody, frozen=True, tag="tool_started"):
    """A tool begins to run, so that a crash can be told from a tool that never ran."""

    call_id: str
    tool: str


class ToolReturned(EventBody, frozen=True, tag="tool_returned"):
    """A tool's result, bounded; `exit` is the exit code of a command and `paths` the files it read or wrote."""

    result: ToolResult
    tool: str = ""
    exit: int | None = None
    paths: tuple[str, ...] = ()
    took_ms: int = 0


class PermissionAsked(EventBody, frozen=True, tag="permission_asked"):
    """A tool call waits for permission; `rule` is what answering "always" would write."""

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
    """A hook ran: its command, when in the session, how it ended, and what it said."""

    hook: str
    moment: str
    exit: int | None = None
    took_ms: int = 0
    blocked: bool = False
    text: str = ""
    call_id: str = ""


class ProcessStarted(EventBody, frozen=True, tag="process_started"):
    """A background process began; `process` is the handle by which later tool calls name it."""

    process: str
    command: str
    call_id: str = ""
    pid: int | None = None


class ProcessEnded(EventBody, frozen=True, tag="process_ended"):
    """A background process ended: its exit code, or none where it is unknown, and why it was stopped."""

    process: str
    exit: int | None = None
    why: str = ""


class FilesSnapshotted(EventBody, frozen=True, tag="files_snapshotted"):
    """The state of the work tree was kept, so that files can be restored."""

    snapshot: str
    paths: tuple[str, ...] = ()
