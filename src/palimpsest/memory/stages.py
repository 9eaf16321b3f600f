"""Both stages of two-stage memory at work: their run and job, claims, the update of the handbook, and the status."""

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct, json
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, NoModel, OverBudget, PalimpsestError, StoreError
from palimpsest.core.plans import Answer, Job, JobEnd, JobLimits, JobMoment, JobOutcome, JobPlan, JobSituation, Want
from palimpsest.core.text import counted
from palimpsest.exchange.codex.lines import stem_of
from palimpsest.memory.consolidation import changed_paths, decode_state, encode_state
from palimpsest.memory.folder_agent import MOST_TURNS, worked_on
from palimpsest.memory.handbook import (
    HANDBOOK,
    NOTES,
    RAW,
    SKILLS,
    SUMMARIES,
    SUMMARY,
    AdHocNote,
    StageFolder,
    StoredMemory,
    accepted_skills,
    ad_hoc_note,
    check_handbook,
    check_summary_page,
    raw_memories,
    rule_handbook,
    rule_summary,
    said_by_user,
    stage_folder,
    summary_file,
)
from palimpsest.memory.phase_one import SessionResult, skip_text, watermark_of
from palimpsest.memory.pipeline import SkipCounts, waiting_of
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.memory.shown import is_showable
from palimpsest.memory.stage_one import PURPOSE, prompt_text, read_rollout, stage_one, together, without_model
from palimpsest.memory.summaries import DEFAULT_LIMIT, RolloutUse, input_limit, pruned, read_session, selected
from palimpsest.memory.work import (
    DueSession,
    MemoryMeter,
    Ownership,
    PipelinePlaces,
    RunCost,
    due_sessions,
    kept_alive,
    metered,
    session_events,
)
from palimpsest.memory.work_store import Claim, JobKind, JobsDatabase, StageRows, Tokens
from palimpsest.policies.profile import StageRules
from palimpsest.stores.home import Home
from palimpsest.stores.memory_config import MemoryConfig
from palimpsest.wire.models import ModelCard, card

_MOST_NOTES: Final = 1_000


class PhaseUse(Struct, frozen=True):
    """The model of one phase: its card, the name for a request (empty: that of the session), its effort, and the budget of its calls."""

    card: ModelCard
    name: str
    effort: str
    meter: MemoryMeter

    @property
    def limit(self) -> int:
        """The most tokens of a session in one request."""
        return input_limit(self.card.window) if self.card.window else DEFAULT_LIMIT


class StagePlaces:
    """Everything of a home that the two stages read and write under the rules of a profile."""

    def __init__(self, home: Home, config: MemoryConfig, rules: StageRules) -> None:
        timed = replace(config, idle_hours=rules.idle_hours, age_days=rules.age_days)
        self.pipeline = PipelinePlaces(home, timed)
        self.home = self.pipeline.home
        self.config = timed
        self.rules = rules
        self.claims = self.pipeline.claims
        self.rows = StageRows(JobsDatabase(self.pipeline.folder), rules.root)
        self.folder: StageFolder = stage_folder(self.home.local_folder, rules.root)

    def memories(self) -> tuple[StoredMemory, ...]:
        """Return what stage one has kept, by session."""
        return tuple(StoredMemory(*row) for row in self.rows.all())  # type: ignore[arg-type]  # the columns are its fields

    def key_of(self, session: str) -> str:
        """Return the key of the stage-one job of a session."""
        return f"{self.rules.root}/{session}"

    def notes(self) -> tuple[AdHocNote, ...]:
        """Return the active notes of the home, which consolidation must not lose."""
        found: list[AdHocNote] = []
        for scope in self.pipeline.scopes():
            active = self.pipeline.notebook(scope).notes().active.values()
            found += [ad_hoc_note(note) for note in active if is_showable(note)]
        return tuple(sorted(found, key=lambda note: note.name)[:_MOST_NOTES])

    def phases(self, session_card: ModelCard, cards: Iterable[ModelCard], usd: float) -> tuple[PhaseUse, PhaseUse] | None:
        """Return the models of both phases, within a budget; `None` if it allows no dollar. Raises `BadInput` for an unknown model."""
        if usd <= 0:
            return None
        known, rules, config = tuple(cards), self.rules, self.config
        day = Tokens(config.stage_day_tokens_read, config.stage_day_tokens_written)
        chosen = (
            (_card_of(rules.phase_one_model, rules.phase_one_default, config.model, session_card, known), "low"),
            (_card_of(rules.phase_two_model, rules.phase_two_default, config.model, session_card, known), "medium"),
        )
        one, two = (
            PhaseUse(
                found,
                "" if found.name == session_card.name else found.name,
                effort if found.wire == "responses" and found.thinks else "",
                MemoryMeter(found, self.pipeline.spending, self.home.clock, usd=usd, day=day),
            )
            for found, effort in chosen
        )
        return one, two


