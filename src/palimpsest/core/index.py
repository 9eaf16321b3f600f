"""Values that an index of sessions answers with: rows of a list, hits of a search, and the report of a refresh."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.events import Place, Usage
from palimpsest.core.items import Kind

UnitKind: TypeAlias = Kind | Literal["note", "title"]
# Called with the bytes that were read so far and the bytes there are to read.
Progress: TypeAlias = Callable[[int, int], None]


class SessionRow(Struct, frozen=True):
    """One session in a list. `turns` counts what the user began; `tokens` is all that models read and wrote, by model in `usage`.

    `path` is what its store calls the log. The title is the one it was given, else the first line that the user said. A fork counts its
    own events only. Times are milliseconds since 1970.
    """

    id: str
    path: str = ""
    title: str = ""
    origin: str = ""
    cwd: str = ""
    model: str = ""
    profile: str = ""
    created: int = 0
    updated: int = 0
    events: int = 0
    turns: int = 0
    tokens: int = 0
    usage: dict[str, Usage] = {}
    base: Place | None = None
    opener: Place | None = None


class Hit(Struct, frozen=True):
    """A readable piece that matches: where it stands, its kind, when it came, and the text around the match.

    `item` is empty where the piece is no item of a view.
    """

    session: str
    seq: int
    item: str
    kind: UnitKind
    at: int
    snippet: str


class RefreshReport(Struct, frozen=True):
    """What a refresh did: logs and bytes read, logs with something unreadable and why, and how many vanished."""

    read: int = 0
    bytes: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    bad_lines: int = 0
    gone: int = 0
