"""Event bodies that change the view or the settings of a session."""

from palimpsest.core.edits import Edit, Loss, ReasoningLost
from palimpsest.core.events.calls import EventBody
from palimpsest.core.items import Role, Value


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
