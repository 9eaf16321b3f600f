"""What a session of another program tells, one fact at a time, and what a format must be able to do."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw

from palimpsest.core.events import NULL, Body
from palimpsest.core.items import Value
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.deferred import DeferredBody


class TranscriptSource(Value, frozen=True):
    """A session of another program on a disk; `session` is its id there, and `changed` says when to look again."""

    format: str
    path: str
    session: str
    changed: str = ""
    parent: str = ""


class ReadEvent(Value, frozen=True):
    """One fact. `key` is the other program's id of it; `after` is the key it follows where that is not the fact told before.

    `line` is what the file says beside the body, as JSON: enough, with the body, to write the lines back as they were.
    """

    body: Body | DeferredBody
    at: int
    key: str = ""
    after: str = ""
    line: Raw = NULL


class ReadProblem(Value, frozen=True):
    """Something that could not be read, and where; the rest goes on."""

    where: str
    why: str


class ReadPosition(Value, frozen=True):
    """Where reading stopped, told last: given back, a format reads only what is new since. `state` is the format's own."""

    offset: int = 0
    state: Raw = NULL


# What reading a session yields: events and problems in order, and last the position.
ReadOutput: TypeAlias = ReadEvent | ReadProblem | ReadPosition


class Format(Protocol):
    """One program's way of keeping sessions."""

    @property
    def name(self) -> str:
        """What commands call it: `claude`, `codex`, `opencode`."""
        ...

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Where the program keeps its sessions by default."""
        ...

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this format."""
        ...

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The facts of a session in order, first that it was opened; after a mark only what came since."""
        ...
