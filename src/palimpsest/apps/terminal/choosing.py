"""A list to choose from: typing filters it, arrows move in it, Enter takes a row, Esc takes none."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_MOST_ROWS: Final = 10


class Row(Struct, frozen=True):
    """A row of a list: its value, its text, and a text below the list while it is chosen."""

    value: str
    text: str
    preview: str = ""


class Chooser:
    """One open list. `typed` is what the user has typed to filter it: every word must occur in the text or preview of a row."""

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title = title
        self._rows = tuple(rows)
        self._folded = tuple(f"{row.text}\n{row.preview}".casefold() for row in rows)
        self._place = 0
        self._typed = ""
        self._shown = self._rows
        self._chosen: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()

    @property
    def row(self) -> Row | None:
        """The row under the cursor; `None` if the filter leaves none."""
        return self._shown[self._place] if self._shown else None

    @property
    def left_out(self) -> int:
        """How many rows match and are not among those that are shown."""
        return max(0, len(self._shown) - _MOST_ROWS)

    def rows(self) -> tuple[tuple[bool, Row], ...]:
        """The rows around the cursor, and which of them is under it."""
        first = max(0, min(self._place - _MOST_ROWS // 2, len(self._shown) - _MOST_ROWS))
        return tuple((place == self._place, row) for place, row in enumerate(self._shown[first : first + _MOST_ROWS], first))

    def filter(self, typed: str) -> None:
        """Show the rows in which all words occur, regardless of case."""
        if typed != self._typed:
            words = typed.casefold().split()
            self._typed, self._place = typed, 0
            self._shown = tuple(row for row, folded in zip(self._rows, self._folded, strict=True) if all(word in folded for word in words))

    def move(self, by: int) -> None:
        """Move the cursor; it stops at both ends."""
        self._place = max(0, min(len(self._shown) - 1, self._place + by))

    def take(self) -> None:
        """Choose the row under the cursor."""
        if self.row is not None and not self._chosen.done():
            self._chosen.set_result(self.row)

    def leave(self) -> None:
        """Choose none."""
        if not self._chosen.done():
            self._chosen.set_result(None)

    async def chosen(self) -> Row | None:
        """Wait for the choice; `None` if the user left the list."""
        return await self._chosen
