"""Phase two of one scope: consolidates its notes without a model, asks for wordings and summary if something changed, and checks both."""

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError, StoreError
from palimpsest.core.events import JobRan, NoteSaved
from palimpsest.core.policy import Answer, Want
from palimpsest.engine.memory.notebook import Notebook, Propose
from palimpsest.engine.memory.pipeline.changed_files import notes_with_changed_files
from palimpsest.engine.memory.pipeline.heartbeat import Ownership, kept_alive
from palimpsest.engine.memory.pipeline.metering import metered
from palimpsest.engine.memory.pipeline.note_uses import active_with_uses, write_uses
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.engine.memory.pipeline.scope_files import (
    ScopeRollouts,
    changed_paths,
    decode_state,
    delete_generated,
    encode_state,
    refuse_links,
    skill_names,
    state_of,
    with_generated,
    write_skills,
)
from palimpsest.engine.memory.pipeline.session_work import Announce, ModelUse, skip_text
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange
from palimpsest.memory.consolidate import ConsolidationStep, consolidate, expiries
from palimpsest.memory.note import Note
from palimpsest.memory.pipeline.phase_two import SkillFile, skills_of, summarised, wordings
from palimpsest.memory.pipeline.rollout_file import RolloutFile
from palimpsest.memory.pipeline.summary_file import RolloutPointer, SummaryInput, check_summary, structural_summary
from palimpsest.memory.reading import iso_time
from palimpsest.memory.recall.terms import stems, words
from palimpsest.memory.sessions.facts import SessionFacts
from palimpsest.memory.sessions.observations import OBSERVED_NAMES, observation_changes, observed_notes
from palimpsest.memory.weighing.duplicates import near_duplicates
from palimpsest.memory.weighing.importance import importance
from palimpsest.memory.weighing.proposed_rules import rule_steps, worded
from palimpsest.stores.notes.claims import Claim
from palimpsest.stores.notes.folder import SUMMARY_FILE
from palimpsest.stores.notes.rollouts import mark_selected

JOB: Final = "consolidate"
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_MOST_ROUNDS: Final = 5
_CHANGED_MEANWHILE: Final = "the note was changed meanwhile"
_facts = msgspec.json.Decoder(SessionFacts)


class ScopeResult(Struct, frozen=True):
    """What became of a scope. `changed` counts changes of notes, `read` the notes and summaries that were read."""

    scope: str
    status: Literal["done", "unchanged", "failed", "skipped"]
    reason: str = ""
    read: int = 0
    changed: int = 0
    is_over_budget: bool = False


class _ForgottenMeanwhileError(StoreError):
    """Something was forgotten after the input of a request was read, so that its answer may repeat it."""


class _Work(Struct, frozen=True):
    """What the steps of one consolidation share."""

    places: PipelinePlaces
    scope: str
    claim: Claim
    use: ModelUse | None
    owner: Ownership
    announce: Announce
    forgotten: frozenset[str]

    def prove(self) -> None:
        """Renew the lease before something is replaced. Raises `StoreError` if the job was taken over, or something was forgotten."""
        self.owner.prove()
        if self.places.forgotten_events() != self.forgotten:
            raise _ForgottenMeanwhileError("a note was forgotten meanwhile, so that the next run begins again", where=self.scope)


def scope_steps(
    places: PipelinePlaces, scope: str, use: ModelUse | None, announce: Announce, *, at_once: bool = False
) -> Generator[Want, Answer, ScopeResult]:
    """Consolidate a scope, unless nothing changed, another process does it, or it was done recently (not with `at_once`).

    A failure is recorded with its claim, not raised; the files that were there before stay.
    """
    has_changed = is_dirty(places, scope)
    row = places.claims.row("scope", scope)
    if row is None or row.watermark <= row.success_watermark:
        if not has_changed:
            return ScopeResult(scope, "unchanged")
        places.claims.enqueue("scope", scope)
    cooldown = 0 if at_once or not has_changed else int(places.config.cooldown_hours * _HOUR_MS)
    claim = places.claims.claim_pending("scope", scope, cooldown)
    if not isinstance(claim, Claim):
        return ScopeResult(scope, "skipped", skip_text(claim))
    if row is not None and not has_changed:
        # What was enqueued has been read by the run before.
        places.claims.complete(claim, row.baseline)
        return ScopeResult(scope, "unchanged")
    announce("claimed", scope)
    started = places.home.clock.now()
    with kept_alive(places.claims, claim, places.config.heartbeat_seconds) as owner:
        work = _Work(places, scope, claim, use, owner, announce, places.forgotten_events())
        try:
            result = yield from _consolidated(work)
        except (OverBudget, NoModel, _ForgottenMeanwhileError) as error:
            places.claims.release(claim)
            result = ScopeResult(scope, "skipped", error.message, is_over_budget=isinstance(error, OverBudget))
        except PalimpsestError as error:
            places.claims.fail(claim, error.message)
            result = ScopeResult(scope, "failed", error.message)
        except BaseException:
            places.claims.release(claim)
            raise
    record_run(places, scope, result, started)
    return result


