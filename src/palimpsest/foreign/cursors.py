"""What earlier imports saw of each source, so that the next one reads only what is new; it can be deleted without loss."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from palimpsest.core.items import Value
from palimpsest.foreign.transcript import Mark, Source

VERSION = 1


class Seen(Value, frozen=True):
    """A source as the last import left it: what it was like, the log it went to, up to which event, and where reading stopped.

    `secrets` counts by class what was found in the log, of which `searched` bytes were looked at so far.
    """

    format: str
    path: str
    session: str
    log: str
    changed: str = ""
    tip: int = -1
    mark: Mark | None = None
    secrets: dict[str, int] = {}
    searched: int = 0


class _File(Value, frozen=True):
    v: int = VERSION
    seen: tuple[Seen, ...] = ()


class Cursors:
    """All that was seen, kept in one file that is replaced as a whole."""

    def __init__(self, path: Path, seen: tuple[Seen, ...] = ()) -> None:
        self._path = path
        self._seen = {(each.format, each.path, each.session): each for each in seen}
        self._changed = False

    @classmethod
    def load(cls, path: Path) -> "Cursors":
        """What the file says; one that is missing, damaged or of another version says nothing."""
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return cls(path)
        return cls(path, kept.seen if kept.v == VERSION else ())

    def of(self, source: Source) -> Seen | None:
        """What was seen of a source."""
        return self._seen.get((source.format, source.path, source.session))

    def put(self, seen: Seen) -> None:
        """Remember a source as it was left."""
        key = (seen.format, seen.path, seen.session)
        self._changed = self._changed or self._seen.get(key) != seen
        self._seen[key] = seen

    def all(self) -> tuple[Seen, ...]:
        """Everything seen, in the order of paths."""
        return tuple(self._seen[key] for key in sorted(self._seen))

    def save(self) -> None:
        """Replace the file at once and as a whole; a disk that refuses is no reason to stop, for the logs are enough."""
        if not self._changed:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._path, msgspec.json.encode(_File(seen=self.all())))
            self._changed = False


def _replace(path: Path, data: bytes) -> None:
    # mkstemp makes the file with mode 0600, in the same folder so that the rename cannot cross a file system.
    handle, name = tempfile.mkstemp(prefix=".imports-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
