"""The command `pal import`, which finds sessions of other agents, imports what is new in them as logs, and searches it for secrets."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
import msgspec
from msgspec import Struct, structs
from msgspec.structs import asdict

from pal.cli.command_line import FINDINGS, INTERRUPTED
from pal.cli.opening import expand_path, find_home, stores_of_folder
from pal.cli.output import emit, json_option, progress
from pal.cli.secret_search import LogSpan, SecretSearch
from pal.cli.tables import Columns, console, progress_bar
from pal.text import plain
from palimpsest.core.errors import BadInput, Locked, PalimpsestError, StoreError
from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.exchange.files import FolderWalk, ReadLimits, reading_limits
from palimpsest.exchange.finding import NAME, UNKNOWN, FoundSources, OwnLogs, bases_first, copy_log, find_sources
from palimpsest.exchange.formats import FORMATS
from palimpsest.exchange.importing import Counts, Cursors, Imported, SourceCursor, import_session, session_id
from palimpsest.exchange.secrets import RedactingBlobs, count_secrets, redacted
from palimpsest.exchange.transcript import Format, ReadOutput, ReadProblem, TranscriptSource, is_original
from palimpsest.stores.home import Home, remove
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions

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

    home: Home
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

        def imported(store: SessionStore, blobs: Blobs, seen: SourceCursor | None) -> Imported:
            place = (None, -1) if seen is None else (seen.position, seen.tip)
            kept = RedactingBlobs(blobs) if self.redact else blobs
            return import_session(
                form, source, store, kept, self.home.clock, position=place[0], since=place[1], into=session, through=self._watched
            )

        self._take(source, session, imported)

    def _watched(self, outputs: Iterator[ReadOutput]) -> Iterator[ReadOutput]:
        """Yield what is read until the import is stopped, and report the progress."""
        for output in redacted(outputs) if self.redact else outputs:
            if self.stopped:
                return
            yield output
            self.seen += 1
            if not self.seen % _PROGRESS_EVENTS:
                self.on_progress(len(self.rows) + len(self.skipped), self.seen)

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
            return MemorySessions(self.home.store), MemoryBlobs(self.home.blobs)
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


def _secrets_in(log_file: LogFile) -> dict[str, int]:
    try:
        return count_secrets(chunk for _, chunk in log_file.chunks())
    finally:
        log_file.close()


def total_of(rows: list[ImportRow]) -> Counts:
    """Return the sum of all counts."""
    return Counts(*(sum(column) for column in zip(*(structs.astuple(row.counts) for row in rows), strict=True))) if rows else Counts()


_MOST_BAD_LINES = 10
_FORMATS_BY_NAME = {form.name: form for form in FORMATS}
# Logs of this program hold lines of others, so they are recognised first.
_FINDERS: tuple[Format | OwnLogs, ...] = (OwnLogs(related=True), *FORMATS)
_EXAMPLES = """\b
Examples:
  pal import                      all programs, from their default folders
  pal import claude codex
  pal import session.jsonl --dry-run
  pal import ~/old-home           the sessions of another home of pal"""


@click.command("import", epilog=_EXAMPLES)
@click.argument("arguments", nargs=-1, metavar="[NAME|PATH]…")
@click.option("--dry-run", "dry", is_flag=True, help="Read and count; write nothing.")
@click.option("--redact", is_flag=True, help="Replace keys, tokens and passwords before anything is written.")
@click.option("--most-unpacked", type=click.IntRange(1), metavar="BYTES", help="Bytes that a compressed file may unpack to; default 4 GiB.")
@click.option("--most-ratio", type=click.IntRange(1), metavar="N", help="Times its size that a compressed file may unpack to; default 200.")
@click.option("--verbose", "-v", is_flag=True, help="List every other file that was looked at, and what it is.")
@json_option
def import_(
    *,
    arguments: tuple[str, ...],
    dry: bool,
    redact: bool,
    most_unpacked: int | None,
    most_ratio: int | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Import sessions of other agents; a second import reads only what is new.

    NAME is a program, whose default folder is searched. PATH is a file or folder of any program, or another home of pal,
    whose sessions are copied as they are. Source files are never changed. Exit code 1 if something could not be read.
    """
    _check_arguments(arguments)
    places = _places(arguments)
    with reading_limits(_limits(most_unpacked, most_ratio)):
        found = _find_in_places(places, explain=verbose)
        run = ImportRun(find_home(), redact=redact, dry=dry, skipped=list(found.skipped))
        with run.stoppable():
            _take(run, found)
    _report(run, places, found, as_json=as_json, verbose=verbose)


