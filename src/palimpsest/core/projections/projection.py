"""The protocol of projections: state that is computed from events in order and can be stored in a checkpoint."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from palimpsest.core.events import Event
from palimpsest.core.items import Item
from palimpsest.core.view import View

Scope: TypeAlias = Literal["path", "file"]


class Projection(Protocol):
    """State that depends only on events, so that rebuilding it from the log gives the same result as a checkpoint.

    A projection of scope `path` gets the events of the current path and is rebuilt after a rewind. One of scope `file` gets every event
    of the file, on all branches.
    """

    @property
    def name(self) -> str:
        """Key of its snapshots in checkpoints."""
        ...

    @property
    def version(self) -> int:
        """Version of its snapshots; if a snapshot has another version, the state is rebuilt from the log."""
        ...

    @property
    def scope(self) -> Scope:
        """Which events it gets."""
        ...

    @property
    def watches(self) -> frozenset[type] | None:
        """The types of bodies that it gets; `None` means all."""
        ...

    def take(self, event: Event) -> None:
        """Apply the next event; the view projection has applied it already."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state as JSON."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` or `BadLog` if it cannot be used."""
        ...

    def reset(self) -> None:
        """Go back to the state before the first event."""
        ...


class StateProjection:
    """Parent of the projections whose state is one value: `state_type()` before the first event, and JSON in a snapshot."""

    __slots__ = ()
    state_type: ClassVar[Any]

    def value(self) -> object:
        """Return the state after the last event."""
        raise NotImplementedError

    def start_from(self, state: Any) -> None:
        """Replace the state by a value of `state_type`."""
        raise NotImplementedError

    def reset(self) -> None:
        """Go back to the state before the first event."""
        self.start_from(self.state_type())

    def snapshot(self) -> bytes:
        """Return the state as JSON."""
        return msgspec.json.encode(self.value())

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` if it is invalid."""
        self.start_from(msgspec.json.decode(data, type=self.state_type))


class Views(Protocol):
    """The views before and after the event that is being applied.

    `view` and `items_before` copy all items. A projection that asks for them at every reply is quadratic in the length of a session.
    """

    @property
    def view(self) -> View:
        """The view after the event."""
        ...

    @property
    def rest(self) -> View:
        """The view after the event without its items and facts."""
        ...

    @property
    def items(self) -> Sequence[Item]:
        """The items after the event, valid until the next event."""
        ...

    @property
    def count_before(self) -> int:
        """How many items there were before the event. Unless it changed items, these are the first of `items`."""
        ...

    @property
    def revision(self) -> int:
        """A number that is another one once items were changed otherwise than by appending."""
        ...

    @property
    def items_before(self) -> tuple[Item, ...]:
        """The items of the view before the event."""
        ...

    @property
    def head_before(self) -> tuple[Item, ...]:
        """The head of the view before the event."""
        ...


class Derived(Protocol):
    """The projections of a layer above core, which are registered with a log."""

    def attach(self, views: Views) -> tuple[Projection, ...]:
        """Return new projections, in the order in which they apply an event."""
        ...
