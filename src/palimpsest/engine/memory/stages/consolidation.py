"""Stage two at work: brings the folder in line with the rows, lets an agent update the handbook, and checks each part of its result."""

from collections.abc import Generator, Mapping
from typing import Final, Literal

from msgspec import Struct, json

from palimpsest.core.errors import NoModel, OverBudget, PalimpsestError
from palimpsest.core.policy import Answer, Want
from palimpsest.engine.memory.pipeline.heartbeat import Ownership, kept_alive
from palimpsest.engine.memory.pipeline.metering import metered
from palimpsest.engine.memory.pipeline.scope_files import changed_paths, decode_state, encode_state
from palimpsest.engine.memory.pipeline.session_work import skip_text
from palimpsest.engine.memory.stages.places import PhaseUse, StagePlaces
from palimpsest.engine.memory.stages.session_stage import STAGE_TWO
from palimpsest.memory.pipeline.selection import RolloutUse, pruned, selected
from palimpsest.memory.recall.terms import stems, words
from palimpsest.memory.stages.folder_agent import worked_on
from palimpsest.memory.stages.handbook import (
    HANDBOOK,
    NOTES,
    RAW,
    SKILLS,
    SUMMARIES,
    SUMMARY,
    AdHocNote,
    StoredMemory,
    accepted_skills,
    check_handbook,
    check_summary_page,
    raw_memories,
    rule_handbook,
    rule_summary,
    said_by_user,
    summary_file,
)
from palimpsest.memory.stages.stage_one import PURPOSE, prompt_text
from palimpsest.stores.notes.claims import Claim

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