def _take(run: ImportRun, found: FoundSources) -> None:
    """Import what was found, the logs of this program first, until the run is stopped."""
    own = bases_first(source for source in found.sources if source.format == NAME)
    started = time.monotonic()

    def speed() -> str:
        return f"files  {run.seen / max(0.001, time.monotonic() - started):,.0f} events/s"

    with progress_bar("importing", len(found.sources) + len(found.skipped), speed) as show_progress:
        run.on_progress = lambda files, _: show_progress(files)
        for source in (*own, *(source for source in found.sources if source.format != NAME)):
            if run.stopped:
                break
            if source.format == NAME:
                run.take_own(source)
            else:
                run.take(_FORMATS_BY_NAME[source.format], source)


def _limits(unpacked: int | None, ratio: int | None) -> ReadLimits:
    given = {"unpacked": unpacked, "ratio": ratio}
    return ReadLimits(**{name: value for name, value in given.items() if value is not None})


def _check_arguments(arguments: tuple[str, ...]) -> None:
    """Raise `BadInput` for an argument that is neither a program nor a path, before anything is read."""
    for argument in arguments:
        if not argument:
            raise BadInput("a path is empty; `pal import .` searches the working directory", where="import")
        if argument not in _FORMATS_BY_NAME and not os.path.lexists(expand_path(argument)):
            raise BadInput(
                f"there is no such file, and no program of that name; known programs are {', '.join(_FORMATS_BY_NAME)}", where=argument
            )
        if argument in _FORMATS_BY_NAME and not _FORMATS_BY_NAME[argument].default_paths(Path.home(), os.environ):
            raise BadInput("its service keeps the sessions; save their events, then `pal import FILE`", where=argument)


class _SearchPlace(NamedTuple):
    """Paths that are searched together, and by which finders; `name` is empty for paths that the user gave."""

    name: str
    finders: tuple[Format | OwnLogs, ...]
    paths: tuple[Path, ...]


def _places(arguments: tuple[str, ...]) -> list[_SearchPlace]:
    """Where to search: the default paths of named programs for their own format, and given paths for any format."""
    home = Path.home()
    named = [_FORMATS_BY_NAME[name] for name in dict.fromkeys(arguments or _FORMATS_BY_NAME) if name in _FORMATS_BY_NAME]
    paths = [Path(os.path.abspath(expand_path(argument))) for argument in arguments if argument not in _FORMATS_BY_NAME]  # noqa: PTH100 - links are not resolved
    places = [_SearchPlace(form.name, (form,), form.default_paths(home, os.environ)) for form in named]
    return [*places, *([_SearchPlace("", _FINDERS, tuple(paths))] if paths else [])]


def _find_in_places(places: list[_SearchPlace], *, explain: bool) -> FoundSources:
    with progress("looking for sessions") as show_progress:
        walk = FolderWalk(on_entries=lambda entries: show_progress(entries, 0))
        found = [find_sources(place.finders, filter(os.path.lexists, place.paths), explain=explain, walk=walk) for place in places]
    sources = {(source.format, source.path, source.session): source for each in found for source in each.sources}
    # A program that is installed and was never used is no finding.
    unused = {str(path) for place in places if place.name for path in place.paths}
    skipped = {bad.where: bad for each in found for bad in each.skipped if bad.where not in unused or bad.why != UNKNOWN}
    # A folder may be searched for several programs; what one of them takes is not ignored.
    known = {*skipped, *(source.path for source in sources.values())}
    ignored = {other.where: other for each in found for other in each.ignored if other.where not in known}
    return FoundSources(tuple(sources.values()), tuple(skipped.values()), tuple(ignored.values()))


