"""Cursors of background jobs along the current path: how far each job has worked, and how its last run ended."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, TypeAlias

from msgspec.structs import force_setattr, replace

from palimpsest.core.events import Event
from palimpsest.core.events.calls import CallStarted, Failed, Interrupted, ModelReplied
from palimpsest.core.events.records import JobRan, Noticed, Titled
from palimpsest.core.items import EMPTY_MAPPING, Value, frozen
from palimpsest.core.projections.projection import Scope, StateProjection

_PREFIX: Final = "job:"
JobStatus: TypeAlias = Literal["", "done", "failed", "skipped", "cancelled"]
"""How the last run of a job ended; empty if it never ran."""


def job_purpose(job: str) -> str:
    """Return the purpose of the model calls of a job, by which the ledger accounts for them."""
    return f"{_PREFIX}{job}"


def is_job_purpose(purpose: str) -> bool:
    """Whether a purpose is that of the calls of a job."""
    return purpose.startswith(_PREFIX)


class JobState(Value, frozen=True):
    """What the log says about one job.

    `cursor` is the last event that it has worked on, -1 before its first run that ended well. `at` is the time of its last recorded run,
    in milliseconds, and `took_ms` its duration. `failures` are in a row. `repeats` counts the runs that ended well since the conversation
    last went on.
    """

    cursor: int = -1
    at: int | None = None
    status: JobStatus = ""
    why: str = ""
    took_ms: int = 0
    failures: int = 0
    repeats: int = 0


NEVER_RAN_JOB: Final = JobState()


class JobStates(Value, frozen=True):
    """The jobs of a session by name. `newest` is the newest event of the conversation: one that no job caused."""

    newest: int = -1
    jobs: Mapping[str, JobState] = EMPTY_MAPPING

    def __post_init__(self) -> None:
        force_setattr(self, "jobs", frozen(self.jobs))

    def of(self, job: str) -> JobState:
        """Return the state of a job, also of one that never ran."""
        return self.jobs.get(job, NEVER_RAN_JOB)

    def lag(self, job: str) -> int:
        """Return how far the cursor of a job is behind the conversation, in events; 0 if there is nothing new for it."""
        return max(0, self.newest - self.of(job).cursor)


class JobCursors(StateProjection):
    """Projection of the states of jobs. It follows the path: after a rewind, jobs go back to the cursors that they had there."""

    name: ClassVar = "jobs"
    version: ClassVar = 1
    watches: ClassVar = None
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = JobStates

    __slots__ = ("_jobs", "_newest", "_value")

    def __init__(self) -> None:
        self.start_from(JobStates())

    def start_from(self, states: JobStates) -> None:
        """Replace the states."""
        self._jobs = dict(states.jobs)
        self._newest = states.newest
        self._value: JobStates | None = states

    def take(self, event: Event) -> None:
        """Apply one event: the end of a run moves the cursor of its job; other events are news for jobs, unless a job caused them."""
        body = event.body
        if isinstance(body, JobRan):
            self._jobs[body.job] = _after(self._jobs.get(body.job, NEVER_RAN_JOB), body, event.at)
        elif _is_by_job(event):
            return
        else:
            self._newest = event.seq
            for name, state in self._jobs.items():
                if state.repeats:
                    self._jobs[name] = replace(state, repeats=0)
        self._value = None

    def value(self) -> JobStates:
        """Return the states after the last event."""
        if self._value is None:
            self._value = JobStates(self._newest, dict(self._jobs))
        return self._value


def _is_by_job(event: Event) -> bool:
    match event.body:
        case CallStarted(purpose=purpose) | ModelReplied(purpose=purpose) | Interrupted(purpose=purpose) | Failed(purpose=purpose):
            return is_job_purpose(purpose)
        case Titled() | Noticed():
            return True
        case _:
            return False


def _after(state: JobState, ran: JobRan, at: int) -> JobState:
    """Return the state after a run. Only a run that ended well moves the cursor, whatever the event says."""
    done = ran.status == "done"
    return JobState(
        cursor=ran.cursor if done else state.cursor,
        at=at,
        status=ran.status,
        why=ran.why,
        took_ms=ran.took_ms,
        failures=state.failures + 1 if ran.status == "failed" else 0 if done else state.failures,
        repeats=state.repeats + 1 if done else state.repeats,
    )
