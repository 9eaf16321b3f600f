"""Bodies that change what the model sees or how the session works."""

from palimpsest.core.edits import Edit, Loss
from palimpsest.core.events.calls import EventBody
from palimpsest.core.items import Role, Value


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
    """What the model sees was changed: by which policy or person, why, and what that saves, costs and hides."""

    edits: tuple[Edit, ...]
    by: str
    why: str = ""
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    loss: Loss | None = None


class EditRefused(EventBody, frozen=True, tag="edit_refused"):
    """A proposed edit was not installed: the policy that proposed it, who refused it, and why."""

    edits: tuple[Edit, ...]
    policy: str
    by: str
    why: str


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


class Pinned(EventBody, frozen=True, tag="pinned"):
    """Items or files that no policy may hide, or may hide again."""

    ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    on: bool = True


class ModelSwitched(EventBody, frozen=True, tag="model_switched"):
    """Another model takes over."""

    model: str
    previous: str = ""


class ProfileChanged(EventBody, frozen=True, tag="profile_changed"):
    """Another profile applies from here on."""

    profile: str
    previous: str = ""


class ModeChanged(EventBody, frozen=True, tag="mode_changed"):
    """The way of working changed: plan, build, review."""

    mode: str
    previous: str = ""
