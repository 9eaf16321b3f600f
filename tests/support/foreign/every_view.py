"""Encodes the view at every event of every session at hand for all three wires, and says what a provider would refuse; run as a program."""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import msgspec
from corpus import CORPUS, GOLDEN
from msgspec import Struct
from readings import CARDS

from palimpsest.core.events import Event, ModelReplied
from palimpsest.core.items import Thinking
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.stores.home import FolderHome
from palimpsest.wire.encode import Encoder
from palimpsest.wire.wires import check_request

_PROCESSES = 2
_SHOWN = 5
_SEALED = (b'"signature":', b'"encrypted_content":', b'"data":')


class SourceCursor(Struct, frozen=True):
    """What was looked at in a session: each event, the requests that differed from the one before, and what is wrong with them."""

    session: str
    events: int
    requests: int
    faults: tuple[str, ...]


def take_all(home: FolderHome, paths: Sequence[Path]) -> list[str]:
    """Import every session below some paths; what could not be read is returned, one line each."""
    found = find_sources(FORMATS, paths)
    bad = [f"{each.where}: {each.why}" for each in found.skipped]
    for source in found.sources:
        done = import_session(format_named(source.format), source, home.store, home.blobs, home.clock)
        bad += [f"{each.where}: {each.why}" for each in done.problems]
    return bad


def views(log: Log) -> Iterator[tuple[Event, View]]:
    """Every event of a log with the view after it, on whichever branch it is; only where a branch begins anything is read twice."""
    projection = ViewProjection(reader=log.reader)
    for event in log.reader.run(log.reader.first, log.tip):
        if event.parent != projection.seq:
            projection.start_from(log.state_at(event.parent).view)
        projection.take(event)
        yield event, projection.view


def look(folder: Path, session: str) -> SourceCursor:
    """Check the request for each view of a session on each wire, unless it is the same as for the view before."""
    home = FolderHome(folder)
    encoders = [(card, Encoder(card, fetch=home.blobs.get)) for card in CARDS]
    last = [""] * len(encoders)
    events = requests = 0
    faults: list[str] = []
    with home.open(session, write=False) as log:
        for event, view in views(log):
            events += 1
            for number, (card, encoder) in enumerate(encoders):
                try:
                    request = encoder.encode(view)
                    if request.digest == last[number]:
                        continue
                    wrong = [*check_request(card.wire, request.body), *strange_seals(event, card.provider, request.body)]
                except Exception as error:  # noqa: BLE001 - one view that cannot be encoded must not hide the others
                    wrong = [f"{type(error).__name__}: {error}"]
                else:
                    last[number] = request.digest
                requests += 1
                faults += [f"event {event.seq}, {card.wire}: {fault}" for fault in wrong]
    return SourceCursor(session, events, requests, tuple(faults))


def strange_seals(event: Event, provider: str, body: bytes) -> Iterator[str]:
    """What another provider sealed in this very event and yet is sent."""
    for part in event.body.parts if isinstance(event.body, ModelReplied) else ():
        seal = part.signature if isinstance(part, Thinking) else None
        if seal is None or seal.provider == provider:
            continue
        # Only where seals stand: one that somebody blotted out may be what a text, a part of one or an id says elsewhere.
        value = msgspec.json.encode(seal.data)
        if any(field + value in body for field in _SEALED):
            yield f"a seal of {seal.provider} is sent to {provider}"


def main(words: Sequence[str]) -> int:
    """Look at the sessions below some paths, or at all that are at hand."""
    began = time.monotonic()
    paths = [Path(word) for word in words] or [path for path in (GOLDEN, CORPUS) if path.is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        home = FolderHome(Path(folder))
        for line in take_all(home, paths):
            print(f"not read: {line}")
        # The longest first, so that no process is left alone with one at the end.
        sessions = sorted(home.store.sessions(), key=lambda session: -home.store.path_of(session).stat().st_size)
        done: list[SourceCursor] = []
        with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
            for seen in pool.map(partial(look, home.folder), sessions):
                done.append(seen)
                counts = f"{seen.events:,} events, {seen.requests:,} requests, {len(seen.faults)} faults"
                print(f"{len(done)}/{len(sessions)} {seen.session}: {counts}", flush=True)
                for fault in seen.faults[:_SHOWN]:
                    print(f"    {fault}", flush=True)
    faults = sum(len(seen.faults) for seen in done)
    counts = f"{sum(seen.events for seen in done):,} events, {sum(seen.requests for seen in done):,} different requests, {faults} faults"
    print(f"{len(done)} sessions, {counts}, {time.monotonic() - began:.0f} seconds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
