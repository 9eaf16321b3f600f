"""The contract of a projection: it takes events in order, and its state can be kept in a checkpoint."""

from typing import Literal, Protocol, TypeAlias

from palimpsest.core.events import Event
from palimpsest.core.items import Item
from palimpsest.core.view import View

Scope: TypeAlias = Literal["path", "file"]


class Projection(Protocol):
    """State that follows from events alone, so that one rebuilt from the log equals the one that was kept.

    One of scope `path` follows the events from the root to the tip and is rebuilt when a rewind changes that path. One of scope `file`
    takes every event of the file, whatever branch it is on.
    """

    @property
    def name(self) -> str:
        """Its name in checkpoints."""
        ...

    @property
    def version(self) -> int:
        """The version of its snapshots: one of another version is not restored, and the state is rebuilt from the log."""
        ...

    @property
    def scope(self) -> Scope:
        """Which events it takes."""
        ...

    @property
    def watches(self) -> frozenset[type] | None:
        """The bodies that change its state, so that it is not handed the others; none means every body."""
        ...

    def take(self, event: Event) -> None:
        """Apply one more event; the view has taken it already."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as JSON."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises `msgspec.DecodeError` or `BadLog` if it cannot be used."""
        ...

    def reset(self) -> None:
        """Go back to the state before the first event."""
        ...


class Views(Protocol):
    """The views around the event that projections are taking."""

    @property
    def view(self) -> View:
        """The view after the event."""
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
    """Projections of a layer above core, to be registered with a log when it is opened."""

    def attach(self, views: Views) -> tuple[Projection, ...]:
        """New projections, in the order in which they take an event."""
        ...
