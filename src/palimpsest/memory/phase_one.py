"""Phase one of one session: claims it, reads it, makes its summary and notes, and completes the claim with the row of the summary."""

import sqlite3
from collections.abc import Callable, Generator
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError, StoreError
from palimpsest.core.plans import Answer, Want
from palimpsest.exchange.codex.lines import stem_of
from palimpsest.memory.extract import phase_one, without_model
from palimpsest.memory.extraction import apply_changes
from palimpsest.memory.notebook import Memories
from palimpsest.memory.observed import session_facts
from palimpsest.memory.store import USER_SCOPE
from palimpsest.memory.summaries import RolloutFile, encode_rollout, input_limit, read_session
from palimpsest.memory.work import DueSession, MemoryMeter, PipelinePlaces, metered, session_events
from palimpsest.memory.work_store import Claim, RolloutRow, SkipReason, delete_row, put_facts, put_row

Announce: TypeAlias = Callable[[str, str], None]
"""Called with a step and what it is about, after the step has taken place."""
SESSION: Final = "session"


class ModelUse(Struct, frozen=True):
    """The model that the pipeline asks: its name for `Ask` (empty: that of the session), its window, and the budget of its calls."""

    name: str
    window: int
    meter: MemoryMeter


class SessionResult(Struct, frozen=True):
    """What became of a session: `done` with a summary, `empty` without one, or why not. `saved` and `refused` count changes of notes."""

    session: str
    status: Literal["done", "empty", "failed", "skipped"]
    reason: str = ""
    scope: str = ""
    saved: int = 0
    refused: int = 0
    is_over_budget: bool = False


def watermark_of(due: DueSession, *, by_model: bool) -> int:
    """Return the watermark of a session: a summary by a model is newer than one of the same events that the log alone gave."""
    return due.updated * 2 + by_model


def session_steps(
    places: PipelinePlaces, due: DueSession, use: ModelUse | None, announce: Announce
) -> Generator[Want, Answer, SessionResult]:
    """Do phase one for a session, unless another process does or it is up to date. A failure is recorded with its claim, not raised."""
    claim = places.claims.claim(SESSION, due.session, watermark_of(due, by_model=use is not None))
    if not isinstance(claim, Claim):
        return SessionResult(due.session, "skipped", skip_text(claim))
    announce("claimed", due.session)
    try:
        return (yield from _claimed(places, due, claim, use, announce))
    except (OverBudget, NoModel) as error:
        places.claims.release(claim)
        return SessionResult(due.session, "skipped", error.message, is_over_budget=isinstance(error, OverBudget))
    except PalimpsestError as error:
        places.claims.fail(claim, error.message)
        return SessionResult(due.session, "failed", error.message)
    except BaseException:
        # Ctrl-C, or the end of the session beside which this runs: it was no try.
        places.claims.release(claim)
        raise


def _claimed(
    places: PipelinePlaces, due: DueSession, claim: Claim, use: ModelUse | None, announce: Announce
) -> Generator[Want, Answer, SessionResult]:
    scope = places.scope_of(due.cwd)
    # What is forgotten while the session is read is not left out of its summary, which then counts as older.
    began = places.home.clock.now()
    forgotten = places.forgotten_events()
    events = [event for event in session_events(places, due.session) if f"{due.session}:{event.seq}" not in forgotten]
    reading = read_session(due.session, events)
    facts = msgspec.json.encode(session_facts(due.session, events))
    announce("read", due.session)
    memories = Memories(places.notebook(USER_SCOPE), places.notebook(scope))
    if use is None:
        output = without_model(reading)
    else:
        notes = [note for _, note in memories.active()]
        output = yield from metered(phase_one(reading, notes, limit=input_limit(use.window), model=use.name), use.meter)
    announce("answered", due.session)
    if not places.claims.extend(claim):
        raise StoreError("another process took over this session", where=due.session)
    applied = apply_changes(memories, output.changes, output.read, "extract")
    scopes, counts = {event.scope for event in applied.events}, (applied.saved, len(applied.refused))
    announce("noted", due.session)
    if not output.body:
        _complete_empty(places, due, claim, facts, scopes)
        return SessionResult(due.session, "empty", "", scope, *counts)
    stem = stem_of(due.session, output.slug, reading.started)
    made_by: Literal["model", "structure"] = "model" if output.is_by_model else "structure"
    text = encode_rollout(RolloutFile(due.session, due.updated, reading.cwd, reading.branch, made_by, output.body))
    places.rollouts(scope).write(stem, text)
    announce("written", due.session)
    row = RolloutRow(due.session, scope, stem, due.updated, began)
    before = places.rows.of(due.session)

    def also(database: sqlite3.Connection) -> None:
        put_row(database, row)
        put_facts(database, due.session, scope, facts)
        for each in {scope, *scopes}:
            places.claims.enqueue_in(database, "scope", each)

    if not places.claims.complete(claim, also=also):
        if all(each.stem != stem for each in places.rows.of(due.session)):
            places.rollouts(scope).delete(stem)
        raise StoreError("another process took over this session", where=due.session)
    announce("completed", due.session)
    for old in before:
        if (old.scope, old.stem) != (scope, stem):
            places.rollouts(old.scope).delete(old.stem)
    return SessionResult(due.session, "done", "", scope, *counts)


def _complete_empty(places: PipelinePlaces, due: DueSession, claim: Claim, facts: bytes, scopes: set[str]) -> None:
    """Complete a session that gives no summary: an old one is deleted, and only then its scope has something to do."""
    old = places.rows.of(due.session)
    for each in old:
        places.rollouts(each.scope).delete(each.stem)

    def also(database: sqlite3.Connection) -> None:
        put_facts(database, due.session, places.scope_of(due.cwd), facts)
        changed = scopes | ({each.scope for each in old} if delete_row(database, due.session) else set())
        for scope in changed:
            places.claims.enqueue_in(database, "scope", scope)

    if not places.claims.complete(claim, also=also):
        raise StoreError("another process took over this session", where=due.session)


def skip_text(reason: SkipReason) -> str:
    """Return why a job was not claimed, for people."""
    match reason:
        case "up_to_date":
            return "up to date"
        case "running":
            return "another process works on it"
        case "retry_later":
            return "it failed, and is tried again later"
        case "retries_used_up":
            return "it failed too often; it is tried again when it has new events"
        case "cooldown":
            return "it was done recently"