def _card_of(given: str, default: str, setting: str, session_card: ModelCard, cards: tuple[ModelCard, ...]) -> ModelCard:
    """Return the card of a phase: that of the profile's setting, of `memory.model`, or of the default; else that of the session.

    The default is one of Codex's provider, so that it is asked only in sessions with a model of the same.
    """
    if given or setting:
        return card(given or setting, cards)
    if not default:
        return session_card
    try:
        found = card(default, cards)
    except BadInput:
        return session_card
    return found if found.provider == session_card.provider else session_card


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


NAME: Final = "pipeline"
_SECONDS: Final = 3_600.0


class RunStages:
    """Reads finished sessions and updates the handbook, once in each process that runs the session."""

    def __init__(self, memory: SessionMemory, rules: StageRules) -> None:
        self._memory = memory
        self._rules = rules
        self._has_run = False
        self.limits = JobLimits(memory.config.run_usd or None, rules.sessions + MOST_TURNS, _SECONDS)
        self.name = NAME
        self.moments: frozenset[JobMoment] = frozenset({"said"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps of one run; `None` if this process has run it already."""
        if self._has_run:
            return None
        self._has_run = True
        return self._steps(situation)

    def _steps(self, situation: JobSituation) -> Generator[Want, Answer, JobOutcome]:

        memory = self._memory
        places = StagePlaces(memory.home, memory.config, self._rules)
        usd = memory.config.run_usd
        uses = places.phases(memory.session.card, memory.home.cards(), usd)
        plan = stage_plan(places, by_model=uses is not None, current=situation.session)
        report = yield from stage_steps(places, plan, uses, usd)
        if report.is_idle:
            return None
        line = report_line(report)
        return JobEnd(why=line, notice=line if report.is_over_budget or report.has_failed else "")


def start_stages(memory: SessionMemory, rules: StageRules) -> Job:
    """Return the job that runs both stages beside the session of this memory."""
    return RunStages(memory, rules)


def stage_notice(memory: SessionMemory, rules: StageRules) -> str:
    """Return what the start of a session says before a model is asked: what may be read, with which models, and for how much."""
    usd = memory.config.run_usd
    try:
        uses = StagePlaces(memory.home, memory.config, rules).phases(memory.session.card, memory.home.cards(), usd)
    except PalimpsestError as error:
        return f"memory: finished sessions are not read: {error.message}"
    if uses is None:
        return "memory: finished sessions are read by their logs alone, for memory.run_usd is 0"
    one, two = (use.card.name for use in uses)
    work = f"up to {rules.sessions} finished sessions are read with {one}, and consolidated with {two}"
    return f"memory: {work}, for at most ${usd:g} (memory.run_usd)"


_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_LISTED: Final = 40
_INCREMENTAL: Final = (
    "Change what the inputs below affect and leave the rest byte for byte: little churn. Added, changed or removed since the last run:"
)


class Consolidation(Struct, frozen=True):
    """What became of stage two. `reason` says why it was skipped or failed, and what of the agent's result was refused."""

    status: Literal["done", "unchanged", "failed", "skipped"]
    reason: str = ""
    memories: int = 0
    is_over_budget: bool = False


class _Inputs(Struct, frozen=True):
    """What a consolidation is made of: the chosen memories, the notes, the files that are there, and the input files as they should be."""

    memories: tuple[StoredMemory, ...]
    notes: tuple[AdHocNote, ...]
    there: dict[str, str]
    files: dict[str, str]

    @property
    def summaries(self) -> frozenset[str]:
        """The names of the summary files."""
        return frozenset(f"{each.stem}.md" for each in self.memories)


def stage_two_steps(places: StagePlaces, use: PhaseUse | None, *, at_once: bool = False) -> Generator[Want, Answer, Consolidation]:
    """Consolidate, unless nothing changed, another process does it, or (under rules with a pause) it was done recently.

    A failure is recorded with its claim, not raised. What could be made without a model is there nevertheless.
    """
    root, claims = places.rules.root, places.claims
    row = claims.row(STAGE_TWO, root)
    if row is None or row.watermark <= row.success_watermark:
        if not _has_changed(places, "" if row is None else row.baseline):
            return Consolidation("unchanged")
        claims.enqueue(STAGE_TWO, root)
    claim = claims.claim_pending(STAGE_TWO, root, 0 if at_once else int(places.rules.cooldown_hours * _HOUR_MS))
    if not isinstance(claim, Claim):
        return Consolidation("skipped", skip_text(claim))
    with kept_alive(claims, claim, places.config.heartbeat_seconds) as owner:
        try:
            return (yield from _consolidated(places, claim, owner, use))
        except (OverBudget, NoModel) as error:
            claims.release(claim)
            return Consolidation("skipped", error.message, is_over_budget=isinstance(error, OverBudget))
        except PalimpsestError as error:
            claims.fail(claim, error.message)
            return Consolidation("failed", error.message)
        except BaseException:
            claims.release(claim)
            raise


def drop_lost(places: StagePlaces) -> None:
    """Delete the rows of sessions that were deleted, and under rules that forget the unused those without a use."""
    sessions = {stat.session for stat in places.home.store.stats()}
    rows = places.memories()
    gone = [each.session for each in rows if each.session not in sessions]
    if places.rules.unused_days:
        unused = int(places.rules.unused_days * _DAY_MS)
        gone += [each.session for each in pruned((_use_of(row) for row in rows), places.home.clock.now(), unused)]
    if gone:
        places.rows.drop(gone)
        places.claims.enqueue(STAGE_TWO, places.rules.root)


def _consolidated(places: StagePlaces, claim: Claim, owner: Ownership, use: PhaseUse | None) -> Generator[Want, Answer, Consolidation]:
    row = places.claims.row(STAGE_TWO, places.rules.root)
    known = decode_state("" if row is None else row.baseline)
    given = _inputs(places)
    forgotten = places.pipeline.forgotten_events()
    owner.prove()
    edited = places.folder.replace({**_outputs(given.there), **given.files}, given.there)
    start = {**_outputs(given.there), **given.files}
    if not given.memories and not given.notes:
        places.folder.replace({}, start)
        return _completed(places, claim, given, ())
    wrong: list[str] = [f"{path} was changed meanwhile" for path in edited]
    failure: PalimpsestError | None = None
    result = dict(start)
    # Notes alone need no agent.
    asks = use is not None and bool(given.memories)
    if use is not None and asks:
        try:
            work = yield from metered(
                worked_on(start, _prompt(places, given, known), PURPOSE, model=use.name, effort=use.effort), use.meter
            )
            result = work.files
            wrong += [] if work.is_complete else ["the agent did not end within its requests"]
        except PalimpsestError as error:
            failure = error
    if places.pipeline.forgotten_events() != forgotten:
        raise OverBudget("a note was forgotten meanwhile, so that the next run begins again", where=places.rules.root)
    wanted, refused = _accepted(places, given, start, result)
    wrong += refused if asks else []
    owner.prove()
    wrong += [f"{path} was changed meanwhile" for path in places.folder.replace(wanted, start)]
    if failure is not None:
        raise failure
    return _completed(places, claim, given, tuple(wrong))


def _completed(places: StagePlaces, claim: Claim, given: _Inputs, wrong: tuple[str, ...]) -> Consolidation:
    """End the job: with success, or with the reasons why parts of the result were not taken, so that it is tried again."""
    if wrong:
        reason = "; ".join(wrong)
        places.claims.fail(claim, reason)
        return Consolidation("failed", reason, len(given.memories))
    chosen = {each.session: each.source_at for each in given.memories}
    baseline = encode_state(places.folder.state())
    if not places.claims.complete(claim, baseline, also=lambda database: places.rows.mark_selected(database, chosen)):
        return Consolidation("failed", "another process took over this consolidation", len(chosen))
    return Consolidation("done", "", len(chosen))


def _accepted(places: StagePlaces, given: _Inputs, start: Mapping[str, str], result: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the files that take the place of the old, and why parts of the result do not: each part is judged by itself.

    A part that does not hold is that of before if that still holds, else what the inputs alone give.
    """
    versioned, tokens = not places.rules.has_raw, places.rules.summary_tokens
    wanted, wrong = dict(given.files), list[str]()
    handbook = result.get(HANDBOOK, "")
    if reason := check_handbook(handbook, given.summaries):
        wrong.append(reason)
        old = start.get(HANDBOOK, "")
        handbook = rule_handbook(given.memories) if check_handbook(old, given.summaries) else old
    if given.memories:
        wanted[HANDBOOK] = handbook
    said = "\n".join((*(each.user for each in given.memories), *(note.text for note in given.notes)))
    page, _ = said_by_user(result.get(SUMMARY, ""), said, _content_words)
    if reason := check_summary_page(page, versioned=versioned):
        wrong.append(reason)
        old, _ = said_by_user(start.get(SUMMARY, ""), said, _content_words)
        by_rules = rule_summary(given.memories, given.notes, versioned=versioned, tokens=tokens)
        page = by_rules if check_summary_page(old, versioned=versioned) else old
    wanted[SUMMARY] = page
    skills, refused = accepted_skills(result)
    return {**wanted, **skills}, [*wrong, *refused]


def _inputs(places: StagePlaces) -> _Inputs:
    memories, notes, there = _chosen(places), places.notes(), places.folder.read()
    versioned = not places.rules.has_raw
    files = {each.path: summary_file(each, versioned=versioned) for each in memories}
    files |= {f"{NOTES}/{note.name}.md": f"{note.text.strip()}\n" for note in notes}
    if places.rules.has_raw:
        files[RAW] = raw_memories(memories)
    return _Inputs(memories, notes, there, files)


def _chosen(places: StagePlaces) -> tuple[StoredMemory, ...]:
    """Return the memories that a consolidation reads: the newest, or under rules that forget the unused those of most use."""
    rows = [each for each in places.memories() if each.summary.strip()]
    if not places.rules.unused_days:
        return tuple(sorted(rows, key=lambda each: (each.source_at, each.session), reverse=True)[: places.rules.memories])
    unused = int(places.rules.unused_days * _DAY_MS)
    found = selected(map(_use_of, rows), places.home.clock.now(), unused, places.rules.memories)
    by_session = {each.session: each for each in rows}
    return tuple(by_session[each.session] for each in found)


def _prompt(places: StagePlaces, given: _Inputs, known: Mapping[str, str]) -> str:
    """Return the prompt of the agent: what the folder has, and what changed since it was consolidated last."""
    has_raw = places.rules.has_raw
    is_first = check_handbook(given.there.get(HANDBOOK, ""), given.summaries | _named(given.there)) != "" or not known
    now = places.folder.state(without=(HANDBOOK, SUMMARY, RAW))
    changed = changed_paths(encode_state({path: digest for path, digest in known.items() if path in now or _is_input(path)}), now)
    listed = [f"  - {path}{'' if path in now else ' (removed)'}" for path in changed if _is_input(path)]
    more = [f"  - … and {len(listed) - _LISTED:,} more"] if len(listed) > _LISTED else []
    news = "\n".join((*listed[:_LISTED], *more)) or "  - none; files were edited by hand, and these edits hold"
    changes = "Build the files from all inputs." if is_first else f"{_INCREMENTAL}\n{news}"
    inputs = (
        "`raw_memories.md`: the raw memories of finished sessions, latest first. Input, read only; begin here."
        if has_raw
        else "what changed since the last run, named below: begin there."
    )
    form = prompt_text("summary_form" if has_raw else "summary_form_v1").replace("{{tokens}}", f"{places.rules.summary_tokens:,}")
    texts = {"mode": "INIT" if is_first else "INCREMENTAL", "inputs": inputs, "changes": changes, "summary_form": form.strip()}
    prompt = prompt_text("consolidation")
    for key, text in texts.items():
        prompt = prompt.replace(f"{{{{{key}}}}}", text)
    return prompt


def _has_changed(places: StagePlaces, baseline: str) -> bool:
    """Whether notes or hand edits differ from what the last consolidation left; an empty memory has nothing to do."""
    given = _inputs(places)
    if not baseline and not given.memories and not given.notes and not given.there:
        return False
    wanted = {**_outputs(given.there), **given.files}
    return given.there != wanted or (not places.rules.has_raw and json.decode(baseline or "{}") != places.folder.state())


def _outputs(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path in (HANDBOOK, SUMMARY) or path.startswith(f"{SKILLS}/")}


def _named(files: Mapping[str, str]) -> frozenset[str]:
    return frozenset(path.rpartition("/")[2] for path in files if path.startswith(f"{SUMMARIES}/"))


def _is_input(path: str) -> bool:
    return path.startswith((f"{SUMMARIES}/", f"{NOTES}/"))


def _use_of(row: StoredMemory) -> RolloutUse:
    is_selected = row.selected_at == row.source_at
    return RolloutUse(row.session, row.stem, row.source_at, row.made_at, row.uses, row.last_used, is_selected=is_selected)


def _content_words(text: str) -> frozenset[str]:
    return frozenset(stems(words(text)))


# Sessions that one run reads side by side.
AT_ONCE: Final = 8


class StagePlan(Struct, frozen=True):
    """What a run would do: the sessions to be read, and why others are not."""

    sessions: tuple[DueSession, ...]
    skipped: SkipCounts


class StageReport(Struct, frozen=True):
    """What a run did."""

    sessions: tuple[SessionResult, ...] = ()
    consolidation: Consolidation = Consolidation("unchanged")
    skipped: SkipCounts = {}
    spent: RunCost = RunCost()

    @property
    def has_failed(self) -> bool:
        """Whether a session or the consolidation failed."""
        return self.consolidation.status == "failed" or any(each.status == "failed" for each in self.sessions)

    @property
    def is_over_budget(self) -> bool:
        """Whether something was left for later because a budget did not allow its requests."""
        return self.consolidation.is_over_budget or any(each.is_over_budget for each in self.sessions)

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.sessions and self.consolidation.status in ("unchanged", "skipped")


def stage_plan(places: StagePlaces, *, by_model: bool, everything: bool = False, current: str = "") -> StagePlan:
    """Return what a run would do now, without claiming or writing anything: at most as many sessions as the rules allow at a start."""
    found = due_sessions(places.pipeline, current=current, everything=everything)
    rows = {row.key: row for row in places.claims.rows() if row.kind == STAGE_ONE}
    now, counts = places.home.clock.now(), dict[str, int]()
    due: list[DueSession] = []
    for each in found.due:
        waiting = waiting_of(rows.get(places.key_of(each.session)), watermark_of(each, by_model=by_model), now)
        if waiting == "due" and (everything or len(due) < places.rules.sessions):
            due.append(each)
        else:
            kept_for = "later" if waiting == "due" else waiting
            counts[kept_for] = counts.get(kept_for, 0) + 1
    for reason in found.not_due.values():
        counts[reason] = counts.get(reason, 0) + 1
    return StagePlan(tuple(due), counts)


def stage_steps(
    places: StagePlaces, plan: StagePlan, uses: tuple[PhaseUse, PhaseUse] | None, usd: float = 0.0, *, at_once: bool = False
) -> Generator[Want, Answer, StageReport]:
    """Do both stages. A session that fails leaves the others alone, and stage two works with what there is."""
    drop_lost(places)
    one, two = (None, None) if uses is None else uses
    sessions = yield from together([stage_one_steps(places, due, one) for due in plan.sessions], AT_ONCE)
    if two is not None and one is not None:
        # Both stages share the budget of the run.
        two = replace(two, meter=two.meter.with_budget(max(0.0, usd - one.meter.spent.usd)))
    consolidation = yield from stage_two_steps(places, two, at_once=at_once)
    return StageReport(sessions, consolidation, plan.skipped, _spent(one, two))


def _spent(*uses: PhaseUse | None) -> RunCost:
    """Return what both stages have used together."""
    costs = [use.meter.spent for use in uses if use is not None]
    read, written = sum(each.read for each in costs), sum(each.written for each in costs)
    return RunCost(sum(each.calls for each in costs), read, written, sum(each.usd for each in costs))


def report_line(report: StageReport) -> str:
    """Return what a run did, in one line."""
    read = [each for each in report.sessions if each.status in ("done", "empty")]
    kept = sum(each.status == "done" for each in read)
    line = f"read {counted(len(read), 'finished session')}, kept {kept:,}"
    two = report.consolidation
    if two.status == "done":
        line += f", made the handbook of {counted(two.memories, 'session')}"
    reasons = [each.reason for each in report.sessions if each.status in ("failed", "skipped")]
    reasons += [two.reason] if two.status in ("failed", "skipped") and two.reason else []
    return f"{line}; {len(reasons)} not done: {reasons[0]}" if reasons else line


class HandbookStatus(Struct, frozen=True):
    """The state under a profile. `backlog` are sessions that a start would read, and `skipped` counts the reasons of the others."""

    folder: str
    backlog: int
    skipped: dict[str, int]
    memories: int
    files: int


def handbook_status(places: StagePlaces) -> HandbookStatus:
    """Return the state; nothing is claimed or written."""
    plan = stage_plan(places, by_model=places.config.jobs == "auto" and places.config.run_usd > 0)
    folder = places.folder
    return HandbookStatus(str(folder.folder), len(plan.sessions), plan.skipped, len(places.memories()), len(folder.read()))
