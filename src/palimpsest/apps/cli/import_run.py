"""One import from its first session to its last: what is new goes into the home, and everything is counted."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from msgspec import Struct, structs

from palimpsest.apps.cli.home import Home
from palimpsest.core.errors import Locked, PalimpsestError, StoreError
from palimpsest.core.ports import Blobs, Shelf
from palimpsest.foreign.cursors import Cursors, Seen
from palimpsest.foreign.importing import Counts, Imported, import_session, session_id
from palimpsest.foreign.secrets import Redacting, SearchedShelf, SecretCount, secrets_in
from palimpsest.foreign.transcript import BadLine, Format, Mark, Source, Told
from palimpsest.stores.ephemeral import MemoryBlobs, MemoryShelf

CURSORS = "imports.json"
_SAVE_EVERY = 2.0
_TELL_EVERY = 256


class Row(Struct, frozen=True):
    """What one session of one file brought."""

    path: str
    format: str
    session: str
    counts: Counts
    secrets: Mapping[str, int] = {}
    bad: tuple[BadLine, ...] = ()


def say_nothing(files: int, events: int) -> None:
    """Nobody waits to hear how far it is."""


@dataclass
class Run:
    """An import under way. `tell` hears of files done and events seen; `stopped` ends it after the fact that is being read."""

    home: Home
    redact: bool = False
    dry: bool = False
    tell: Callable[[int, int], None] = say_nothing
    stopped: bool = False
    rows: list[Row] = field(default_factory=list)
    skipped: list[BadLine] = field(default_factory=list)
    seen: int = 0

    def __post_init__(self) -> None:
        self._cursors = Cursors.load(self.home.folder / CURSORS)
        self._logs = set(self.home.shelf.sessions())
        self._saved = time.monotonic()

    def take(self, form: Format, source: Source) -> None:
        """Import what is new of a session; what cannot be is passed over, unless it is the home itself that refuses."""
        session = session_id(form.name, source.session)
        seen = self._cursors.of(source) if session in self._logs else None
        if seen is not None and seen.changed and seen.changed == source.changed:
            self._add(Row(source.path, form.name, session, Counts()))
            return
        count = SecretCount()
        shelf, blobs = self._places(session)
        reader = _Watched(Redacting(form) if self.redact else form, self)
        try:
            imported = import_session(
                reader,
                source,
                SearchedShelf(shelf, count),
                blobs,
                self.home.clock,
                mark=None if seen is None else seen.mark,
                since=-1 if seen is None else seen.tip,
            )
        except PalimpsestError as error:
            if isinstance(error, StoreError) and not isinstance(error, Locked):
                raise
            self.skipped.append(BadLine(source.path, error.message))
            return
        if imported.tip < 0:
            self._pass_over(source, imported)
            return
        self._add(Row(source.path, form.name, session, imported.counts, count.result(), imported.bad))
        if not (self.dry or self.stopped):
            self._keep(source, imported, seen, count.result())

    def _places(self, session: str) -> tuple[Shelf, Blobs]:
        if not self.dry:
            return self.home.shelf, self.home.blobs
        shelf = MemoryShelf()
        if session in self._logs:
            shelf.replace(session, self.home.shelf.path_of(session).read_bytes())
        return shelf, MemoryBlobs()

    def _pass_over(self, source: Source, imported: Imported) -> None:
        first = imported.bad[0].why if imported.bad else "it has no session in it"
        more = f" (and {len(imported.bad) - 1:,} more)" if len(imported.bad) > 1 else ""
        if not self.stopped:
            self.skipped.append(BadLine(source.path, first + more))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.tell(len(self.rows) + len(self.skipped), self.seen)

    def _keep(self, source: Source, imported: Imported, seen: Seen | None, found: dict[str, int]) -> None:
        if seen is not None:
            found = {kind: seen.secrets.get(kind, 0) + found.get(kind, 0) for kind in sorted({*seen.secrets, *found})}
        elif imported.session in self._logs and not self._cursors.knows(imported.session):
            lines = self.home.shelf.open(imported.session)
            try:
                found = secrets_in(lines)
            finally:
                lines.close()
        self._logs.add(imported.session)
        kept = (source.format, source.path, source.session, imported.session, source.changed, imported.tip, imported.mark)
        self._cursors.put(Seen(*kept, secrets=found))
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Keep what was seen, so that the next import begins here."""
        if not self.dry:
            self._cursors.save()
            self._saved = time.monotonic()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """The first Ctrl-C ends the import where nothing is half done, the second at once; what was seen is kept in any case."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, earlier)

        earlier = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)
            self.save()


@dataclass(frozen=True)
class _Watched:
    """A format that says how far it is, and ends early when it is told to."""

    form: Format
    run: Run

    @property
    def name(self) -> str:
        return self.form.name

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        return self.form.places(home, environment)

    def sources(self, path: Path) -> Iterator[Source | BadLine]:
        return self.form.sources(path)

    def read(self, source: Source, blobs: Blobs, mark: Mark | None = None) -> Iterator[Told | BadLine | Mark]:
        run = self.run
        for told in self.form.read(source, blobs, mark):
            if run.stopped:
                return
            yield told
            run.seen += 1
            if not run.seen % _TELL_EVERY:
                run.tell(len(run.rows) + len(run.skipped), run.seen)


def total_of(rows: list[Row]) -> Counts:
    """All counts together."""
    return Counts(*(sum(column) for column in zip(*(structs.astuple(row.counts) for row in rows), strict=True))) if rows else Counts()
