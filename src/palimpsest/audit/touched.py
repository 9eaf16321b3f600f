"""A path that a call touched, and how."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Value

How: TypeAlias = Literal["read", "edit", "write", "remove", "search"]


class Touched(Value, frozen=True):
    """A path as it was written, how it was touched, and the lines that were read; without lines it was the whole.

    `write` replaces the whole content or creates the file, `remove` leaves none at that path.
    """

    path: str
    how: How
    first: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it was touched."""
        return (self.first is None or self.first <= 1) and self.last is None

    @property
    def changes(self) -> bool:
        """Whether the file is another one afterwards, so that what was read of it before is out of date."""
        return self.how in ("edit", "write", "remove")

    def covers(self, other: "Touched") -> bool:
        """Whether everything that another touch showed of the same path shows here too."""
        if self.path != other.path:
            return False
        if self.whole:
            return True
        if other.whole or (other.last is None and self.last is not None):
            return False
        starts = (self.first or 1) <= (other.first or 1)
        return starts and (self.last is None or other.last is None or self.last >= other.last)
