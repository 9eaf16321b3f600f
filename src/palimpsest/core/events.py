"""Stamped facts: everything that can happen in a session, as one closed union."""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from palimpsest.core.edits import Edit
from palimpsest.core.items import Content, Part, Role, ToolResult, Value
from palimpsest.core.loss import Loss

NULL = Raw(b"null")


class Place(Value, frozen=True):
    """An event of some session; `link` is the hash chain up to and including it."""

    session: str
    seq: int
    link: str = ""


class Usage(Value, frozen=True):
    """Tokens of one call as the provider counted them; the three input parts never overlap."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """Everything the model read."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def total(self) -> int:
        """What the model read and wrote."""
        return self.prompt + self.output


class EventBody(Value, frozen=True, kw_only=True):
    """A body. `foreign` is what another program's file says beside it, as raw JSON: kept for the way back there, and not read here."""

    foreign: Raw = NULL


class SessionOpened(EventBody, frozen=True, tag="session_opened"):
    """The first line of a file. `base` makes it a fork that reads through another session; `opener` is the call that made a child."""

    session: str
    cwd: str = ""
    origin: str = "palimpsest"
    profile: str = ""
    model: str = ""
    base: Place | None = None
    opener: Place | None = None
    meta: dict[str, str] = {}


class UserTyped(EventBody, frozen=True, tag="user_typed"):
    """Input as it arrived, durable at once; it enters the view when `UserSaid` names it."""

    parts: tuple[Part, ...]


class UserSaid(EventBody, frozen=True, tag="user_said"):
    """Input takes its place in the conversation, at the start of a turn or as steering within one."""

    parts: tuple[Part, ...]
    typed: int | None = None
    steering: bool = False


class CallStarted(EventBody, frozen=True, tag="call_started"):
    """A request leaves: what it was made of, and the digest of its exact bytes."""

    model: str
    wire: str
    params: Raw = Raw(b"{}")
    tools: str = ""
    digest: str = ""
    size: int = 0
    estimate: int = 0
    marks: tuple[str, ...] = ()
    purpose: str = "turn"


class ModelReplied(EventBody, frozen=True, tag="model_replied"):
    """The reply to a call, whole; `stop` is why it ended and `message` the provider's id of it.

    Replies of our own have a stop of `core.stops`, with the provider's word beside it where that differs; old and imported ones any word.
    """

    parts: tuple[Content, ...]
    call: int | None = None
    usage: Usage = Usage()
    stop: str = ""
    model: str = ""
    message: str = ""
    error: str = ""
    provider_stop: str = ""


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


class Statement(Value, frozen=True):
    """What a source says about the world; `value` is what it observed, for comparing later."""

    source: str
    text: str
    role: Role = "user"
    value: str = ""
    ref: str = ""


class ContextStated(EventBody, frozen=True, tag="context_stated"):
    """Sources speak. With a `head` a new epoch begins; `items` are appended to the view."""

    items: tuple[Statement, ...] = ()
    head: tuple[Statement, ...] | None = None


class ViewEdited(EventBody, frozen=True, tag="view_edited"):
    """Somebody changed what the model sees: who, why, and what it saves, costs and hides."""

    edits: tuple[Edit, ...]
    by: str
    why: str = ""
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    loss: Loss | None = None


class EditUndone(EventBody, frozen=True, tag="edit_undone"):
    """A `ViewEdited` is taken back, whole or the edits named by index; `brings` are the items that show again."""

    event: int
    edits: tuple[int, ...] = ()
    why: str = ""
    brings: tuple[str, ...] = ()


class Rewound(EventBody, frozen=True, tag="rewound"):
    """The conversation goes on from an earlier event, which is this event's parent."""

    to: int
    files: bool = False
    why: str = ""


class NotesTaken(EventBody, frozen=True, tag="notes_taken"):
    """Running notes of this session, and the last event they cover."""

    text: str
    covers: int
    tokens: int = 0


class NoteSaved(EventBody, frozen=True, tag="note_saved"):
    """A long-term note was written; its text lives in the note store."""

    scope: str
    name: str
    rev: int
    digest: str
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()


