"""Events: everything that can happen in a session, as one closed union of event bodies."""

from typing import Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.events.calls import (
    NULL,
    TURN,
    AppliedEdit,
    CallStarted,
    EventBody,
    EventRef,
    Failed,
    InputTransformation,
    InputWithdrawn,
    Interrupted,
    ModelReplied,
    SessionOpened,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
    UserTyped,
)
from palimpsest.core.events.context import (
    ContextStated,
    EditRefused,
    EditUndone,
    ModeChanged,
    ModelSwitched,
    Pinned,
    ProfileChanged,
    Rewound,
    Statement,
    ViewEdited,
)
from palimpsest.core.events.records import (
    ChildEnded,
    ChildOpened,
    ForeignNoted,
    JobRan,
    NoteForgotten,
    NoteSaved,
    NotesTaken,
    Noticed,
    Recalled,
    TaskChanged,
    Titled,
    Unknown,
)
from palimpsest.core.events.tools import (
    FilesSnapshotted,
    HookRan,
    PermissionAsked,
    Permitted,
    ProcessEnded,
    ProcessStarted,
    RestoreStarted,
    ToolRefused,
    ToolReturned,
    ToolsChanged,
    ToolsOffered,
    ToolStarted,
)

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
