"""Edits of a view (mask, unmask, fold, insert), and the loss that an edit causes."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Piece, Value


class LostEntity(Value, frozen=True, array_like=True):
    """A text that is no longer visible after an edit, and the id of the item that contained it; encoded as a list of two."""

    text: str
    item: str


class Loss(Value, frozen=True):
    """What an edit hides, by kind of entity. `ids` are the items that were visible before the edit and are not after it.

    `path_items` and `command_items` are the ids of the items that contained each of `paths` and `commands`. Long lists are cut; `more`
    holds the number of omitted entries of each kind.
    """

    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    numbers: int = 0
    user_messages: int = 0
    ids: tuple[str, ...] = ()
    path_items: tuple[str, ...] = ()
    command_items: tuple[str, ...] = ()
    symbols: tuple[LostEntity, ...] = ()
    errors: tuple[LostEntity, ...] = ()
    urls: tuple[LostEntity, ...] = ()
    identifiers: tuple[LostEntity, ...] = ()
    more: dict[str, int] = {}


class ReasoningLost(Value, frozen=True, omit_defaults=False):
    """Thinking that the next request leaves out because of an edit: blocks, and their output tokens, `None` if some are unknown."""

    blocks: int = 0
    tokens: int | None = 0


class Keep(Value, frozen=True, tag="keep"):
    """An existing item that the edit keeps verbatim; it is moved, not copied."""

    id: str


class Put(Piece, frozen=True, tag="put"):
    """A new content that an edit adds to the view."""


Into: TypeAlias = tuple[Put | Keep, ...]


class Mask(Value, frozen=True, tag="mask"):
    """Show `text` instead of the items; an empty text hides them. Form `cached` keeps the bytes and asks the provider to clear them."""

    ids: tuple[str, ...]
    text: str = ""
    form: Literal["shown", "cached"] = "shown"


class Unmask(Value, frozen=True, tag="unmask"):
    """Remove the masks of the items."""

    ids: tuple[str, ...]


class Fold(Value, frozen=True, tag="fold"):
    """Replace the items from `first` to `last`, both included, by `into`."""

    first: str
    last: str
    into: Into = ()


class Insert(Value, frozen=True, tag="insert"):
    """Insert contents before an item, or at the end if `before` is empty; a `Keep` restores an item that an earlier edit removed."""

    contents: Into
    before: str = ""


Edit: TypeAlias = Mask | Unmask | Fold | Insert


def named_ids(edit: Edit) -> tuple[str, ...]:
    """Return the ids of the existing items that an edit refers to."""
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            return ids
        case Fold(first=first, last=last):
            return (first, last, *kept_ids(edit))
        case Insert(before=before):
            return (before, *kept_ids(edit)) if before else kept_ids(edit)


def into_of(edit: Edit) -> Into:
    """Return the new and the kept contents that an edit puts into the view."""
    match edit:
        case Mask() | Unmask():
            return ()
        case Fold(into=into) | Insert(contents=into):
            return into


def kept_ids(edit: Edit) -> tuple[str, ...]:
    """Return the ids of the items that an edit keeps or restores."""
    return tuple(piece.id for piece in into_of(edit) if isinstance(piece, Keep))
