"""Finds the sessions that phase one reads: main sessions that are finished, of any origin, newest first, and why others are left out."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, SessionOpened
from palimpsest.core.format.codec import decode_line
from palimpsest.core.format.reading import LogReader, open_reader
from palimpsest.core.ports import LogFile, LogStat
from palimpsest.engine.memory.pipeline.places import PipelinePlaces

NotDue: TypeAlias = Literal["current", "open", "sub_agent", "not_interactive", "fresh", "too_old", "unreadable"]
# Logs that one search looks at, newest first.
MOST_SCANNED: Final = 5_000
_DAY_MS, _HOUR_MS, _NS_PER_MS = 86_400_000, 3_600_000, 1_000_000
_TAIL_BYTES: Final = 64 * 1024
# Greater than the number of any event.
_NO_LAST: Final = 10**17
# Sources of Codex threads that a person types into; others are started by programs.
_TYPED_INTO: Final = frozenset({"", "cli", "vscode"})


class DueSession(Struct, frozen=True):
    """A session to be read: when its last event was, in milliseconds since 1970, and the folder in which it worked."""

    session: str
    updated: int
    cwd: str
    origin: str


class SearchResult(Struct, frozen=True):
    """The sessions that are due, newest first, and the reasons of those that are not, by session."""

    due: tuple[DueSession, ...]
    not_due: dict[str, NotDue]


def due_sessions(places: PipelinePlaces, *, current: str = "", everything: bool = False) -> SearchResult:
    """Return the sessions that phase one may read. With `everything`, those that are fresh or old as well.

    Sub-agents, sessions that a program started (where the log says so), the current one and those that are open for writing are never due.
    """
    config, now = places.config, places.home.clock.now()
    oldest = now - int(config.age_days * _DAY_MS)
    newest = now - int(config.idle_hours * _HOUR_MS)
    due: list[DueSession] = []
    reasons: dict[str, NotDue] = {}
    stats = sorted(places.home.store.stats(), key=lambda stat: (stat.changed, stat.session), reverse=True)
    for stat in stats[: None if everything else MOST_SCANNED]:
        found = _judged(places, stat, current, oldest=0 if everything else oldest, newest=None if everything else newest)
        if isinstance(found, DueSession):
            due.append(found)
        else:
            reasons[stat.session] = found
    return SearchResult(tuple(sorted(due, key=lambda each: (-each.updated, each.session))), reasons)


def session_events(places: PipelinePlaces, session: str) -> Iterator[Event]:
    """Yield the events of a session on its current path; of a fork its own, because the others are those of another session."""
    store = places.home.store
    with closing(store.open(session)) as lines, closing(open_reader(store, session, lines, check=False)) as reader:
        # Read once: opening the log as a session would compute its view, which nothing here needs.
        events = list(reader.run(reader.first, _NO_LAST))
        for event in events:
            reader.note_branching(event)
        path = reader.path(events[-1].seq) if events else None
    if path is not None:
        yield from (event for event in events if event.seq in path)


def _judged(places: PipelinePlaces, stat: LogStat, current: str, *, oldest: int, newest: int | None) -> DueSession | NotDue:
    if stat.session == current:
        return "current"
    if stat.changed // _NS_PER_MS < oldest:
        # A file is never older than the last event in it, so that most files of a large home need not be opened.
        return "too_old"
    try:
        with closing(places.home.store.open(stat.session)) as lines, closing(open_reader(places.home.store, stat.session, lines)) as reader:
            opened, updated = reader.opened.body, _last_event_at(lines, reader)
        is_open = places.home.store.has_writer(stat.session)
    except (PalimpsestError, OSError):
        return "unreadable"
    if not isinstance(opened, SessionOpened):
        return "unreadable"
    if opened.opener is not None:
        return "sub_agent"
    if not _is_interactive(opened):
        return "not_interactive"
    if is_open:
        return "open"
    if newest is not None and updated > newest:
        return "fresh"
    return "too_old" if updated < oldest else DueSession(stat.session, updated, opened.cwd, opened.origin)


def _is_interactive(opened: SessionOpened) -> bool:
    """Whether a person took part, where the log says: Codex records what started a thread."""
    return opened.origin != "codex" or opened.meta.get("source", "") in _TYPED_INTO


def _last_event_at(lines: LogFile, reader: LogReader) -> int:
    """Return the time of the last event, from the end of the file."""
    size, wanted = lines.size, _TAIL_BYTES
    while True:
        start = max(0, size - wanted)
        tail = lines.read(start, size - start).rstrip(b"\n")
        place = tail.rfind(b"\n")
        if place >= 0 or start == 0:
            return decode_line(tail[place + 1 :], lines.name, start + place + 1).at if tail else reader.opened.at
        wanted *= 4
