"""Events: all event bodies as one closed union, the vocabulary of stop reasons, and the items that an event adds to a view."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from palimpsest.core.items import (
    TOOL_CHANGES,
    Content,
    Edit,
    Item,
    Kind,
    Loss,
    Part,
    Put,
    ReasoningLost,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolChange,
    ToolResult,
    Value,
    into_of,
    kind_of,
    tool_changes_content,
)

# Modules that stood below this one in 0.2 are found by `palimpsest.old_names`.
__path__: list[str] = []

NULL = Raw(b"null")
# The purpose of the calls whose replies enter the view.
TURN = "turn"
# The error of a call whose reply never became known, so that its cost is unknown too.
UNOBSERVED = "unobserved"


class EventRef(Value, frozen=True):
    """Reference to an event of a session; `link` is the hash chain up to and including the event."""

    session: str
    seq: int
    link: str = ""


class Usage(Value, frozen=True):
    """Token usage of one call as reported by the provider; the four input fields never overlap, and `output` includes `reasoning`."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All input tokens."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def total(self) -> int:
        """All input and output tokens."""
        return self.prompt + self.output


class UsageBeside(Value, frozen=True):
    """Usage that one reply was billed for beside its last message: a compaction, an advisor, or an earlier step of the server.

    `model` is the model that worked, empty if it is the one that replied.
    """

    usage: Usage
    model: str = ""


class EventBody(Value, frozen=True, kw_only=True):
    """Parent of all event bodies. `foreign` is raw JSON of the program that the event was imported from; it is used only for export."""

    foreign: Raw = NULL


class SessionOpened(EventBody, frozen=True, tag="session_opened"):
    """The first event of a log. `base` is set in a fork, which continues from that event; `opener` is the call that started a sub-agent."""

    session: str
    cwd: str = ""
    origin: str = "palimpsest"
    profile: str = ""
    model: str = ""
    base: EventRef | None = None
    opener: EventRef | None = None
    meta: dict[str, str] = {}


class UserTyped(EventBody, frozen=True, tag="user_typed"):
    """The user typed input. It is queued, and enters the view with the `UserSaid` that refers to it."""

    parts: tuple[Part, ...]


class UserSaid(EventBody, frozen=True, tag="user_said"):
    """User input enters the view, at the start of a turn or as steering during one; `typed` is the event that queued it."""

    parts: tuple[Part, ...]
    typed: int | None = None
    steering: bool = False


class InputWithdrawn(EventBody, frozen=True, tag="input_withdrawn"):
    """Queued input will not enter the view: the event that queued it, who took it back, and why."""

    typed: int
    by: str
    why: str = ""


class TurnStarted(EventBody, frozen=True, tag="turn_started"):
    """A turn starts; `typed` are the events of the queued input that it works on."""

    typed: tuple[int, ...] = ()


class TurnEnded(EventBody, frozen=True, tag="turn_ended"):
    """A turn ends; `stop` is the reason."""

    stop: str = "done"


class CallStarted(EventBody, frozen=True, tag="call_started"):
    """A request is sent: its model, parameters and tools, and the digest of its exact bytes. `size` is in bytes.

    `estimate` are the tokens of its view and `tools_estimate` those of its tool declarations, both before calibration. `cached` are the
    tokens of its prompt that the provider is believed to hold in its cache.
    Calls of purpose `turn` show the view. Other calls (summary, title, extraction) do not; `request` is then the address of the blob
    that lists the items which the request shows.
    `prefix` is the digest of the list that was sent, `*` if the model binds its thinking to none, and `after` the key of the last thinking
    in it (`wire.binding`): the thinking of the reply is bound to both. They are a cache: where they are empty, the request is rebuilt.
    `withheld` are the ids of thinking items of the view that were not sent, because they no longer fit or the provider refused them.
    """

    model: str
    wire: str
    params: Raw = Raw(b"{}")
    tools: str = ""
    digest: str = ""
    size: int = 0
    estimate: int = 0
    breakpoints: tuple[str, ...] = field(name="marks", default=())
    purpose: str = TURN
    request: str = ""
    tools_estimate: int = 0
    cached: int = 0
    prefix: str = ""
    after: str = ""
    withheld: tuple[str, ...] = ()


