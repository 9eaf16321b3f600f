"""One run of `pal import`: imports what is new of each session, counts it, and searches it for secrets."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from msgspec import Struct, structs

from palimpsest.apps.cli.exchange.secret_search import LogSpan, SecretSearch
from palimpsest.apps.cli.opening.home import AnyHome, stores_of_folder
from palimpsest.core.errors import Locked, PalimpsestError, StoreError
from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.foreign.reading.cursors import Cursors, SourceCursor
from palimpsest.foreign.reading.importing import Counts, Imported, import_session, session_id
from palimpsest.foreign.reading.own_logs import NAME, copy_log
from palimpsest.foreign.reading.secrets import RedactingFormat, count_secrets
from palimpsest.foreign.reading.transcript import Format, ReadOutput, ReadPosition, ReadProblem, TranscriptSource, is_original
from palimpsest.stores.home import remove
from palimpsest.stores.overlay import OverlayBlobs, OverlaySessions

_SAVE_SECONDS = 2.0
_PROGRESS_EVENTS = 256


class ImportRow(Struct, frozen=True):
    """Counts and bad lines of one imported session."""

    path: str
    format: str
    session: str
    counts: Counts
    bad: tuple[ReadProblem, ...] = ()


def no_progress(files: int, events: int) -> None:
    """Report no progress."""


@dataclass
class ImportRun:
    """State of an import; `on_progress` gets the files done and events read, `stopped` ends it after the current event."""

    home: AnyHome
    redact: bool = False
    dry: bool = False
    on_progress: Callable[[int, int], None] = no_progress
    stopped: bool = False
    rows: list[ImportRow] = field(default_factory=list)
    skipped: list[ReadProblem] = field(default_factory=list)
    seen: int = 0
    unredacted: list[str] = field(default_factory=list)
    secrets: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._search = SecretSearch(self.home)
        self._searched_sources: list[TranscriptSource] = []
        self._cursors = Cursors.load(self.home.imports)
        self._log_sizes = {stat.session: stat.size for stat in self.home.store.stats()}
        self._searched_bytes: dict[str, int] = {}
        for seen in self._cursors.all():
            self._searched_bytes[seen.log] = max(seen.searched, self._searched_bytes.get(seen.log, 0))
        self._saved = time.monotonic()
        self._own_stores = self._stores()

    def take(self, form: Format, source: TranscriptSource) -> None:
        """Import what is new of a session; an unreadable one is skipped. Raises `StoreError` if the home cannot be written."""
        session = self._destination(form, source)
        reader = _ProgressReader(RedactingFormat(form) if self.redact else form, self)

        def imported(store: SessionStore, blobs: Blobs, seen: SourceCursor | None) -> Imported:
            place = (None, -1) if seen is None else (seen.position, seen.tip)
            return import_session(reader, source, store, blobs, self.home.clock, position=place[0], since=place[1], into=session)

        self._take(source, session, imported)

    def take_own(self, source: TranscriptSource) -> None:
        """Copy what is new of a log of this program; one that is damaged or does not fit is skipped. Raises as `take`."""
        if self.redact:
            why = "a log of this program is copied as it is; import it without --redact, and use `pal export ID --redact` for what leaves"
            self.skipped.append(ReadProblem(source.path, why))
            return
        path = Path(source.path)
        their_store, their_blobs = stores_of_folder(self.home, path.parent)

        def copied(store: SessionStore, blobs: Blobs, seen: SourceCursor | None) -> Imported:
            return copy_log(their_store, path.stem, their_blobs, store, blobs)

        self._take(source, source.session, copied)

    def _destination(self, form: Format, source: TranscriptSource) -> str:
        """The session that a file is imported into: the one it was exported from, if that is here."""
        own_id = session_id(form.name, source.session)
        origin = source.origin
        if origin is None or own_id in self._log_sizes or origin.session not in self._log_sizes:
            return own_id
        try:
            with self.home.open(origin.session, write=False) as log:
                return origin.session if is_original(log, origin) else own_id
        except PalimpsestError:
            return own_id

    def _take(self, source: TranscriptSource, session: str, read: Callable[[SessionStore, Blobs, SourceCursor | None], Imported]) -> None:
        seen = self._cursors.of(source) if session in self._log_sizes else None
        if self.redact and seen is not None and seen.secrets:
            self.unredacted.append(session)
        if seen is not None and seen.changed and seen.changed == source.changed:
            self._add_row(ImportRow(source.path, source.format, session, Counts()))
            self._queue_search(source, session)
            return
        # A fork needs its base, so a dry run keeps the logs of this program until it ends.
        store, blobs = self._own_stores if source.format == NAME else self._stores()
        try:
            imported = read(store, blobs, seen)
        except Exception as error:  # one file must not stop the import of the others
            self._drop_new(session)
            if isinstance(error, StoreError) and not isinstance(error, Locked):
                raise
            why = error.message if isinstance(error, PalimpsestError) else f"it cannot be imported: {type(error).__name__}: {error}"
            self.skipped.append(ReadProblem(source.path, why))
            return
        if imported.tip < 0:
            self._skip(source, imported)
            return
        self._add_row(ImportRow(source.path, source.format, session, imported.counts, imported.problems))
        if self.dry:
            self.secrets[session] = _secrets_in(store.open(session))
        elif not self.stopped:
            self._save_cursor(source, imported, seen)

    def _drop_new(self, session: str) -> None:
        """Delete what a failed import has written of a session that was not there before, so that no half of it is listed."""
        if session not in self._log_sizes and not self.dry and session in self.home.store.sessions():
            with suppress(PalimpsestError):
                remove(self.home.store, session)

    def _stores(self) -> tuple[SessionStore, Blobs]:
        if self.dry:
            return OverlaySessions(self.home.store), OverlayBlobs(self.home.blobs)
        return self.home.store, self.home.blobs

    def _skip(self, source: TranscriptSource, imported: Imported) -> None:
        first = imported.problems[0].why if imported.problems else "it contains no session"
        more = f" (and {len(imported.problems) - 1:,} more)" if len(imported.problems) > 1 else ""
        if not self.stopped:
            self.skipped.append(ReadProblem(source.path, first + more))

    def _add_row(self, row: ImportRow) -> None:
        self.rows.append(row)
        self.on_progress(len(self.rows) + len(self.skipped), self.seen)

    def _save_cursor(self, source: TranscriptSource, imported: Imported, seen: SourceCursor | None) -> None:
        cursor = SourceCursor(source.format, source.path, source.session, imported.session) if seen is None else seen
        self._cursors.put(structs.replace(cursor, changed=source.changed, tip=imported.tip, position=imported.position))
        self._log_sizes[imported.session] = self.home.store.stat(imported.session).size
        self._queue_search(source, imported.session)
        if time.monotonic() - self._saved > _SAVE_SECONDS:
            self.save()

    def _queue_search(self, source: TranscriptSource, session: str) -> None:
        """Queue the new part of a log for the search for secrets, including what an interrupted import left unsearched."""
        start, stop = self._searched_bytes.get(session, 0), self._log_sizes[session]
        if start < stop and not self.dry:
            self._searched_bytes[session] = stop
            self._searched_sources.append(source)
            self._search.add(LogSpan(session, start, stop))

    def _finish_search(self) -> None:
        """Wait for the search for secrets; after an interrupt, the next import searches the rest."""
        try:
            results = self._search.results()
        except KeyboardInterrupt:
            self.stopped = True
            return
        for source, (span, found) in zip(self._searched_sources, results, strict=True):
            seen = self._cursors.of(source)
            if seen is not None:
                secrets = {kind: seen.secrets.get(kind, 0) + found.get(kind, 0) for kind in sorted({*seen.secrets, *found})}
                self._cursors.put(structs.replace(seen, secrets=secrets, searched=span.stop))
                self.secrets[seen.log] = found

    def save(self) -> None:
        """Save the cursors, so that the next import continues here."""
        if not self.dry:
            self._cursors.save()
            self._saved = time.monotonic()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Handle Ctrl-C: the first ends the import after the current event, the second at once; cursors are saved in any case."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, previous)

        previous = signal.signal(signal.SIGINT, stop)
        try:
            yield
            signal.signal(signal.SIGINT, previous)
            if not self.stopped:
                self._finish_search()
        finally:
            signal.signal(signal.SIGINT, previous)
            self._search.stop()
            self.save()


@dataclass(frozen=True)
class _ProgressReader:
    """A format that reports progress and stops reading when the run is stopped."""

    form: Format
    run: ImportRun

    @property
    def name(self) -> str:
        return self.form.name

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        return self.form.default_paths(home, environment)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        return self.form.sources(path)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        run = self.run
        for entry in self.form.read(source, blobs, position):
            if run.stopped:
                return
            yield entry
            run.seen += 1
            if not run.seen % _PROGRESS_EVENTS:
                run.on_progress(len(run.rows) + len(run.skipped), run.seen)


def _secrets_in(log_file: LogFile) -> dict[str, int]:
    try:
        return count_secrets(chunk for _, chunk in log_file.chunks())
    finally:
        log_file.close()


def total_of(rows: list[ImportRow]) -> Counts:
    """Return the sum of all counts."""
    return Counts(*(sum(column) for column in zip(*(structs.astuple(row.counts) for row in rows), strict=True))) if rows else Counts()