def is_dirty(places: PipelinePlaces, scope: str) -> bool:
    """Return whether a scope differs from the state that its last consolidation left, or time has something to do there."""
    row = places.claims.row("scope", scope)
    state = state_of(places.scope_folder(scope))
    if row is None or not row.baseline:
        return bool(state) or bool(_due_steps(places, scope))
    return bool(changed_paths(row.baseline, state)) or bool(_due_steps(places, scope)) or _has_expired(places, scope)


def record_run(places: PipelinePlaces, scope: str, result: ScopeResult, started: int) -> None:
    """Record how a consolidation ended in the log of its scope; a reason for which it was skipped only once."""
    status: Literal["done", "failed", "skipped"] = "done" if result.status == "unchanged" else result.status
    why = result.reason or f"read {result.read}, changed {result.changed}"
    folder = places.note_folder(scope)
    runs = [event.body for event in folder.history() if isinstance(event.body, JobRan) and event.body.job == JOB]
    if status == "skipped" and runs and (runs[-1].status, runs[-1].why) == (status, why):
        return
    with folder.writing() as writer:
        writer.log.append(JobRan(JOB, writer.log.tip, status, why, max(0, places.home.clock.now() - started)))


def _consolidated(work: _Work) -> Generator[Want, Answer, ScopeResult]:
    places, scope, announce = work.places, work.scope, work.announce
    folder = places.scope_folder(scope)
    refuse_links(folder)
    changed, made = _without_model(work)
    rollouts = ScopeRollouts(places, scope)
    rollouts.synchronise()
    chosen = rollouts.selected()
    announce("consolidated", scope)
    state = state_of(folder)
    given = _summary_input(work, chosen)
    row = places.claims.row("scope", scope)
    known = decode_state("" if row is None else row.baseline)
    if given.is_empty:
        work.owner.prove()
        delete_generated(folder, known)
    else:
        reworded = yield from _written(work, given, chosen, known, made)
        changed += len(reworded)
        state = {**state, **{path: digest for path, digest in state_of(folder).items() if path in reworded}}
    rollouts.drop_unselected(chosen)
    announce("replaced", scope)
    selected = {file.session: file.updated for file in chosen.values()}
    # What others have written meanwhile was not read, so that it must count as a change the next time.
    baseline = encode_state(with_generated(state, state_of(folder)))
    if not places.claims.complete(work.claim, baseline, also=lambda database: mark_selected(database, scope, selected)):
        return ScopeResult(scope, "failed", "another process took over this consolidation")
    announce("completed", scope)
    return ScopeResult(scope, "done", "", len(given.notes) + len(chosen), changed)


def _without_model(work: _Work) -> tuple[int, frozenset[str]]:
    """Pick up edits, drop what was forgotten, write uses into files, settle, merge, expire, cluster and derive rules.

    Returns the number of changes, and the names of notes that stand for others since then.
    """
    places, scope = work.places, work.scope
    notebook = places.notebook(scope)
    notebook.pick_up_edits()
    gone = places.forgotten_events()
    dropped = [note.name for note in notebook.notes().active.values() if gone and set(note.evidence) <= gone]
    for name in dropped:
        notebook.forget(name, "consolidate", "it rests on events whose note was forgotten")
    expired = len(notebook.expire_quarantine(places.config.quarantine_days))
    write_uses(notebook)
    steps, made = 0, set[str]()
    # Observed, settled and derived in turn, until nothing changes; each round works on what the one before left.
    for _ in range(_MOST_ROUNDS):
        active = dict(notebook.notes().active)
        found = _due_steps(places, scope)
        if not found:
            break
        applied = _apply_steps(work, notebook, found, active)
        steps += len(applied)
        made |= {note.name for step in applied for note in step.saved if note.level != "fact"}
        work.announce("noted", scope)
    return steps + len(dropped) + expired, frozenset(made)