class RateLimit(Value, frozen=True, omit_defaults=False):
    """A limit of the provider on use over time, as a reply reported it: how much is used, in percent, and when it is reset (Unix time)."""

    name: str
    used_percent: float
    resets_at: int | None = None
    window_minutes: int | None = None


class AppliedEdit(Value, frozen=True):
    """An edit that the provider made to the list before the model read it, as the reply reports it; `None` is not reported.

    `type` is the provider's name of the edit. `tool_uses` and `thinking_turns` are how many were cleared.
    """

    type: str
    input_tokens: int | None = None
    tool_uses: int | None = None
    thinking_turns: int | None = None


class InputTransformation(Value, frozen=True):
    """What the provider did with a block of the request before the model read it: `type`, such as `thinking_dropped`, `path` and `reason`.

    `path` names the place in the list that was sent. The words are the provider's; unknown ones are kept.
    """

    type: str
    path: str = ""
    reason: str = ""


class CacheDiagnosis(Value, frozen=True):
    """What the provider says of its cache, by comparing a request with the one that it was asked to compare it with.

    `found` is `same` if it names no difference, also where it was not asked to compare; `changed` if it names one; `unknown` if it cannot
    say. `reason` is the provider's word, and `missed` the input tokens that it says were not read because of the change.
    """

    found: Literal["same", "changed", "unknown"]
    reason: str = ""
    missed: int | None = None


class ModelReplied(EventBody, frozen=True, tag="model_replied"):
    """The complete reply to a call; `stop` is the reason for its end and `message` the provider's id of it.

    `purpose` is that of its call: only replies of purpose `turn` enter the view. Replies that this library received have a `stop` of
    `core.events`, and the provider's own word in `provider_stop` if it differs; old and imported replies may have any word.
    `applied_edits` are those that the provider made to the list before the model read it.
    `stop_details` is what the provider adds to that word. `usage` is that of the message; `beside` is billed too, but never was in the
    window. `diagnosis` is `None` if the provider did not say anything of its cache. `tier` is the tier, speed or place that it says the
    reply had, if that has another price than the listed one, and the tools that it ran and bills beside the tokens.
    """

    parts: tuple[Content, ...]
    call: int | None = None
    usage: Usage = Usage()
    stop: str = ""
    model: str = ""
    message: str = ""
    error: str = ""
    purpose: str = TURN
    provider_stop: str = ""
    limits: tuple[RateLimit, ...] = ()
    beside: tuple[UsageBeside, ...] = ()
    stop_details: Raw = NULL
    transformations: tuple[InputTransformation, ...] = ()
    applied_edits: tuple[AppliedEdit, ...] = ()
    diagnosis: CacheDiagnosis | None = None
    tier: str = ""


class Interrupted(EventBody, frozen=True, tag="interrupted"):
    """A call ended before its reply was complete: the parts that had arrived, and the reason.

    If the purpose is `turn`, text and thinking enter the view. Tool calls in `parts` were never run and do not enter it.
    """

    call: int | None
    parts: tuple[Content, ...] = ()
    why: str = ""
    usage: Usage = Usage()
    model: str = ""
    purpose: str = TURN


class Failed(EventBody, frozen=True, tag="failed"):
    """An operation failed: `what` was attempted; `error` is the kind of the error.

    If `what` is `call`, this is the outcome of the model call that event `call` started for `purpose`. Where the provider refused thinking,
    `path` is the place of the first such block in the request and `cause` the provider's word for what differs, as far as it says so.
    """

    what: str
    error: str
    message: str = ""
    by: str = ""
    call: int | None = None
    purpose: str = ""
    path: str = ""
    cause: str = ""


class Statement(Value, frozen=True):
    """A text that a source states; `value` is the observed value, which is compared later to detect changes."""

    source: str
    text: str
    role: Role = "user"
    value: str = ""
    ref: str = ""


