"""Background jobs of memory in a session, and the job that stores what the user asks to remember."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palimpsest.agent.agent import Parts
from palimpsest.core.events import Event
from palimpsest.core.items import seq_of
from palimpsest.core.plans import Job, JobEnd, JobLimits, JobMoment, JobPlan, JobSituation, JobSteps, path_events
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.policies.profile import Profile
from palimpsest.stores.memory_config import MemoryConfig
from palimpsest.stores.sessions import ResultFiles

if TYPE_CHECKING:
    from palimpsest.memory.evidence import UserStatement
    from palimpsest.memory.notebook import Memories

_OWN_FOLDER: Final = "running-notes"
_CLAUDE_FOLDER: Final = "session-memory/config"


def memory_jobs(memory: SessionMemory, parts: Parts, *, goes_on: bool = True) -> tuple[Job, ...]:
    """Return the jobs of memory of an agent with these parts; none in a sub-agent, and none under a profile without memory.

    In a session that ends with its turn (`goes_on` is false) there are only those that need no model, unless the profile finishes them:
    the others would be cancelled at once, and the pipeline reads the session later.
    """
    names = memory_job_names(memory.config, memory.session.profile, goes_on=goes_on)
    if memory.session.log.opened.opener is not None or memory.home.local_folder is None:
        return ()
    jobs = {
        "remember": _statements,
        "extract_notes": _extraction,
        "running_notes": _running_notes,
        "note_uses": _uses,
        "past_sessions": _past_sessions,
        "pipeline": _pipeline,
    }
    made = (jobs[name](memory, memory.home.local_folder, parts) for name in names)
    return tuple(job for job in made if job is not None)


def memory_job_names(config: MemoryConfig, profile: Profile, *, goes_on: bool = True) -> tuple[str, ...]:
    """Return the names of the jobs of memory that the settings and a profile turn on, in the order in which they start."""
    if not config.use:
        return ()
    may_end = goes_on or profile.memory.finishes
    asks = may_end and config.jobs == "auto"
    # Notes that were asked for by name get a run that says why there are none.
    notes = (asks and config.running_notes != "off") or (may_end and config.running_notes == "on")
    wanted = (
        ("remember", profile.memory.remembers),
        ("extract_notes", profile.memory.extracts and asks and config.extract_every > 0),
        ("running_notes", profile.memory.takes_notes and notes),
        ("note_uses", profile.notes.head != "nothing" and profile.notes.folder == "home"),
        ("past_sessions", profile.notes.head != "nothing" and goes_on),
        ("pipeline", _reads_finished(config, profile, goes_on=goes_on)),
    )
    return tuple(name for name, is_on in wanted if is_on)


def stage_notices(memory: SessionMemory | None, *, goes_on: bool) -> tuple[str, ...]:
    """Return what the start of a session says of two-stage memory before a model is asked; nothing if it is off."""
    if memory is None or memory.session.log.opened.opener is not None:
        return ()
    profile = memory.session.profile
    stages = profile.memory.stages
    if stages is None or not _reads_finished(memory.config, profile, goes_on=True):
        return ()
    from palimpsest.memory.stages import stage_notice  # off by default, and a start is measured in milliseconds

    waits = "" if goes_on else f"; the end waits for at most {memory.config.end_seconds:g} seconds (memory.end_seconds)"
    return (f"{stage_notice(memory, stages)}{waits}",)


def _reads_finished(config: MemoryConfig, profile: Profile, *, goes_on: bool) -> bool:
    """Whether finished sessions are read: in two stages from every start on, else beside a session that goes on."""
    rules = profile.memory
    if not rules.summarises or config.jobs != "auto" or not config.sessions_per_start:
        return False
    return goes_on if rules.stages is None else rules.stages.sessions > 0


def _statements(memory: SessionMemory, _: Path, __: Parts) -> Job:

    return NoteStatements(lambda: memory.memories)


def _extraction(memory: SessionMemory, home: Path, parts: Parts) -> Job | None:
    from palimpsest.memory.extraction import ExtractNotes
    from palimpsest.memory.work import day_meter

    meter = day_meter(home / "memory", memory.home.clock, memory.config)
    workspace = parts.toolbox.workspace
    if not memory.in_files:
        return ExtractNotes(lambda: memory.memories, meter, memory.config, workspace.root, home / "memory", workspace.extra)
    if memory.topics is None:
        return None
    from palimpsest.memory.file_extraction import FileExtraction

    fork = FileExtraction(parts, memory.topics, meter, memory.config.model)
    fork.grant()
    return ExtractNotes(
        lambda: memory.memories, meter, memory.config, workspace.root, memory.topics.path, workspace.folders[1:], by_files=fork.steps
    )


def _pipeline(memory: SessionMemory, _: Path, __: Parts) -> Job:
    stages = memory.session.profile.memory.stages
    if stages is not None:
        from palimpsest.memory.stages import start_stages

        return start_stages(memory, stages)
    from palimpsest.memory.pipeline import start_pipeline  # SQLite; as above

    return start_pipeline(memory)


def _past_sessions(memory: SessionMemory, home: Path, _: Parts) -> Job:
    from palimpsest.memory.session_index import IndexPastSessions

    return IndexPastSessions(memory.home, home)


class CountUses(Struct, frozen=True):
    """Adds to `shown` of each note that a prompt recalled, and to `uses` of each note or summary of a session that a reply cites.

    A reply that cites one several times counts once. The counts are kept beside the notes and written into their files by consolidation
    only, so that reading a note does not change it.
    """

    memory: SessionMemory
    limits: JobLimits = JobLimits(calls=0, seconds=30.0)
    name: str = "note_uses"
    moments: frozenset[JobMoment] = frozenset({"turn_ends", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return steps that read the events since the last run; `None` if there are no notes and no summaries."""
        if not self.memory.is_used():
            return None
        from palimpsest.memory.note_usage import count_uses

        return count_uses(self.memory, situation)


