"""Imports of other programs' sessions as tests look at them: the logs they make, and the laws that hold for every format."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from palimpsest.core.events import Body, Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.core.view_projection import ViewProjection
from palimpsest.exchange.importing import Imported, import_session
from palimpsest.exchange.transcript import Format, ReadProblem, TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.encode import Encoder
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request

CARDS = tuple(card(name) for name in ("claude-sonnet-4-5", "gpt-5.5", "openai-compatible/x"))


class Home:
    """A home in memory that sessions are imported into."""

    def __init__(self) -> None:
        self.store = MemorySessions()
        self.blobs = MemoryBlobs()
        self.done: dict[str, Imported] = {}

    def take(self, form: Format, path: Path) -> list[Imported]:
        """Import what is new in all sessions of a path."""
        found = []
        for source in sources(form, path):
            old = self.done.get(source.session)
            done = import_session(form, source, self.store, self.blobs, FixedClock(1), position=old.position if old else None)
            self.done[source.session] = done
            found.append(done)
        return found

    def log(self, session: str) -> bytes:
        """The bytes of a log."""
        lines = self.store.open(session)
        return b"".join(chunk for _, chunk in lines.chunks())

    def logs(self) -> dict[str, bytes]:
        """The bytes of all logs."""
        return {session: self.log(session) for session in self.store.sessions()}

    def events(self, session: str) -> list[Event]:
        """The events of a log."""
        log = Log.open(self.store, session, FixedClock(1))
        return list(log.reader.run(log.reader.first, log.tip))

    def bodies(self, session: str) -> list[Body]:
        """What happened, one after the other."""
        return [event.body for event in self.events(session)]


def read_session(form: Format, path: Path) -> tuple[Home, Imported, list[Body]]:
    """The only session of a path, imported into a new home: what was done, and what happened in it."""
    home = Home()
    (done,) = home.take(form, path)
    return home, done, home.bodies(done.session)


def check_session(form: Format, path: Path) -> tuple[Home, str, list[Body]]:
    """The same for a session that does not change when it is imported again, and whose views every provider takes."""
    home = check_repeat(form, path)
    (session,) = home.store.sessions()
    assert faults(home, session) == []
    return home, session, home.bodies(session)


def sources(form: Format, path: Path) -> list[TranscriptSource]:
    """The sessions of a path; the test fails if one cannot be read."""
    found = list(form.sources(path))
    assert [each for each in found if isinstance(each, ReadProblem)] == []
    return [each for each in found if isinstance(each, TranscriptSource)]


def said(bodies: list[Body]) -> list[str]:
    """What the user said, in order."""
    return [text_of(body.parts[0]) for body in bodies if isinstance(body, UserSaid)]


def called(bodies: list[Body]) -> list[str]:
    """The ids of all calls, in order."""
    return [part.call_id for body in bodies if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, ToolCall)]


def returned(bodies: list[Body]) -> list[str]:
    """The call ids of all results, in order."""
    return [body.result.call_id for body in bodies if isinstance(body, ToolReturned)]


def own_ids(bodies: list[Body]) -> tuple[list[str], list[str]]:
    """The ids that all calls and all results have in the file they came from, each in order."""
    calls = [part for body in bodies if isinstance(body, ModelReplied) for part in body.parts if isinstance(part, ToolCall)]
    own = {call.call_id: call.given or call.call_id for call in calls}
    return [own[call.call_id] for call in calls], [own.get(call_id, call_id) for call_id in returned(bodies)]


def faults(home: Home, session: str, every: int = 1) -> list[str]:
    """What the providers would refuse of the views of a session, at every event or every so many."""
    encoders = [(each, Encoder(each, fetch=home.blobs.get)) for each in CARDS]
    projection = ViewProjection()
    found = []
    events = home.events(session)
    for event in events:
        projection.take(event)
        if event.seq % every and event.seq != len(events) - 1:
            continue
        for model, encoder in encoders:
            request = encoder.encode(projection.view)
            found += [f"{event.seq} {model.wire}: {fault}" for fault in check_request(model.wire, request.body)]
    return found


def check_repeat(form: Format, path: Path) -> Home:
    """Import twice, with the position and without: nothing changes."""
    home = Home()
    first = home.take(form, path)
    logs = home.logs()
    again = home.take(form, path)
    assert [done.counts.events for done in again] == [0 for _ in first]
    assert home.logs() == logs
    home.done.clear()
    assert [done.counts.events for done in home.take(form, path)] == [0 for _ in first]
    assert home.logs() == logs
    return home


def cuts(data: bytes, count: int = 5) -> Iterator[int]:
    """Some offsets at which a file may have ended before it grew: within lines and between them."""
    for number in range(1, count + 1):
        place = len(data) * number // (count + 1)
        yield place
        yield data.rfind(b"\n", 0, place) + 1


def check_growth(form: Format, path: Path, folder: Path, count: int = 5) -> None:
    """A file that is imported while it grows gives the same log as the whole file at once."""
    data = path.read_bytes()
    check_stages(form, folder / path.name, [data[:cut] for cut in cuts(data, count)], data, quiet=False)


def check_stages(form: Format, path: Path, stages: Iterable[bytes], whole: bytes, *, quiet: bool = True) -> list[Imported]:
    """A file that is imported at an earlier stage, and again when it is whole, gives the log of the whole file.

    Returns what the second imports did. A quiet file was last changed long ago.
    """

    def take(home: Home, data: bytes) -> list[Imported]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        if quiet:
            os.utime(path, (1, 1))
        return home.take(form, path)

    at_once, again = Home(), list[Imported]()
    take(at_once, whole)
    for stage in stages:
        grown = Home()
        take(grown, stage)
        again += take(grown, whole)
        assert grown.logs() == at_once.logs(), f"after {len(stage)} bytes"
    return again


def shown(home: Home, session: str) -> list[str]:
    """The texts that the model sees at the end of a session."""
    log = Log.open(home.store, session, FixedClock(1))
    return [text_of(item.content) for item in (*log.view.head, *log.view.items)]