class NoteForgotten(EventBody, frozen=True, tag="note_forgotten"):
    """A long-term note was superseded, retracted or forgotten."""

    scope: str
    name: str
    rev: int
    how: Literal["superseded", "retracted", "forgotten", "expired"] = "forgotten"
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()


class Recalled(EventBody, frozen=True, tag="recalled"):
    """Notes were brought into the view for a query."""

    query: str
    notes: tuple[str, ...]
    scores: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class ModelSwitched(EventBody, frozen=True, tag="model_switched"):
    """Another model takes over."""

    model: str
    previous: str = ""


class ModeChanged(EventBody, frozen=True, tag="mode_changed"):
    """The way of working changed: plan, build, review."""

    mode: str
    previous: str = ""


class TaskChanged(EventBody, frozen=True, tag="task_changed"):
    """A task or todo list changed; `state` is the new whole, as JSON of the tool that owns it."""

    task: str
    what: str
    state: Raw = NULL


class Pinned(EventBody, frozen=True, tag="pinned"):
    """Items or files that no policy may hide, or may hide again."""

    ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    on: bool = True


class Titled(EventBody, frozen=True, tag="titled"):
    """The session got a title or tags."""

    title: str
    tags: tuple[str, ...] = ()
    by: str = ""


class Permitted(EventBody, frozen=True, tag="permitted"):
    """Somebody with the right to do so allowed an action."""

    call_id: str
    tool: str
    by: str
    scope: str = "once"


class Refused(EventBody, frozen=True, tag="refused"):
    """An action or an edit was not allowed, and why; a refused edit is kept with it, `of` being who proposed it."""

    what: str
    by: str
    why: str
    call_id: str = ""
    edits: tuple[Edit, ...] = ()
    of: str = ""


class ChildOpened(EventBody, frozen=True, tag="child_opened"):
    """A sub-agent began in a session of its own."""

    session: str
    call_id: str = ""
    role: str = ""


class ChildEnded(EventBody, frozen=True, tag="child_ended"):
    """A sub-agent ended, by itself or not."""

    session: str
    status: str
    text: str = ""


class SideCalled(EventBody, frozen=True, tag="side_called"):
    """A call that is no part of the conversation (a title, a summary, an extraction); it costs all the same."""

    purpose: str
    model: str
    usage: Usage = Usage()
    text: str = ""
    ask: str = ""


class FilesSnapshotted(EventBody, frozen=True, tag="files_snapshotted"):
    """The state of the work tree was kept, so that files can be restored."""

    snapshot: str
    paths: tuple[str, ...] = ()


class Failed(EventBody, frozen=True, tag="failed"):
    """Something did not work: `what` was tried, the `error` kind and a line about it."""

    what: str
    error: str
    message: str = ""
    by: str = ""


class TurnEnded(EventBody, frozen=True, tag="turn_ended"):
    """The agent hands back to the user."""

    stop: str = "done"


class ForeignNoted(EventBody, frozen=True, tag="foreign_noted"):
    """LogFile of another program that mean nothing to a model, in `foreign`; `keys` are their own ids."""

    format: str
    keys: tuple[str, ...] = ()


class Unknown(EventBody, frozen=True, tag="unknown"):
    """An event of a newer version: kept, shown as such, and never interpreted."""

    raw: Raw
    name: str = ""


Body: TypeAlias = (
    SessionOpened
    | UserTyped
    | UserSaid
    | CallStarted
    | ModelReplied
    | ToolStarted
    | ToolReturned
    | ContextStated
    | ViewEdited
    | EditUndone
    | Rewound
    | NotesTaken
    | NoteSaved
    | NoteForgotten
    | Recalled
    | ModelSwitched
    | ModeChanged
    | TaskChanged
    | Pinned
    | Titled
    | Permitted
    | Refused
    | ChildOpened
    | ChildEnded
    | SideCalled
    | FilesSnapshotted
    | Failed
    | TurnEnded
    | ForeignNoted
    | Unknown
)


class Event(Struct, frozen=True, omit_defaults=True, gc=False):
    """A body with its place in the log: its number, what it follows, when, and the chain before it.

    `digest` is there only when the body was redacted: it is the digest of what stood there before.
    """

    seq: int
    parent: int
    at: int
    prev: str
    body: Body
    v: Literal[1] = 1
    digest: str = ""
