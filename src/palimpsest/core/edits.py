"""The only ways to change what a model sees: mask, unmask, fold, insert."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Piece, Value


class Keep(Value, frozen=True, tag="keep", gc=False):
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
