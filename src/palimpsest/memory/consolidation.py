"""Phase two for one scope: consolidates its notes and their uses, finds cited files that changed, and writes generated files."""

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError, StoreError
from palimpsest.core.events import JobRan, NoteSaved
from palimpsest.core.plans import Answer, Want
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange, Tombstone
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.extract import SkillFile, skills_of, summarised, wordings
from palimpsest.memory.index_text import near_duplicates
from palimpsest.memory.note import Note, time_of
from palimpsest.memory.notebook import Notebook, Propose
from palimpsest.memory.observed import OBSERVED_NAMES, SessionFacts, observation_changes, observed_test_command
from palimpsest.memory.phase_one import Announce, ModelUse, skip_text
from palimpsest.memory.recall_store import NoteUse, opened
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.store import INDEX_FILE, SUMMARY_FILE, TOMBSTONES, all_tombstones
from palimpsest.memory.summaries import (
    RolloutFile,
    RolloutPointer,
    RolloutUse,
    SummaryInput,
    check_summary,
    decode_rollout,
    pruned,
    selected,
    structural_summary,
)
from palimpsest.memory.weigh import ConsolidationStep, consolidate, expiries, importance, rule_steps, worded
from palimpsest.memory.work import Ownership, PipelinePlaces, kept_alive, metered
from palimpsest.memory.work_store import Claim, RolloutRow, mark_selected
from palimpsest.stores.files import store_errors, write_private

# Bytes of a file that is compared; larger ones count as unchanged, because reading them takes too long.
_LARGEST: Final = 8 * 1024 * 1024
_DIGEST_LENGTH: Final = 12
_MOST_ROOTS: Final = 5


def notes_with_changed_files(notes: Iterable[Note], roots: tuple[str, ...]) -> frozenset[str]:
    """Return the names of notes that cite a file (`path@digest@commit`) which has other bytes now, or is gone.

    Paths are those below the first root that exists; without one nothing is known, and no note counts as changed.
    """
    root = next((Path(each) for each in roots[:_MOST_ROOTS] if Path(each).is_absolute() and Path(each).is_dir()), None)
    if root is None:
        return frozenset()
    digests: dict[str, str] = {}
    found = set[str]()
    for note in notes:
        for cited in note.files:
            path, _, rest = cited.partition("@")
            digest = rest.partition("@")[0]
            if path not in digests:
                digests[path] = _digest(root / path, root)
            if digest and digests[path] != digest and digests[path] != "?":
                found.add(note.name)
    return frozenset(found)


def _digest(path: Path, root: Path) -> str:
    """The digest of a file as a note cites it; empty if it is gone, `?` if it may not be read or is too large."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        return "?"
    try:
        if not real.is_file():
            return ""
        return "?" if real.stat().st_size > _LARGEST else sha256(real.read_bytes()).hexdigest()[:_DIGEST_LENGTH]
    except OSError:
        return "?"


def active_with_uses(notebook: Notebook) -> dict[str, Note]:
    """Return the active notes as they are weighed: with all uses, those in their files and those that were counted since."""
    return with_uses(notebook.notes().active, _counted(notebook))


def with_uses(notes: Mapping[str, Note], counted: Mapping[str, NoteUse]) -> dict[str, Note]:
    """Return notes by name with further uses added to those that they state."""
    return {name: _with_use(note, counted[name]) if name in counted else note for name, note in notes.items()}


def write_uses(notebook: Notebook) -> int:
    """Write what was counted into the files of the notes, under their revisions, and return how many notes it is.

    The counts leave the database afterwards: a process that is killed in between counts them twice, and loses none.
    """
    counted = _counted(notebook)
    active = notebook.notes().active
    saved = tuple(_with_use(active[name], use) for name, use in sorted(counted.items()) if name in active)
    if saved:
        notebook.apply(AcceptedChange(saved, reason="uses were counted"), "consolidate")
    if counted:
        with opened(notebook.index_file) as stored:
            stored.subtract_usage(notebook.scope, counted)
    return len(saved)


def _counted(notebook: Notebook) -> Mapping[str, NoteUse]:
    if not notebook.index_file.exists():
        return {}
    with opened(notebook.index_file) as stored:
        return stored.usage(notebook.scope)


def _with_use(note: Note, use: NoteUse) -> Note:
    return replace(note, uses=note.uses + use.uses, shown=note.shown + use.shown, last_used=max(note.last_used, use.last_used))


_SKILLS: Final = "skills"
_INPUT_FOLDERS: Final = ("notes", "rollouts")
_INPUT_FILES: Final = (TOMBSTONES, SUMMARY_FILE, INDEX_FILE)
_SCOPE_DAY_MS: Final = 86_400_000
_MOST_SKILLS: Final = 50


def state_of(folder: Path) -> Mapping[str, str]:
    """Return the digests of what a consolidation reads and writes, by path in the folder; logs, past versions and indexes do not count."""
    found: dict[str, str] = {}
    for path in (*(folder / name for name in _INPUT_FILES), *_files(folder, _INPUT_FOLDERS), *(folder / _SKILLS).glob("*/SKILL.md")):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(handle, "rb") as file:
            found[str(path.relative_to(folder))] = sha256(file.read()).hexdigest()[:16]
    return found


def with_generated(read: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the state that was read, with the generated files as they are now; what is gone now is left out."""
    generated = {path: digest for path, digest in now.items() if path in (SUMMARY_FILE, INDEX_FILE) or path.startswith(_SKILLS)}
    return {path: digest for path, digest in read.items() if path in now} | generated


