"""Loads sessions for replay: our own logs directly, sessions of other programs by importing them into memory."""

from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import BlobStore
from palimpsest.foreign.formats import FORMATS, format_named
from palimpsest.foreign.reading.finding import find_sources
from palimpsest.foreign.reading.importing import import_session
from palimpsest.foreign.reading.own_logs import NAME
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.lab.simulation.recording import RecordedSession, recording_of
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions

OWN_FORMAT = NAME


class LoadedSession(Value, frozen=True):
    """A session loaded for replay: its source file and format, its events along the current path, and its recording."""

    id: str
    source: str
    format: str
    events: tuple[Event, ...]
    recording: RecordedSession


def load_log(log: Log, blobs: BlobStore, source: str, form: str = OWN_FORMAT, transcript: str = "") -> LoadedSession:
    """Load an open log; `transcript` is its path, if it is that of a live session."""
    return LoadedSession(log.session, source, form, tuple(log.events()), recording_of(log, blobs, transcript))


def load_foreign(source: TranscriptSource) -> LoadedSession | ReadProblem:
    """Import a session of another program into memory and load it. Returns a `ReadProblem` if it cannot be read."""
    store, blobs = MemorySessions(), MemoryBlobs()
    form = format_named(source.format)
    try:
        imported = import_session(form, source, store, blobs, FixedClock(1))
        if imported.tip < 0:
            return ReadProblem(source.path, imported.problems[0].why if imported.problems else "it contains no session")
        with Log.open(store, imported.session, FixedClock(1)) as log:
            loaded = load_log(log, blobs, source.path, source.format)
    except PalimpsestError as error:
        return ReadProblem(source.path, error.message)
    return loaded


def load_all(paths: list[Path]) -> Iterator[LoadedSession]:
    """Yield all readable sessions of other programs below some paths that contain a model call."""
    for source in find_sources(FORMATS, paths).sources:
        loaded = load_foreign(source)
        if isinstance(loaded, LoadedSession) and loaded.recording.steps:
            yield loaded
