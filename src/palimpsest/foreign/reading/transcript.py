"""The protocol of a transcript format, and the values that reading a session yields."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Raw

from palimpsest.core.events import NULL, Body
from palimpsest.core.items import Value
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.deferred import DeferredBody


class TranscriptSource(Value, frozen=True):
    """A session of another program on disk. `session` is its id there. `changed` is a stamp that differs once the file has changed."""

    format: str
    path: str
    session: str
    changed: str = ""
    parent: str = ""


class ReadEvent(Value, frozen=True):
    """One event read from a transcript, in the order of the conversation.

    `key` is the other program's id of it. `after` is the key of the event it follows; empty if that is the event read before it. `line`
    is the rest of the source line as JSON: together with the body it is enough to write the line back exactly.
    """

    body: Body | DeferredBody
    at: int
    key: str = ""
    after: str = ""
    line: Raw = NULL


class ReadProblem(Value, frozen=True):
    """A place in a transcript that could not be read, and the reason. Reading continues after it."""

    where: str
    why: str


class ReadPosition(Value, frozen=True):
    """Where reading stopped; yielded last, and passed to the next `read`.

    `state` is private to the format.
    """

    offset: int = 0
    state: Raw = NULL


# What reading a session yields: events and problems in order, and last the position.
ReadOutput: TypeAlias = ReadEvent | ReadProblem | ReadPosition


class Format(Protocol):
    """The transcript format of one program."""

    @property
    def name(self) -> str:
        """The name in commands: `claude`, `codex`, `opencode`."""
        ...

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The paths where the program keeps its sessions by default."""
        ...

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this format."""
        ...

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session in order, `SessionOpened` first; after a `position` only those that are new since."""
        ...
