"""One import from its first session to its last: what is new goes into the home, and everything is counted."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from msgspec import Struct, structs

from palimpsest.apps.cli.exchange.secret_search import LogSpan, SecretSearch
from palimpsest.apps.cli.home import AnyHome
from palimpsest.core.errors import Locked, PalimpsestError, StoreError
from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.foreign.reading.cursors import Cursors, Seen
from palimpsest.foreign.reading.importing import Counts, Imported, import_session, session_id
from palimpsest.foreign.reading.secrets import Redacting, count_secrets
from palimpsest.foreign.reading.transcript import BadLine, Format, Mark, Source, Told
from palimpsest.stores.overlay import OverlayBlobs, OverlaySessions

_SAVE_EVERY = 2.0
_TELL_EVERY = 256


class ImportRow(Struct, frozen=True):
    """What one session of one file brought."""

    path: str
    format: str
    session: str
    counts: Counts
    bad: tuple[BadLine, ...] = ()


def say_nothing(files: int, events: int) -> None:
    """Nobody waits to hear how far it is."""


@dataclass
class ImportRun:
    """An import under way. `tell` hears of files done and events seen; `stopped` ends it after the fact that is being read."""

    home: AnyHome
    redact: bool = False
    dry: bool = False
    tell: Callable[[int, int], None] = say_nothing
    stopped: bool = False
    rows: list[ImportRow] = field(default_factory=list)
    skipped: list[BadLine] = field(default_factory=list)
    seen: int = 0
    unredacted: list[str] = field(default_factory=list)
    secrets: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._search = SecretSearch(self.home)
        self._looked_at: list[Source] = []
        self._cursors = Cursors.load(self.home.imports)
        self._logs = {stat.session: stat.size for stat in self.home.store.stats()}
        self._searched: dict[str, int] = {}
        for seen in self._cursors.all():
            self._searched[seen.log] = max(seen.searched, self._searched.get(seen.log, 0))
        self._saved = time.monotonic()

    def take(self, form: Format, source: Source) -> None:
        """Import what is new of a session; what cannot be is passed over, unless it is the home itself that refuses."""
        session = session_id(form.name, source.session)
        seen = self._cursors.of(source) if session in self._logs else None
        if self.redact and seen is not None and seen.secrets:
            self.unredacted.append(session)
        if seen is not None and seen.changed and seen.changed == source.changed:
            self._add(ImportRow(source.path, form.name, session, Counts()))
            self._look_at(source, session)
            return
        store, blobs = self._places()
        reader = _Watched(Redacting(form) if self.redact else form, self)
        try:
            imported = import_session(
                reader,
                source,
                store,
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
        self._add(ImportRow(source.path, form.name, session, imported.counts, imported.bad))
        if self.dry:
            self.secrets[session] = _secrets_in(store.open(session))
        elif not self.stopped:
            self._keep(source, imported, seen)

    def _places(self) -> tuple[SessionStore, Blobs]:
        if self.dry:
            return OverlaySessions(self.home.store), OverlayBlobs(self.home.blobs)
        return self.home.store, self.home.blobs

    def _pass_over(self, source: Source, imported: Imported) -> None:
        first = imported.bad[0].why if imported.bad else "it has no session in it"
        more = f" (and {len(imported.bad) - 1:,} more)" if len(imported.bad) > 1 else ""
        if not self.stopped:
            self.skipped.append(BadLine(source.path, first + more))

    def _add(self, row: ImportRow) -> None:
        self.rows.append(row)
        self.tell(len(self.rows) + len(self.skipped), self.seen)

    def _keep(self, source: Source, imported: Imported, seen: Seen | None) -> None:
        before = Seen(source.format, source.path, source.session, imported.session) if seen is None else seen
        self._cursors.put(structs.replace(before, changed=source.changed, tip=imported.tip, mark=imported.mark))
        self._logs[imported.session] = self.home.store.stat(imported.session).size
        self._look_at(source, imported.session)
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def _look_at(self, source: Source, session: str) -> None:
        """Have what is new in a log looked at for secrets, also what an interrupted import left."""
        start, stop = self._searched.get(session, 0), self._logs[session]
        if start < stop and not self.dry:
            self._searched[session] = stop
            self._looked_at.append(source)
            self._search.add(LogSpan(session, start, stop))

    def _finish(self) -> None:
        """Wait until all that is new was looked at for secrets; whoever does not wait has it looked at next time."""
        try:
            results = self._search.results()
        except KeyboardInterrupt:
            self.stopped = True
            return
        for source, (span, found) in zip(self._looked_at, results, strict=True):
            seen = self._cursors.of(source)
            if seen is not None:
                together = {kind: seen.secrets.get(kind, 0) + found.get(kind, 0) for kind in sorted({*seen.secrets, *found})}
                self._cursors.put(structs.replace(seen, secrets=together, searched=span.stop))
                self.secrets[seen.log] = found

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
            signal.signal(signal.SIGINT, earlier)
            if not self.stopped:
                self._finish()
        finally:
            signal.signal(signal.SIGINT, earlier)
            self._search.stop()
            self.save()


@dataclass(frozen=True)
class _Watched:
    """A format that says how far it is, and ends early when it is told to."""

    form: Format
    run: ImportRun

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


def _secrets_in(lines: LogFile) -> dict[str, int]:
    try:
        return count_secrets(chunk for _, chunk in lines.chunks())
    finally:
        lines.close()


def total_of(rows: list[ImportRow]) -> Counts:
    """All counts together."""
    return Counts(*(sum(column) for column in zip(*(structs.astuple(row.counts) for row in rows), strict=True))) if rows else Counts()