def encode_state(state: Mapping[str, str]) -> str:
    """Return a state as text, equal for equal states."""
    return msgspec.json.encode(dict(sorted(state.items()))).decode()


def decode_state(text: str) -> dict[str, str]:
    """Return the state that a text states; an empty one if it states none."""
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError:
        return {}


def changed_paths(baseline: str, state: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths that were added, changed or deleted since a baseline, sorted; all of them if it is none."""
    before = decode_state(baseline)
    return tuple(sorted(path for path in {*before, *state} if before.get(path) != state.get(path)))


def refuse_links(folder: Path) -> None:
    """Raise `StoreError` if there is a link in the folder of a scope: what is written through it would land elsewhere."""
    for place in (folder, folder / _SKILLS, folder / "rollouts", folder / "notes"):
        if place.is_symlink():
            raise StoreError("this is a link, so that nothing is written here; replace it by a folder", where=str(place))
    for path in (folder / SUMMARY_FILE, folder / INDEX_FILE, *_files(folder, ("rollouts",)), *(folder / _SKILLS).glob("*")):
        if path.is_symlink():
            raise StoreError("this is a link, so that it is not replaced; delete it", where=str(path))


class ScopeRollouts:
    """The summaries of a scope: brought in line with their sessions, rows and uses, and selected for a consolidation."""

    def __init__(self, places: PipelinePlaces, scope: str) -> None:
        self._places = places
        self._scope = scope
        self._files = places.rollouts(scope)

    def synchronise(self) -> int:
        """Bring files and rows in line, and delete what is stale. Returns how many files went.

        A file without a row is deleted, unless its session is being read right now.
        """
        places, texts = self._places, self._files.read()
        rows = {row.stem: row for row in places.rows.all(self._scope)}
        self._adopt(texts, rows)
        stale = {each.session for each in pruned(map(_use, rows.values()), places.home.clock.now(), self._unused_ms)}
        gone = [row for row in rows.values() if row.stem not in texts or row.session in stale]
        places.rows.drop(row.session for row in gone)
        kept = set(rows) - {row.stem for row in gone}
        orphans = [stem for stem, text in texts.items() if stem not in kept and not self._is_being_read(text)]
        for stem in orphans:
            self._files.delete(stem)
        return len(orphans)

    def selected(self) -> dict[str, RolloutFile]:
        """Return the summaries that a consolidation reads, by stem, in the order of their sessions; the others are deleted."""
        places, texts = self._places, self._files.read()
        rows = places.rows.all(self._scope)
        uses = [_use(row) for row in rows if row.stem in texts]
        chosen = selected(uses, places.home.clock.now(), self._unused_ms, places.config.most_sessions)
        decoded = {each.stem: decode_rollout(texts[each.stem]) for each in chosen}
        return {stem: file for stem, file in decoded.items() if file is not None}

    def drop_unselected(self, chosen: Mapping[str, RolloutFile]) -> None:
        """Delete the summaries beyond the most that a scope keeps; their sessions stay, and are not summarised again."""
        over = [row for row in self._places.rows.all(self._scope) if row.stem not in chosen]
        if len(over) + len(chosen) > self._places.config.most_sessions:
            self._places.rows.drop(row.session for row in over)
            for row in over:
                self._files.delete(row.stem)

    @property
    def _unused_ms(self) -> int:
        return int(self._places.config.unused_days * _SCOPE_DAY_MS)

    def _adopt(self, texts: Mapping[str, str], rows: dict[str, RolloutRow]) -> None:
        """Make rows for files that have none although no job made them, as after the database was deleted."""
        found: list[RolloutRow] = []
        for stem, text in texts.items():
            file = decode_rollout(text) if stem not in rows else None
            if file is not None and self._places.claims.row("session", file.session) is None:
                found.append(RolloutRow(file.session, self._scope, stem, file.updated, self._places.home.clock.now()))
        if found:
            self._places.rows.adopt(found)
            rows.update((row.stem, row) for row in self._places.rows.all(self._scope))

    def _is_being_read(self, text: str) -> bool:
        file = decode_rollout(text)
        row = None if file is None else self._places.claims.row("session", file.session)
        return row is not None and row.status == "running" and row.lease_until > self._places.home.clock.now()


class LostSessions(Struct, frozen=True):
    """What is kept of sessions that were deleted, and summaries that were made before something in them was forgotten.

    `facts` are the sessions with facts that no longer exist, and `scopes` all scopes that lose something.
    """

    deleted: tuple[RolloutRow, ...]
    outdated: tuple[RolloutRow, ...]
    facts: tuple[str, ...]
    scopes: frozenset[str]


def lost_sessions(places: PipelinePlaces) -> LostSessions:
    """Return what must be deleted before sessions are read."""
    rows, facts = places.rows.all(), places.rows.fact_sessions()
    sessions = {stat.session for stat in places.home.store.stats()} if rows or facts else set[str]()
    forgotten = _forgotten_sessions(all_tombstones(places.folder))
    outdated = tuple(row for row in rows if row.session in sessions and row.made_at <= forgotten.get(row.session, -1))
    deleted = tuple(row for row in rows if row.session not in sessions)
    gone = tuple(session for session in facts if session not in sessions)
    scopes = frozenset(row.scope for row in (*deleted, *outdated)) | {facts[session] for session in gone}
    return LostSessions(deleted, outdated, gone, scopes)


def drop_lost(places: PipelinePlaces) -> None:
    """Delete what `lost_sessions` names. Sessions that still exist are read once more."""
    lost = lost_sessions(places)
    for row in (*lost.deleted, *lost.outdated):
        places.rollouts(row.scope).delete(row.stem)
    if lost.scopes:
        places.claims.reset("session", (*lost.facts, *(row.session for row in (*lost.deleted, *lost.outdated))))
        places.rows.drop(row.session for row in (*lost.deleted, *lost.outdated))
        places.rows.drop_facts(lost.facts)


def _forgotten_sessions(stones: Iterable[Tombstone]) -> dict[str, int]:
    """The last time at which something of a session was forgotten, in milliseconds, by session."""
    newest: dict[str, int] = {}
    for stone in stones:
        # Tombstones state whole seconds.
        at = int(time_of(stone.at).timestamp() * 1_000) + 999
        for session in {each.rpartition(":")[0] for each in stone.evidence}:
            newest[session] = max(at, newest.get(session, 0))
    return newest


def write_skills(folder: Path, skills: tuple[SkillFile, ...], known: Mapping[str, str]) -> None:
    """Replace the proposed skills of a scope. One that a person changed since the last consolidation (`known` digests) is left alone."""
    place = folder / _SKILLS
    wanted = {skill.name: skill.text for skill in skills}
    for name in _skill_names(folder):
        path = place / name / "SKILL.md"
        is_ours = known.get(f"{_SKILLS}/{name}/SKILL.md") == sha256(path.read_bytes()).hexdigest()[:16]
        if is_ours and name not in wanted:
            with store_errors(path, "delete"):
                path.unlink()
                path.parent.rmdir()
        elif not is_ours:
            wanted.pop(name, None)
    for name, text in wanted.items():
        with store_errors(place / name, "create"):
            (place / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = place / name / "SKILL.md"
        if not path.is_file() or path.read_bytes() != text.encode():
            write_private(path, text.encode())


def skill_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the proposed skills of a scope."""
    return tuple(_skill_names(folder))


def delete_generated(folder: Path, known: Mapping[str, str]) -> None:
    """Delete what was generated, because nothing is left that it could be made of."""
    write_skills(folder, (), known)
    for name in (SUMMARY_FILE, INDEX_FILE):
        with store_errors(folder / name, "delete"):
            (folder / name).unlink(missing_ok=True)


def _skill_names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / _SKILLS).glob("*/SKILL.md") if path.is_file())[:_MOST_SKILLS]


def _files(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        yield from sorted((folder / name).glob("*.md"))


def _use(row: RolloutRow) -> RolloutUse:
    return RolloutUse(
        row.session, row.stem, row.source_at, row.made_at, row.uses, row.last_used, is_selected=row.selected_at == row.source_at
    )


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
    return not step.saved and all(note.name in OBSERVED_NAMES and note.trust == "observed" and not note.superseded_by for note in step.past)


def _observed(places: PipelinePlaces, scope: str, active: Mapping[str, Note]) -> tuple[ConsolidationStep, ...]:
    """Return the changes of notes that are counted from the facts of all sessions of a scope."""
    stored = places.rows.facts(scope)
    if not stored and places.rows.all(scope):
        # The facts were lost with the database, and the sessions are still there to be counted again.
        return ()
    observed = observed_test_command(_facts.decode(data) for data in stored)
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
