"""Bodies of what is kept beside the conversation: notes, tasks, titles, jobs, sub-agents, and lines of other programs."""

from typing import Literal

from msgspec import Raw

from palimpsest.core.events.calls import NULL, EventBody
from palimpsest.core.items import Part


class NotesTaken(EventBody, frozen=True, tag="notes_taken"):
    """Running notes of this session, and the last event they cover."""

    text: str
    covers: int
    tokens: int = 0


class NoteSaved(EventBody, frozen=True, tag="note_saved"):
    """A long-term note was written; its text lives in the note store."""

    scope: str
    name: str
    rev: int
    digest: str
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()


class NoteForgotten(EventBody, frozen=True, tag="note_forgotten"):
    """A long-term note was superseded, retracted or forgotten."""

    scope: str
    name: str
    rev: int
    how: Literal["superseded", "retracted", "forgotten", "expired"] = "forgotten"
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()


class Recalled(EventBody, frozen=True, tag="recalled"):
    """Notes were brought into the view for a query."""

    query: str
    notes: tuple[str, ...]
    scores: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class TaskChanged(EventBody, frozen=True, tag="task_changed"):
    """A task or todo list changed; `state` is the new whole, as JSON of the tool that owns it."""

    task: str
    what: str
    state: Raw = NULL


class Titled(EventBody, frozen=True, tag="titled"):
    """The session got a title or tags."""

    title: str
    tags: tuple[str, ...] = ()
    by: str = ""


class JobRan(EventBody, frozen=True, tag="job_ran"):
    """A background job ran up to event `cursor`; a job that failed keeps its cursor."""

    job: str
    cursor: int
    status: Literal["done", "failed", "skipped", "cancelled"] = "done"
    why: str = ""
    took_ms: int = 0


class ChildOpened(EventBody, frozen=True, tag="child_opened"):
    """A sub-agent began in a session of its own."""

    session: str
    call_id: str = ""
    role: str = ""


class ChildEnded(EventBody, frozen=True, tag="child_ended"):
    """A sub-agent ended, by itself or not."""

    session: str
    status: str
    text: str = ""


class ForeignNoted(EventBody, frozen=True, tag="foreign_noted"):
    """Lines of another program that mean nothing to a model, in `foreign`; `keys` are their own ids."""

    format: str
    keys: tuple[str, ...] = ()


class Unknown(EventBody, frozen=True, tag="unknown"):
    """An event of a newer version: kept, shown as such, and never interpreted."""

    raw: Raw
    name: str = ""