class ContextStated(EventBody, frozen=True, tag="context_stated"):
    """Sources state context: `items` are appended to the view, and a `head` replaces the head and starts a new epoch."""

    items: tuple[Statement, ...] = ()
    head: tuple[Statement, ...] | None = None


class ViewEdited(EventBody, frozen=True, tag="view_edited"):
    """The view was edited: by which policy or person, why, its tokens before and after, its price, and its loss.

    `reasoning_lost` is the thinking that no later request sends because of it; `None` where it was not measured.
    """

    edits: tuple[Edit, ...]
    by: str
    why: str = ""
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    loss: Loss | None = None
    reasoning_lost: ReasoningLost | None = None


class EditRefused(EventBody, frozen=True, tag="edit_refused"):
    """A proposed edit was rejected: the policy that proposed it, who rejected it, and why."""

    edits: tuple[Edit, ...]
    policy: str
    by: str
    why: str


class EditUndone(EventBody, frozen=True, tag="edit_undone"):
    """A `ViewEdited` is undone: all its edits, or those with the given indexes. `brings` are the items that become visible again."""

    event: int
    edits: tuple[int, ...] = ()
    why: str = ""
    brings: tuple[str, ...] = ()


class Rewound(EventBody, frozen=True, tag="rewound"):
    """The conversation continues from an earlier event, which is the parent of this event."""

    to: int
    files: bool = False
    why: str = ""


class Pinned(EventBody, frozen=True, tag="pinned"):
    """Items or files are pinned, so that no policy may hide them, or unpinned if `on` is false."""

    ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    on: bool = True


class ModelSwitched(EventBody, frozen=True, tag="model_switched"):
    """The session continues with another model."""

    model: str
    previous: str = ""


class ProfileChanged(EventBody, frozen=True, tag="profile_changed"):
    """The session continues under another profile."""

    profile: str
    previous: str = ""


class ModeChanged(EventBody, frozen=True, tag="mode_changed"):
    """The mode changed, such as plan, build or review; `collaboration` is the way of working together that holds beside it."""

    mode: str
    previous: str = ""
    collaboration: str = ""


class NotesTaken(EventBody, frozen=True, tag="notes_taken"):
    """Running notes of the session were written; `covers` is the last event that they cover.

    `tokens` is the size of the session at that time, by which the next update tells its growth.
    """

    text: str
    covers: int
    tokens: int = 0


class NoteSaved(EventBody, frozen=True, tag="note_saved"):
    """A long-term note was saved; its text is in the note store. `about` is its first line, in the log of a session only."""

    scope: str
    name: str
    rev: int
    digest: str
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()
    about: str = ""


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
    """Notes that match a query were added to the view."""

    query: str
    notes: tuple[str, ...]
    scores: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class TaskChanged(EventBody, frozen=True, tag="task_changed"):
    """A task or todo list changed; `state` is its complete new state, as JSON of the tool that owns it."""

    task: str
    what: str
    state: Raw = NULL


class Titled(EventBody, frozen=True, tag="titled"):
    """The session got a title or tags; `by` names their author."""

    title: str
    tags: tuple[str, ...] = ()
    by: str = ""


class JobRan(EventBody, frozen=True, tag="job_ran"):
    """A background job processed the events up to `cursor`; a failed job keeps its previous cursor."""

    job: str
    cursor: int
    status: Literal["done", "failed", "skipped", "cancelled"] = "done"
    why: str = ""
    took_ms: int = 0


class Noticed(EventBody, frozen=True, tag="noticed"):
    """A line for the user that no model sees; `by` is the policy, or the job with the prefix `job:`, that has something to say."""

    text: str
    by: str = ""


class ChildOpened(EventBody, frozen=True, tag="child_opened"):
    """A sub-agent started in a separate session, or goes on in it if `resumed`.

    `depth` is 1 for a child of the agent that the user talks to; it is 0 in imported sessions, where it is unknown.
    """

    session: str
    call_id: str = ""
    role: str = ""
    nickname: str = ""
    depth: int = 0
    resumed: bool = False


