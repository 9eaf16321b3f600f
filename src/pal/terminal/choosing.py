"""A list to choose from: typing filters it, arrows move in it, Enter takes a row, Esc takes none."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from palimpsest.core.errors import PalimpsestError

_MOST_ROWS: Final = 10
# Seconds without a key until a text is searched for beyond the rows of the list.
_SEARCH_SECONDS: Final = 0.25
ENTER: Final = "enter"
NO_KEYS: Final[Mapping[str, str]] = {}


class Row(Struct, frozen=True):
    """A row of a list: its value, its text, and a text below the list while it is chosen."""

    value: str
    text: str
    preview: str = ""


class RowChoice(NamedTuple):
    """A row that the user chose, and the key: `enter`, or one of those that the list offers."""

    row: Row
    key: str = ENTER


class RowSource(Struct, frozen=True):
    """What a list may ask for beyond its rows, outside of the event loop: the preview of a row, and rows found by a typed text."""

    preview: Callable[[Row], str] | None = None
    find: Callable[[str], Sequence[Row]] | None = None


NO_SOURCE: Final = RowSource()


class Chooser:
    """One open list. `typed` is what the user has typed to filter it: every word must occur in the text or preview of a row.

    `keys` are letters that choose a row for another purpose than Enter, with the words for each; they are not typed into the filter.
    `changed` is called when a preview or a search has brought something.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        keys: Mapping[str, str] = NO_KEYS,
        source: RowSource = NO_SOURCE,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.title = title
        self.keys = keys
        self._rows = tuple(rows)
        self._folded = tuple(f"{row.text}\n{row.preview}".casefold() for row in rows)
        self._place = 0
        self._typed = ""
        self._shown = self._rows
        self._source = source
        self._changed = changed
        self._previews: dict[str, str] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._chosen: asyncio.Future[RowChoice | None] = asyncio.get_running_loop().create_future()

    @property
    def row(self) -> Row | None:
        """The row under the cursor; `None` if the filter leaves none."""
        return self._shown[self._place] if self._shown else None

    @property
    def left_out(self) -> int:
        """How many rows match and are not among those that are shown."""
        return max(0, len(self._shown) - _MOST_ROWS)

    @property
    def preview(self) -> str:
        """The text below the list: that of the row under the cursor. One that has to be looked up comes later."""
        row = self.row
        if row is None:
            return ""
        if self._source.preview is None:
            return row.preview
        if row.value not in self._previews:
            self._previews[row.value] = row.preview
            self._start(self._look_up(row, self._source.preview))
        return self._previews[row.value]

    def rows(self) -> tuple[tuple[bool, Row], ...]:
        """The rows around the cursor, and which of them is under it."""
        first = max(0, min(self._place - _MOST_ROWS // 2, len(self._shown) - _MOST_ROWS))
        return tuple((place == self._place, row) for place, row in enumerate(self._shown[first : first + _MOST_ROWS], first))

    def filter(self, typed: str) -> None:
        """Show the rows in which all words occur, regardless of case; then search for them where the list can."""
        if typed != self._typed:
            words = typed.casefold().split()
            self._typed, self._place = typed, 0
            self._shown = tuple(row for row, folded in zip(self._rows, self._folded, strict=True) if all(word in folded for word in words))
            if words and self._source.find is not None:
                self._start(self._search(typed, self._source.find))

    def go_to(self, value: str) -> None:
        """Put the cursor on the row of a value, if it is there."""
        self._place = next((place for place, row in enumerate(self._shown) if row.value == value), self._place)

    def step(self, by: int) -> None:
        """Move the cursor; it stops at both ends."""
        self._place = max(0, min(len(self._shown) - 1, self._place + by))

    def take(self, key: str = ENTER) -> None:
        """Choose the row under the cursor by a key."""
        if self.row is not None and not self._chosen.done():
            self._chosen.set_result(RowChoice(self.row, key))

    def leave(self) -> None:
        """Choose none."""
        if not self._chosen.done():
            self._chosen.set_result(None)

    async def chosen(self) -> RowChoice | None:
        """Wait for the choice; `None` if the user left the list."""
        try:
            return await self._chosen
        finally:
            for task in self._work:
                task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _look_up(self, row: Row, preview: Callable[[Row], str]) -> None:
        try:
            self._previews[row.value] = await asyncio.to_thread(preview, row)
        except PalimpsestError as error:
            self._previews[row.value] = str(error)
        self._changed()

    async def _search(self, typed: str, find: Callable[[str], Sequence[Row]]) -> None:
        await asyncio.sleep(_SEARCH_SECONDS)
        if typed != self._typed:
            return
        try:
            found = await asyncio.to_thread(find, typed)
        except PalimpsestError:
            # The rows that match by themselves are shown all the same.
            return
        if typed == self._typed:
            present = {row.value for row in self._shown}
            self._shown = (*self._shown, *(row for row in found if row.value not in present))
            self._changed()
