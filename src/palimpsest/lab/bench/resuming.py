"""What it costs to take up a session again: from its checkpoint, after a crash, and from the log alone."""

import shutil
import time
from collections.abc import Iterator
from functools import partial

from palimpsest.core.events import ViewEdited
from palimpsest.core.log.log import CHECKPOINT_EVERY, Log
from palimpsest.core.tokens.budget import decide, used
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.bench.bars import Bar, bar, peer_of
from palimpsest.lab.bench.peers.agents import NAME, Agents
from palimpsest.lab.bench.room import MODEL, Room, side_by_side
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.wire.models.cards import card

_CARD = card(MODEL)
_BUDGET = palimpsest_budget(_CARD.window, _CARD.reply)


def measure_resuming(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`resume_*`."""
    peer = Agents.find(room)
    for length, events in room.sizes.lengths.items():
        name = f"resume_{length}"
        if name in wanted:
            room.tell(f"resuming after {events:,} events")
            (units,) = room.unit.of_timed(room.sizes.rounds, partial(resume, room, room.store, room.session(length)))
            yield bar(name, units, peer_of(NAME, peer and peer.resume(length)))
    if "resume_edited" in wanted:
        room.tell("resuming after an edit")
        _edit(room)
        (units,) = room.unit.of_timed(room.sizes.rounds, partial(resume, room, room.store, room.session("10k")))
        yield bar("resume_edited", units)
    if "resume_crashed" in wanted:
        room.tell("resuming after a crash")
        store = _crashed(room)
        (units,) = room.unit.of_timed(room.sizes.rounds, partial(resume, room, store, room.session("10k")))
        yield bar("resume_crashed", units)


def resume(room: Room, store: JsonlSessions, session: str) -> float:
    """Seconds from nothing to a view that is ready for the model; letting go is not counted."""
    begun = time.perf_counter()
    log = Log.open(store, session, room.clock)
    view = log.view
    decide(used(view, TokenCounter(palimpsest_size)), _BUDGET)
    ended = time.perf_counter()
    log.close()
    return ended - begun


def _edit(room: Room) -> None:
    """Let the log of middle length go on until its last event is an edit: then only what the edit itself counted is known."""
    log, material = room.writer("10k")
    with log:
        edited = False
        while not edited:
            for body in material.round():
                log.append(body)
                edited = isinstance(body, ViewEdited)


def _crashed(room: Room) -> JsonlSessions:
    """A copy of the log of middle length that goes on for as many events as its checkpoint can miss."""
    store = JsonlSessions(room.folder / "crashed")
    log, material = room.writer("10k")
    with log:
        log.checkpoint()
        left = material.seq + CHECKPOINT_EVERY
        _copy(room, store, ".checkpoint")
        while material.seq < left:
            for body in material.round():
                log.append(body)
        _copy(room, store, ".jsonl")
    return store


def measure_load(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`load`: a whole log without its sidecar, and the same lines decoded."""
    room.tell("loading without a checkpoint")
    room.session("10k")
    store = JsonlSessions(room.folder / "bare")
    _copy(room, store, ".jsonl")
    session = room.session("10k")
    path = store.path_of(session)
    loads = room.orjson.loads

    def decode() -> None:
        for line in path.read_bytes().splitlines():
            loads(line)

    opened: list[Log] = []
    whole, plain = side_by_side(max(3, room.sizes.rounds // 4), lambda: opened.append(Log.open(store, session, room.clock)), decode)
    for log in opened:
        log.close()
    peer = Agents.find(room)
    yield bar("load", whole / plain, peer_of(NAME, peer and peer.load()), load_ms=whole * 1000, decode_ms=plain * 1000)


def _copy(room: Room, store: JsonlSessions, suffix: str) -> None:
    session = room.session("10k")
    store.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(room.store.path_of(session).with_suffix(suffix), store.path_of(session).with_suffix(suffix))