class ChildEnded(EventBody, frozen=True, tag="child_ended"):
    """A sub-agent ended: `text` is its report or the reason, limited in size.

    `usage` and `cost_usd` count all calls of its session so far, `children_usd` and `children_tokens` those of the sub-agents below it.
    Dollars are `None` if the price of a call is not known; up to version 0.2 such a call counted as zero.
    """

    session: str
    status: str
    text: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    children_usd: float | None = 0.0
    children_tokens: int = 0


class ForeignNoted(EventBody, frozen=True, tag="foreign_noted"):
    """Records of another program that no model sees, in `foreign`; `keys` are their ids in that program."""

    format: str
    keys: tuple[str, ...] = ()


class Unknown(EventBody, frozen=True, tag="unknown"):
    """An event type of a newer version: kept as raw JSON and never interpreted."""

    raw: Raw
    name: str = ""


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


__all__ = [
    "NULL",
    "TURN",
    "AppliedEdit",
    "Body",
    "CallStarted",
    "ChildEnded",
    "ChildOpened",
    "ContextStated",
    "EditRefused",
    "EditUndone",
    "Event",
    "EventBody",
    "EventRef",
    "Failed",
    "FilesSnapshotted",
    "ForeignNoted",
    "HookRan",
    "InputTransformation",
    "InputWithdrawn",
    "Interrupted",
    "JobRan",
    "ModeChanged",
    "ModelReplied",
    "ModelSwitched",
    "NoteForgotten",
    "NoteSaved",
    "NotesTaken",
    "Noticed",
    "PermissionAsked",
    "Permitted",
    "Pinned",
    "ProcessEnded",
    "ProcessStarted",
    "ProfileChanged",
    "Recalled",
    "RestoreStarted",
    "Rewound",
    "SessionOpened",
    "Statement",
    "TaskChanged",
    "Titled",
    "ToolRefused",
    "ToolReturned",
    "ToolStarted",
    "ToolsChanged",
    "ToolsOffered",
    "TurnEnded",
    "TurnStarted",
    "Unknown",
    "Usage",
    "UserSaid",
    "UserTyped",
    "ViewEdited",
]

Body: TypeAlias = (
    SessionOpened
    | UserTyped
    | UserSaid
    | InputWithdrawn
    | TurnStarted
    | TurnEnded
    | CallStarted
    | ModelReplied
    | Interrupted
    | Failed
    | ToolsOffered
    | ToolsChanged
    | ToolStarted
    | ToolReturned
    | PermissionAsked
    | Permitted
    | ToolRefused
    | HookRan
    | ProcessStarted
    | ProcessEnded
    | FilesSnapshotted
    | RestoreStarted
    | ContextStated
    | ViewEdited
    | EditRefused
    | EditUndone
    | Rewound
    | Pinned
    | ModelSwitched
    | ProfileChanged
    | ModeChanged
    | NotesTaken
    | NoteSaved
    | NoteForgotten
    | Recalled
    | TaskChanged
    | Titled
    | JobRan
    | Noticed
    | ChildOpened
    | ChildEnded
    | ForeignNoted
    | Unknown
)


class Event(Struct, frozen=True, omit_defaults=True, gc=False):
    """An event body with its sequence number, its parent, its time in milliseconds since 1970, and the link of the hash chain before it.

    `digest` is set only if the body was redacted; it is the digest of the original body.
    """

    seq: int
    parent: int
    at: int
    prev: str
    body: Body
    v: Literal[1] = 1
    digest: str = ""


StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause", "context_window", "error", ""]
"""Why a reply ended; empty if that is unknown, or if the reply was interrupted."""

# Keys are in lower case with underscores, because the same word occurs in several spellings.
_WORDS: Mapping[str, StopReason] = {
    **{word: word for word in get_args(StopReason)},
    # Messages.
    "pause_turn": "pause",
    "compaction": "pause",
    "model_context_window_exceeded": "context_window",
    # Responses: a status, or the reason for which a response is incomplete.
    "completed": "end_turn",
    "incomplete": "max_tokens",
    "max_output_tokens": "max_tokens",
    "failed": "error",
    "cancelled": "error",
    # Chat Completions, of OpenAI and compatible servers.
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "length": "max_tokens",
    "model_length": "context_window",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "abort": "error",
    "insufficient_system_resource": "error",
    # Words of other agents' files.
    "tooluse": "tool_use",
    "aborted": "error",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "malformed_function_call": "error",
}


