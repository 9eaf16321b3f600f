"""Stage one of one session at work: claims it, reads it, asks or goes by the log, and completes the claim with the row."""

import sqlite3
from collections.abc import Generator
from typing import Final

from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError, StoreError
from palimpsest.core.policy import Answer, Want
from palimpsest.engine.memory.pipeline.due_sessions import DueSession, session_events
from palimpsest.engine.memory.pipeline.metering import metered
from palimpsest.engine.memory.pipeline.session_work import SessionResult, skip_text, watermark_of
from palimpsest.engine.memory.stages.places import PhaseUse, StagePlaces
from palimpsest.foreign.codex.stems import stem_of
from palimpsest.memory.pipeline.transcript import read_session
from palimpsest.memory.stages.rollout_text import read_rollout
from palimpsest.memory.stages.stage_one import stage_one, without_model
from palimpsest.stores.notes.claims import Claim, JobKind

STAGE_ONE: Final[JobKind] = "memory_stage1"
STAGE_TWO: Final[JobKind] = "memory_consolidate_global"


def stage_one_steps(places: StagePlaces, due: DueSession, use: PhaseUse | None) -> Generator[Want, Answer, SessionResult]:
    """Do stage one for a session, unless another process does or it is up to date. A failure is recorded with its claim, not raised."""
    claim = places.claims.claim(STAGE_ONE, places.key_of(due.session), watermark_of(due, by_model=use is not None))
    if not isinstance(claim, Claim):
        return SessionResult(due.session, "skipped", skip_text(claim))
    try:
        return (yield from _claimed(places, due, claim, use))
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


def _claimed(places: StagePlaces, due: DueSession, claim: Claim, use: PhaseUse | None) -> Generator[Want, Answer, SessionResult]:
    began = places.home.clock.now()
    forgotten = places.pipeline.forgotten_events()
    events = [event for event in session_events(places.pipeline, due.session) if f"{due.session}:{event.seq}" not in forgotten]
    rollout = read_rollout(due.session, events)
    has_raw = places.rules.has_raw
    if use is None:
        output = without_model(read_session(due.session, events), has_raw=has_raw)
    else:
        steps = stage_one(rollout, limit=use.limit, model=use.name, effort=use.effort, has_raw=has_raw)
        output = yield from metered(steps, use.meter)
    if places.pipeline.forgotten_events() != forgotten:
        raise OverBudget("a note was forgotten meanwhile, so that the next run begins again", where=due.session)
    stem = stem_of(due.session, output.slug, rollout.started)
    row = (due.session, due.updated, output.raw, output.summary, output.slug, stem, rollout.cwd, rollout.branch, rollout.user, began)

    def also(database: sqlite3.Connection) -> None:
        if not output.summary:
            changed = places.rows.delete(database, due.session)
        else:
            places.rows.put(database, row)
            changed = True
        if changed:
            places.claims.enqueue_in(database, STAGE_TWO, places.rules.root)

    if not places.claims.complete(claim, also=also):
        raise StoreError("another process took over this session", where=due.session)
    return SessionResult(due.session, "done" if output.summary else "empty")
