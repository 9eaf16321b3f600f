"""Event bodies beside the conversation: notes, tasks, titles, jobs, sub-agents, and records of other programs."""

from typing import Literal

from msgspec import Raw

from palimpsest.core.events.calls import NULL, EventBody, Usage
from palimpsest.core.items import Part


class NotesTaken(EventBody, frozen=True, tag="notes_taken"):
    """Running notes of the session were written; `covers` is the last event that they cover.

    `tokens` is the size of the session at that time, by which the next update tells its growth.
    """

    text: str
    covers: int
    tokens: int = 0


class NoteSaved(EventBody, frozen=True, tag="note_saved"):
    """A long-term note was saved; its text is in the note store. `about` is its first line, in the log of a session only."""

    scope: str
    name: str
    rev: int
    digest: str
    by: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()
    about: str = ""


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
    """Notes that match a query were added to the view."""

    query: str
    notes: tuple[str, ...]
    scores: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class TaskChanged(EventBody, frozen=True, tag="task_changed"):
    """A task or todo list changed; `state` is its complete new state, as JSON of the tool that owns it."""

    task: str
    what: str
    state: Raw = NULL


class Titled(EventBody, frozen=True, tag="titled"):
    """The session got a title or tags; `by` names their author."""

    title: str
    tags: tuple[str, ...] = ()
    by: str = ""


class JobRan(EventBody, frozen=True, tag="job_ran"):
    """A background job processed the events up to `cursor`; a failed job keeps its previous cursor."""

    job: str
    cursor: int
    status: Literal["done", "failed", "skipped", "cancelled"] = "done"
    why: str = ""
    took_ms: int = 0


class Noticed(EventBody, frozen=True, tag="noticed"):
    """A line for the user that no model sees; `by` is the policy, or the job with the prefix `job:`, that has something to say."""

    text: str
    by: str = ""


class ChildOpened(EventBody, frozen=True, tag="child_opened"):
    """A sub-agent started in a separate session, or goes on in it if `resumed`.

    `depth` is 1 for a child of the agent that the user talks to; it is 0 in imported sessions, where it is unknown.
    """

    session: str
    call_id: str = ""
    role: str = ""
    nickname: str = ""
    depth: int = 0
    resumed: bool = False


class ChildEnded(EventBody, frozen=True, tag="child_ended"):
    """A sub-agent ended: `text` is its report or the reason, limited in size.

    `usage` and `cost_usd` count all calls of its session so far, `children_usd` and `children_tokens` those of the sub-agents below it.
    Dollars are `None` if the price of a call is not known; up to version 0.2 such a call counted as zero.
    """

    session: str
    status: str
    text: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    children_usd: float | None = 0.0
    children_tokens: int = 0


class ForeignNoted(EventBody, frozen=True, tag="foreign_noted"):
    """Records of another program that no model sees, in `foreign`; `keys` are their ids in that program."""

    format: str
    keys: tuple[str, ...] = ()


class Unknown(EventBody, frozen=True, tag="unknown"):
    """An event type of a newer version: kept as raw JSON and never interpreted."""

    raw: Raw
    name: str = ""
