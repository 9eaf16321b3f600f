"""Bars of resuming a session: from its checkpoint, after a crash, and from the log alone."""

import shutil
import time
from collections.abc import Iterator
from functools import partial

from palimpsest.core.events import ViewEdited
from palimpsest.core.log.log import CHECKPOINT_EVERY, Log
from palimpsest.core.tokens.budget import decide, used
from palimpsest.core.tokens.counter import TokenCounter
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.bench.bars import Bar, bar, peer_value
from palimpsest.lab.bench.peers.agents import NAME, Agents
from palimpsest.lab.bench.workspace import MODEL, BenchWorkspace, side_by_side
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.wire.models.cards import card

_CARD = card(MODEL)
_BUDGET = palimpsest_budget(_CARD.window, _CARD.reply)


def measure_resuming(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `resume_*`."""
    peer = Agents.find(workspace)
    for length, events in workspace.sizes.lengths.items():
        name = f"resume_{length}"
        if name in wanted:
            workspace.announce(f"resuming after {events:,} events")
            (units,) = workspace.unit.of_timed(
                workspace.sizes.rounds, partial(resume, workspace, workspace.store, workspace.session(length))
            )
            yield bar(name, units, peer_value(NAME, peer and peer.resume(length)))
    if "resume_edited" in wanted:
        workspace.announce("resuming after an edit")
        _extend_to_edit(workspace)
        (units,) = workspace.unit.of_timed(workspace.sizes.rounds, partial(resume, workspace, workspace.store, workspace.session("10k")))
        yield bar("resume_edited", units)
    if "resume_crashed" in wanted:
        workspace.announce("resuming after a crash")
        store = _copy_before_checkpoint(workspace)
        (units,) = workspace.unit.of_timed(workspace.sizes.rounds, partial(resume, workspace, store, workspace.session("10k")))
        yield bar("resume_crashed", units)


def resume(workspace: BenchWorkspace, store: JsonlSessions, session: str) -> float:
    """Return the seconds from opening a session to a view ready for the model; closing is not counted."""
    begun = time.perf_counter()
    log = Log.open(store, session, workspace.clock)
    view = log.view
    decide(used(view, TokenCounter(palimpsest_size)), _BUDGET)
    ended = time.perf_counter()
    log.close()
    return ended - begun


def _extend_to_edit(workspace: BenchWorkspace) -> None:
    """Extend the log of middle length until its last event is an edit, after which only the edit's own token counts are known."""
    log, rounds = workspace.writer("10k")
    with log:
        edited = False
        while not edited:
            for body in rounds.next_round():
                log.append(body)
                edited = isinstance(body, ViewEdited)


def _copy_before_checkpoint(workspace: BenchWorkspace) -> JsonlSessions:
    """Return a store with a copy of the log of middle length that is as far ahead of its checkpoint as possible."""
    store = JsonlSessions(workspace.folder / "crashed")
    log, rounds = workspace.writer("10k")
    with log:
        log.checkpoint()
        last_seq = rounds.seq + CHECKPOINT_EVERY
        _copy_file(workspace, store, ".checkpoint")
        while rounds.seq < last_seq:
            for body in rounds.next_round():
                log.append(body)
        _copy_file(workspace, store, ".jsonl")
    return store


def measure_load(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `load`: opening a whole log without its checkpoint, against decoding the same lines."""
    workspace.announce("loading without a checkpoint")
    workspace.session("10k")
    store = JsonlSessions(workspace.folder / "bare")
    _copy_file(workspace, store, ".jsonl")
    session = workspace.session("10k")
    path = store.path_of(session)
    loads = workspace.orjson.loads

    def decode() -> None:
        for line in path.read_bytes().splitlines():
            loads(line)

    opened: list[Log] = []
    whole, plain = side_by_side(
        max(3, workspace.sizes.rounds // 4), lambda: opened.append(Log.open(store, session, workspace.clock)), decode
    )
    for log in opened:
        log.close()
    peer = Agents.find(workspace)
    yield bar("load", whole / plain, peer_value(NAME, peer and peer.load()), load_ms=whole * 1000, decode_ms=plain * 1000)


def _copy_file(workspace: BenchWorkspace, store: JsonlSessions, suffix: str) -> None:
    session = workspace.session("10k")
    store.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(workspace.store.path_of(session).with_suffix(suffix), store.path_of(session).with_suffix(suffix))
