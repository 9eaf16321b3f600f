"""Takes sessions to be replayed: our own logs as they are, those of other programs by reading them into memory first."""

from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.foreign.formats import FORMATS, format_named
from palimpsest.foreign.reading.finding import find_sources
from palimpsest.foreign.reading.importing import import_session
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource
from palimpsest.lab.simulation.recording import Recording, recording_of
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.stores.jsonl import SUFFIX

OWN = "palimpsest"
_LONGEST_OPENING = 65_536


class Taken(Value, frozen=True):
    """A session that can be replayed: where it came from, its events along their path, and its recording."""

    id: str
    source: str
    format: str
    events: tuple[Event, ...]
    recording: Recording


def is_own(path: Path) -> bool:
    """Whether a file is a log of ours, by its first line."""
    try:
        with path.open("rb") as file:
            return b'"session_opened"' in file.readline(_LONGEST_OPENING)
    except OSError:
        return False


def find_own(path: Path) -> list[Path]:
    """The logs of ours that a path means: a file, or all files below a folder."""
    found = [path] if path.is_file() else sorted(path.rglob(f"*{SUFFIX}"))
    return [each for each in found if each.is_file() and is_own(each)]


def take_log(log: Log, blobs: Blobs, source: str, form: str = OWN) -> Taken:
    """A log that is open."""
    return Taken(log.session, source, form, tuple(log.events()), recording_of(log, blobs))


def take_foreign(source: TranscriptSource) -> Taken | ReadProblem:
    """A session of another program; nothing of it is kept when it is let go."""
    store, blobs = MemorySessions(), MemoryBlobs()
    form = format_named(source.format)
    try:
        done = import_session(form, source, store, blobs, FixedClock(1))
        if done.tip < 0:
            return ReadProblem(source.path, done.problems[0].why if done.problems else "it has no session in it")
        with Log.open(store, done.session, FixedClock(1)) as log:
            taken = take_log(log, blobs, source.path, source.format)
    except PalimpsestError as error:
        return ReadProblem(source.path, error.message)
    return taken


def find_foreign(paths: list[Path]) -> tuple[tuple[TranscriptSource, ...], tuple[ReadProblem, ...]]:
    """The sessions of other programs in files and below folders, and what was passed over."""
    found = find_sources(FORMATS, paths)
    return found.sources, found.skipped


def take_all(paths: list[Path]) -> Iterator[Taken]:
    """All sessions of other programs below some paths that can be read and have a call in them."""
    for source in find_foreign(paths)[0]:
        taken = take_foreign(source)
        if isinstance(taken, Taken) and taken.recording.steps:
            yield taken