def _report(run: ImportRun, places: list[_SearchPlace], found: FoundSources, *, as_json: bool, verbose: bool) -> None:
    for bad in (*run.skipped, *found.ignored):
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    for row in run.rows:
        _print_bad_lines(row)
    for session in run.unredacted:
        click.echo(
            f"pal: {session}: already imported with its secrets; run `pal delete {session}` first, then import with --redact", err=True
        )
    if run.stopped:
        done = f"{len(run.rows):,} of {len(found.sources):,} files"
        click.echo(f"pal: interrupted after {done}; what was read is kept, and `pal import` continues from there", err=True)
    if as_json:
        searched = [str(path) for place in places for path in place.paths]
        emit({**as_builtins(run), "searched": searched, **({"ignored": _problems(found.ignored)} if verbose else {})})
    else:
        _print_imported(run, places)
    if run.stopped:
        click.get_current_context().exit(INTERRUPTED)
    if run.skipped or any(row.bad for row in run.rows):
        click.get_current_context().exit(FINDINGS)


def _print_bad_lines(row: ImportRow) -> None:
    for bad in row.bad[:_MOST_BAD_LINES]:
        click.echo(plain(f"pal: {bad.where}: {bad.why}"), err=True)
    if len(row.bad) > _MOST_BAD_LINES:
        click.echo(plain(f"pal: {row.path}: … and {len(row.bad) - _MOST_BAD_LINES:,} more bad lines; --json has all"), err=True)


def as_builtins(run: ImportRun) -> dict[str, object]:
    """Return an import as `--json` prints it."""
    formats = {form.name: [row for row in run.rows if row.format == form.name] for form in _FINDERS}
    return {
        **_totals(run.rows, run),
        "skipped": _problems(run.skipped),
        "files": [_row_as_builtins(row, run) for row in run.rows],
        "formats": {name: _totals(rows, run) for name, rows in formats.items() if rows},
        "interrupted": run.stopped,
        "dry_run": run.dry,
    }


def _problems(problems: Sequence[ReadProblem]) -> list[dict[str, str]]:
    return [{"path": bad.where, "why": bad.why} for bad in problems]


def _totals(rows: list[ImportRow], run: ImportRun) -> dict[str, object]:
    return {"sessions": len({row.session for row in rows}), **asdict(total_of(rows)), "secrets": _secrets(rows, run)}


def _row_as_builtins(row: ImportRow, run: ImportRun) -> dict[str, object]:
    place = {"path": row.path, "format": row.format, "session": row.session}
    return {**place, **asdict(row.counts), "bad": msgspec.to_builtins(row.bad), "secrets": _secrets([row], run)}


def _secrets(rows: list[ImportRow], run: ImportRun) -> dict[str, int]:
    found = [run.secrets.get(session, {}) for session in {row.session for row in rows}]
    kinds = sorted({kind for each in found for kind in each})
    return {kind: sum(each.get(kind, 0) for each in found) for kind in kinds}


def _print_imported(run: ImportRun, places: list[_SearchPlace]) -> None:
    names = ("sessions", "events", "user", "calls", "results", "folds", "masks", "bad lines")
    rows = [(form.name, found) for form in _FINDERS if (found := [row for row in run.rows if row.format == form.name])]
    if not rows:
        _print_places(places)
        return
    if total_of(run.rows) == Counts():
        click.echo(f"nothing new in {len({row.session for row in run.rows}):,} sessions")
        return
    summary = Columns("format", *names, right=names)
    for name, found in [*rows, ("all", run.rows)] if len(rows) > 1 else rows:
        counts = asdict(total_of(found))
        summary.add_row(name, f"{len({row.session for row in found}):,}", *(f"{number:,}" for number in counts.values()))
    console().print(summary)
    secrets = _secrets(run.rows, run)
    if secrets:
        kinds = ", ".join(f"{kind} {number}" for kind, number in secrets.items())
        click.echo(f"{sum(secrets.values()):,} secrets ({kinds}) in the new events: `pal secrets --all` lists them, --redact replaces them")
    if run.dry:
        click.echo("nothing was written (--dry-run)")


def _print_places(places: list[_SearchPlace]) -> None:
    """Say that no session was found, and where it was looked for."""
    click.echo("no sessions found; looked in")
    for place in places:
        there = [path for path in place.paths if os.path.lexists(path)]
        others = f" and {len(place.paths) - 1} more places" if len(place.paths) > 1 else ""
        for path in there or place.paths[:1]:
            missing = "" if there else f"{others} (not there)"
            click.echo(plain(f"  {place.name + ' ' if place.name else ''}{path}{missing}"))
    click.echo("--verbose lists what is there instead; `pal import PATH` searches another file or folder")