def _uses(memory: SessionMemory, _: Path, __: Parts) -> Job:
    return CountUses(memory)


def _running_notes(memory: SessionMemory, home: Path, _: Parts) -> Job | None:
    from palimpsest.memory.running_notes import FILE, TakeNotes
    from palimpsest.memory.work import day_meter

    session = memory.session
    files = memory.home.store.result_files(session.log.session)
    if not isinstance(files, ResultFiles):
        return None
    meter = day_meter(home / "memory", memory.home.clock, memory.config)
    from palimpsest.memory.topic_place import claude_folder

    folders = (home / _OWN_FOLDER, *((claude_folder() / _CLAUDE_FOLDER,) if session.profile.program == "claude-code" else ()))
    return TakeNotes(meter, memory.config, lambda: session.profile, files.folder / FILE, folders)


NAME: Final = "remember"
# A word that such a message has in its first characters; `memory.evidence` reads its form.
COMMANDS: Final = ("remember", "记住", "記住")
_BEGINNING: Final = 80
_LIMITS: Final = JobLimits(calls=0, seconds=30.0)


@dataclass(frozen=True, slots=True)
class NoteStatements:
    """Notes messages of the form `remember: …` or 记住：…, in the words of the user, also if jobs that ask a model are off."""

    memories: "Callable[[], Memories]"
    limits: JobLimits = _LIMITS
    name: str = NAME
    moments: frozenset[JobMoment] = frozenset({"said", "session_ends"})

    def plan(self, situation: JobSituation) -> JobPlan:
        """Return the steps if a message since the cursor begins with a command; `None` if there is nothing to note."""
        # Of the others nothing is read, so that a long session costs no more than a short one.
        begun = [seq_of(each.id) for each in situation.evidence.user_messages if _may_be_command(each.opening)]
        new = [seq for seq in begun if seq > situation.job.cursor]
        return self._steps(situation, new) if new else None

    def _steps(self, situation: JobSituation, messages: Sequence[int]) -> JobSteps:
        from palimpsest.memory.evidence import statements  # most sessions have no such message

        events: list[Event] = []
        for seq in messages:
            events += yield from path_events(situation, seq, seq)
        found = tuple(statements(situation.session, events))
        return JobEnd(commit=partial(self._noted, found)) if found else None

    def _noted(self, found: "Sequence[UserStatement]") -> JobEnd:
        from palimpsest.memory.extraction import apply_changes

        sources = tuple(each.source for each in found)
        applied = apply_changes(self.memories(), (each.change() for each in found), sources, "remember")
        why = "; ".join(applied.refused)
        return JobEnd(applied.events, why, notice=f"not noted: {why}" if why else "")


def _may_be_command(opening: str) -> bool:
    beginning = opening.lstrip()[:_BEGINNING].lower()
    return any(command in beginning for command in COMMANDS)
