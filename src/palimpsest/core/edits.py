"""The only ways to change what a model sees (mask, unmask, fold, insert), and what an edit hides."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Piece, Value


class LostEntity(Value, frozen=True, array_like=True):
    """Something that no longer shows, and the item in which it stood; written as a list of two."""

    text: str
    item: str


class Loss(Value, frozen=True):
    """What an edit hides, by kind of entity; `ids` are the items that showed before and do not any more.

    `path_items` and `command_items` say of each path and command in which item it stood. Of every kind only some are listed; `more` has
    how many others there are.
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


class Keep(Value, frozen=True, tag="keep"):
    """An item that stays verbatim: moved here, never copied."""

    id: str


class Put(Piece, frozen=True, tag="put"):
    """A new piece of content that an edit brings into the view."""


Into: TypeAlias = tuple[Put | Keep, ...]


class Mask(Value, frozen=True, tag="mask"):
    """Show `text` in place of the items; nothing at all when it is empty. `cached` leaves the bytes and asks the provider to drop them."""

    ids: tuple[str, ...]
    text: str = ""
    form: Literal["shown", "cached"] = "shown"


class Unmask(Value, frozen=True, tag="unmask"):
    """Show the items as they were."""

    ids: tuple[str, ...]


class Fold(Value, frozen=True, tag="fold"):
    """Replace the run from `first` to `last` by `into`; what `into` keeps is moved."""

    first: str
    last: str
    into: Into = ()


class Insert(Value, frozen=True, tag="insert"):
    """Put contents before an item, or at the end when `before` is empty; a `Keep` brings back an item that an edit took away."""

    contents: Into
    before: str = ""


Edit: TypeAlias = Mask | Unmask | Fold | Insert


def named(edit: Edit) -> tuple[str, ...]:
    """The items that an edit names."""
    match edit:
        case Mask(ids=ids) | Unmask(ids=ids):
            return ids
        case Fold(first=first, last=last):
            return (first, last, *kept(edit))
        case Insert(before=before):
            return (before, *kept(edit)) if before else kept(edit)


def into_of(edit: Edit) -> Into:
    """What an edit brings into the view, new or kept."""
    match edit:
        case Mask() | Unmask():
            return ()
        case Fold(into=into) | Insert(contents=into):
            return into


def kept(edit: Edit) -> tuple[str, ...]:
    """The items that an edit keeps or brings back."""
    return tuple(piece.id for piece in into_of(edit) if isinstance(piece, Keep))