def _apply_steps(
    work: _Work, notebook: Notebook, steps: tuple[ConsolidationStep, ...], known: dict[str, Note]
) -> tuple[ConsolidationStep, ...]:
    """Apply steps that were made of the notes `known`, up to the first that another process or a person has made void meanwhile.

    Returns those that were applied. A note that was edited, corrected or forgotten since must not be replaced by what it was before.
    """
    for count, step in enumerate(steps):
        names = {note.name for note in (*step.saved, *step.past)}

        def propose(memory: Memory, _: str, step: ConsolidationStep = step, names: set[str] = names) -> AcceptedChange | RefusedChange:
            if any(memory.notes.get(name) != known.get(name) for name in names):
                return RefusedChange(_CHANGED_MEANWHILE)
            return AcceptedChange(step.saved, step.past, step.why)

        work.owner.prove()
        if isinstance(notebook.change(propose, "consolidate"), RefusedChange):
            return steps[:count]
        known.update((name, note) for name in names if (note := notebook.note(name)) is not None)
        for note in step.past:
            if all(each.name != note.name for each in step.saved):
                known.pop(note.name, None)
    return steps


def _due_steps(places: PipelinePlaces, scope: str) -> tuple[ConsolidationStep, ...]:
    """Return what consolidation without a model changes now: what the logs prove, then the facts, and the rules when those are settled."""
    active = active_with_uses(places.notebook(scope))
    now = _now(places)
    if observed := _observed(places, scope, active):
        return observed
    facts = [note for note in active.values() if note.level != "rule"]
    # Two statements that the user made explicitly, however they were typed, are ordered by time.
    corrections = frozenset(note.name for note in facts if note.trust == "stated" and note.by in ("user", "remember"))
    steps = consolidate(facts, now, _content_words, corrections=corrections).steps
    if settled := tuple(step for step in steps if not _expires_count(step)):
        return settled
    past = places.notebook(scope).notes().past.values()
    rules = tuple(ConsolidationStep(step.why, step.saved, step.past) for step in rule_steps(active.values(), past))
    # A rule lives as a fact does: its cases are past, so that nothing else ends it.
    rules = rules or tuple(expiries((note for note in active.values() if note.level == "rule"), now, _content_words))
    most = places.config.notes_a_scope
    return rules or _over_limit(list(active.values()), len(active) - most, now, most)


def _expires_count(step: ConsolidationStep) -> bool:
    """Whether a step retires a note that is counted from sessions: it lives as long as they do, however old they are."""
    counted = OBSERVED_NAMES.values()
    return not step.saved and all(note.name in counted and note.trust == "observed" and not note.superseded_by for note in step.past)


def _observed(places: PipelinePlaces, scope: str, active: Mapping[str, Note]) -> tuple[ConsolidationStep, ...]:
    """Return the changes of notes that are counted from the facts of all sessions of a scope."""
    stored = places.rows.facts(scope)
    if not stored and places.rows.all(scope):
        # The facts were lost with the database, and the sessions are still there to be counted again.
        return ()
    observed = observed_notes(_facts.decode(data) for data in stored)
    changes = observation_changes(places.memory_now(scope, active), observed)
    accepted = (change for change in changes if isinstance(change, AcceptedChange) and (change.saved or change.past))
    return tuple(ConsolidationStep(change.reason, change.saved, change.past) for change in accepted)


def _over_limit(notes: list[Note], excess: int, now: datetime, most: int) -> tuple[ConsolidationStep, ...]:
    """Retire the least important notes as long as a scope has more than `most`; pinned ones stay."""
    near = near_duplicates(notes, _content_words) if excess > 0 else {}
    weight = {note.name: importance(note, now, len(near.get(note.name, ()))) for note in notes}
    loose = sorted((note for note in notes if not note.pinned), key=lambda note: (weight[note.name], note.name))
    over = loose[: max(0, excess)]
    why = f"there are more than {most:,} notes, and it matters least"
    return tuple(ConsolidationStep(f"{note.name}: {why}", (), (replace(note, status="superseded"),)) for note in over)