def stop_reason(word: str) -> StopReason:
    """Return the stop reason for a word of this vocabulary, a provider, another agent or a log of 0.1.0; empty if it is unknown."""
    return _WORDS.get(word.lower().replace("-", "_"), "")


def decoded_stop(word: str, parts: Iterable[Content], *, refused: bool = False) -> tuple[StopReason, str]:
    """Return the stop reason of a decoded reply, and the provider's own word if it differs.

    Some servers report the end of a turn although the reply calls a tool or is a refusal: then the parts of the reply decide.
    """
    reason = stop_reason(word)
    if reason == "end_turn":
        if refused:
            reason = "refusal"
        elif any(isinstance(part, ToolCall) for part in parts):
            reason = "tool_use"
    return reason, "" if word == reason else word


# Characters of an item id: three numbers of 18 digits with two dots.
_LONGEST_ID: Final = 56


def items_of(seq: int, body: Body) -> list[Item]:
    """Return the items that event `seq` adds to the end of a view, in the order of their ids; the items of a new head come first.

    The contents of edits are not included. Replies of a purpose other than `turn` add no items.
    """
    kind: Kind = "recalled"
    match body:
        case ToolReturned(result=result):
            return [Item(f"{seq}.0", "result", result)]
        case ModelReplied(purpose="turn", parts=parts):
            return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(map(_of_model, parts))]
        case Interrupted(purpose="turn", parts=parts):
            # Tool calls are left out: an interrupted call has no result, and providers reject a call without one.
            arrived = [_of_model(part) for part in parts if isinstance(part, Text | Thinking)]
            return [Item(f"{seq}.{number}", kind_of(part), part) for number, part in enumerate(arrived)]
        case ContextStated(head=head, items=statements):
            return [
                Item(f"{seq}.{number}", "context", Text(statement.text, statement.role, ref=statement.ref), statement.source)
                for number, statement in enumerate((*(head or ()), *statements))
            ]
        case ToolsChanged(added=added, removed=removed, effort=effort):
            return [Item(f"{seq}.0", "context", tool_changes_content(ToolChange(added, removed, effort)), TOOL_CHANGES)]
        case UserSaid(parts=parts, steering=steering):
            kind = "steering" if steering else "user"
        case Recalled(parts=parts):
            pass
        case _:
            return []
    return [Item(f"{seq}.{number}", kind, part) for number, part in enumerate(parts)]


def _of_model(part: Content) -> Content:
    """A part of a reply: text is the model's, also if who made it has left out the role."""
    return replace(part, role="assistant") if isinstance(part, Text) and part.role == "user" else part


def edit_items(seq: int, index: int, edit: Edit) -> dict[int, Item]:
    """Return the new items of edit `index` of event `seq`, by their position among all new and kept contents of the edit."""
    return {
        number: Item(f"{seq}.{index}.{number}", put.kind, put.content, put.source)
        for number, put in enumerate(into_of(edit))
        if isinstance(put, Put)
    }


def all_items_of(event: Event) -> list[Item]:
    """Return every item that an event creates, directly or by its edits."""
    body = event.body
    if isinstance(body, ViewEdited):
        return [item for index, edit in enumerate(body.edits) for item in edit_items(event.seq, index, edit).values()]
    return items_of(event.seq, body)


def numbers_of(item_id: str) -> tuple[int, ...] | None:
    """Return the two or three numbers of an item id, or `None` if the id is not in canonical form."""
    # `int` raises from 4,300 digits on.
    words = item_id.split(".") if len(item_id) <= _LONGEST_ID else ()
    if len(words) not in {2, 3} or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    numbers = tuple(int(word) for word in words)
    return numbers if ".".join(map(str, numbers)) == item_id else None


def item_of(event: Event, item_id: str) -> Item | None:
    """Return the item as its event created it, without later masks or folds, or `None` if the event has no such item."""
    return next((item for item in all_items_of(event) if item.id == item_id), None)
