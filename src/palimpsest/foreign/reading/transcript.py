"""What a session of another program tells, one fact at a time, and what a format must be able to do."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw, structs

from palimpsest.core.events import NULL, Body, ToolReturned
from palimpsest.core.items import ToolCall, Value
from palimpsest.core.ports import Blobs
from palimpsest.core.view import View


class Source(Value, frozen=True):
    """A session of another program on a disk; `session` is its id there, and `changed` says when to look again."""

    format: str
    path: str
    session: str
    changed: str = ""
    parent: str = ""


class Desk(Protocol):
    """What a fact may look at when it is recorded: the view so far, and where earlier facts went."""

    @property
    def view(self) -> View:
        """What the model sees before the fact."""
        ...

    def ids(self, key: str) -> tuple[str, ...]:
        """The items that the fact of that key brought; none if it is unknown or brought nothing."""
        ...


# An edit names items by their ids, which are known only when it is recorded.
Made: TypeAlias = Callable[[Desk], Body | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A result where a file names no call: it answers part `number` of the reply of that key, under whichever id that is recorded."""

    key: str
    number: int
    body: ToolReturned

    def __call__(self, desk: Desk) -> Body:
        """The result with the id of its call; without one if the call does not show."""
        ids = desk.ids(self.key)
        wanted = ids[self.number] if self.number < len(ids) else ""
        calls = (item.content for item in reversed(desk.view.items) if item.id == wanted)
        call_id = next((call.call_id for call in calls if isinstance(call, ToolCall)), "")
        return structs.replace(self.body, result=structs.replace(self.body.result, call_id=call_id))


class Told(Value, frozen=True):
    """One fact. `key` is the other program's id of it; `after` is the key it follows where that is not the fact told before.

    `line` is what the file says beside the body, as JSON: enough, with the body, to write the lines back as they were.
    """

    body: Body | Made
    at: int
    key: str = ""
    after: str = ""
    line: Raw = NULL


class BadLine(Value, frozen=True):
    """Something that could not be read, and where; the rest goes on."""

    where: str
    why: str


class Mark(Value, frozen=True):
    """Where reading stopped, told last: given back, a format reads only what is new since. `state` is the format's own."""

    offset: int = 0
    state: Raw = NULL


class Format(Protocol):
    """One program's way of keeping sessions."""

    @property
    def name(self) -> str:
        """What commands call it: `claude`, `codex`, `opencode`."""
        ...

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Where the program keeps its sessions by default."""
        ...

    def sources(self, path: Path) -> Iterator[Source | BadLine]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this format."""
        ...

    def read(self, source: Source, blobs: Blobs, mark: Mark | None = None) -> Iterator[Told | BadLine | Mark]:
        """The facts of a session in order, first that it was opened; after a mark only what came since."""
        ...