def _has_expired(places: PipelinePlaces, scope: str) -> bool:
    """Whether a note has been in quarantine for too long without a promotion."""
    held = places.notebook(scope).notes().quarantine
    if not held:
        return False
    since = {event.body.name: event.at for event in places.note_folder(scope).history() if isinstance(event.body, NoteSaved)}
    oldest = places.home.clock.now() - places.config.quarantine_days * _DAY_MS
    return any(since.get(name, oldest + 1) <= oldest for name in held)


def _written(
    work: _Work, given: SummaryInput, chosen: dict[str, RolloutFile], known: dict[str, str], made: frozenset[str]
) -> Generator[Want, Answer, frozenset[str]]:
    """Ask for wordings, skills and the summary, or make the summary by structure, and replace the files.

    Returns the paths of notes that were worded by the model.
    """
    folder, use = work.places.scope_folder(work.scope), work.use
    if use is None:
        text, skills = structural_summary(given), None
        reworded = frozenset[str]()
    else:
        reworded = yield from _reworded(work, made, use)
        skills = yield from metered(skills_of(chosen, use.name), use.meter)
        work.announce("answered", work.scope)
        given = _summary_input(work, chosen, skills)
        text = yield from _asked_summary(work, given, use)
    work.prove()
    work.announce("proposed", work.scope)
    with work.places.note_folder(work.scope).writing() as writer:
        # Within the scope, because a note of it cannot be forgotten now.
        work.prove()
        if skills is not None:
            write_skills(folder, skills, known)
        writer.write_generated(SUMMARY_FILE, text)
    return reworded


def _asked_summary(work: _Work, given: SummaryInput, use: ModelUse) -> Generator[Want, Answer, str]:
    """Ask for the summary. If there is none, the old one stays, unless it refers to what no longer exists."""
    try:
        return (yield from metered(summarised(given, use.name), use.meter))
    except PalimpsestError:
        path = work.places.scope_folder(work.scope) / SUMMARY_FILE
        old = path.read_text(errors="replace") if path.is_file() else ""
        if old and check_summary(old, given.targets()):
            work.prove()
            with work.places.note_folder(work.scope).writing() as writer:
                writer.write_generated(SUMMARY_FILE, structural_summary(given))
        raise


def _reworded(work: _Work, names: frozenset[str], use: ModelUse) -> Generator[Want, Answer, frozenset[str]]:
    """Ask once for lines about the representatives and rules that this consolidation has made, and save those that hold.

    Returns the paths of the notes that have a new line.
    """
    notebook = work.places.notebook(work.scope)
    notes = notebook.notes()
    versions = {note.name: note for note in (*notes.past.values(), *notes.active.values())}
    made = [note for name, note in sorted(notes.active.items()) if name in names]
    groups = {note.name: (note, *(versions[name] for name in note.stands_for if name in versions)) for note in made}
    found = yield from metered(wordings(groups, _content_words, use.name), use.meter)
    for name, about in found.items():
        work.prove()
        notebook.change(_rewording(versions[name], about), "consolidate")
    return frozenset(f"notes/{name}.md" for name in found)


def _rewording(note: Note, about: str) -> Propose:
    """Return the change that gives a note another line, unless the note was changed or forgotten while the model was asked."""
    worded_note = AcceptedChange((replace(worded(note, about), rev=note.rev + 1),), reason="worded by a model")
    return lambda memory, _: worded_note if memory.notes.get(note.name) == note else RefusedChange(_CHANGED_MEANWHILE)


def _summary_input(work: _Work, chosen: dict[str, RolloutFile], skills: tuple[SkillFile, ...] | None = None) -> SummaryInput:
    active = work.places.notebook(work.scope).notes().active
    pointers = tuple(RolloutPointer(stem, file.title, iso_time(file.updated)[:10]) for stem, file in chosen.items())
    folder = work.places.scope_folder(work.scope)
    roots = tuple(dict.fromkeys(file.cwd for file in sorted(chosen.values(), key=lambda file: -file.updated) if file.cwd))
    notes = tuple(active[name] for name in sorted(active))
    names = skill_names(folder) if skills is None else tuple(skill.name for skill in skills)
    return SummaryInput(notes, pointers, names, notes_with_changed_files(notes, roots))


def _content_words(text: str) -> frozenset[str]:
    return frozenset(stems(words(text)))


def _now(places: PipelinePlaces) -> datetime:
    return datetime.fromtimestamp(places.home.clock.now() / 1000, UTC)
