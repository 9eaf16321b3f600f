"""Phase one: asks a model once for the summary of a finished session and the changes of notes that it supports, and judges both."""

import pkgutil
from collections.abc import Generator
from functools import cache
from typing import Final

import msgspec

from palimpsest.core.errors import CannotFold
from palimpsest.core.items import Text, Value
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.changes import (
    AcceptedChange,
    AddNote,
    Change,
    ConfirmNote,
    Memory,
    QuotableEvent,
    RefusedChange,
    RetractNote,
    SupersedeNote,
    judge_change,
)
from palimpsest.memory.note import NoteKind
from palimpsest.memory.pipeline.rollout_file import TaskSummary, model_body, structural_body
from palimpsest.memory.pipeline.transcript import SessionReading, middle_cut, transcript_lines
from palimpsest.memory.reading import escaped, manifest
from palimpsest.wire.reply_schema import reply_schema

PURPOSE: Final = "memory"
# Tokens of the reply.
MOST_WRITTEN: Final = 3_000
MOST_CHANGES: Final = 20


class SessionReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reply of the model. Without a title and tasks there is nothing that a later session needs."""

    title: str
    slug: str
    context: str
    tasks: tuple[TaskSummary, ...]
    changes: tuple[Change, ...]


class ScopedChange(Value, frozen=True):
    """A proposed change, the notes that it belongs to (those of the user, or of the project), and what became of it."""

    change: Change
    is_user: bool
    outcome: AcceptedChange | RefusedChange


class SessionOutput(Value, frozen=True):
    """What phase one makes of a session: the body of its summary, empty if there is nothing to keep, and changes of notes.

    `read` are the events that the model has seen, which its changes may cite.
    """

    body: str = ""
    slug: str = ""
    is_by_model: bool = False
    changes: tuple[ScopedChange, ...] = ()
    read: tuple[QuotableEvent, ...] = ()


_reply = msgspec.json.Decoder(SessionReply)


def phase_one(
    reading: SessionReading, user: Memory, project: Memory, *, limit: int, model: str = ""
) -> Generator[Want, Answer, SessionOutput]:
    """Ask once about a session, of which at most `limit` tokens are sent. A session without a text of the user is not asked about.

    Raises `CannotFold` if the reply does not have the required form, and the `PalimpsestError` of a failed call.
    """
    if not reading.first:
        return SessionOutput()
    prompt, read = _prompt(reading, user, project, limit)
    want = Ask((), prompt, PURPOSE, head=False, tools=False, model=model, reply=MOST_WRITTEN, schema=session_schema())
    reply = decoded((yield from ask(want)).parts)
    body = model_body(reply.title, reply.context, reply.tasks) if reply.title.strip() and reply.tasks else ""
    changes = judge_session_changes(reply.changes[:MOST_CHANGES], msgspec.structs.replace(reading, sources=read), user, project)
    return SessionOutput(body, reply.slug[:60], is_by_model=True, changes=changes, read=read)


def without_model(reading: SessionReading) -> SessionOutput:
    """Return the summary that the log alone gives."""
    return SessionOutput(structural_body(reading), reading.title)


def judge_session_changes(changes: tuple[Change, ...], reading: SessionReading, user: Memory, project: Memory) -> tuple[ScopedChange, ...]:
    """Judge each change by the notes as the changes before it leave them, in the scope that its kind of note belongs to."""
    judged: list[ScopedChange] = []
    for change in changes:
        is_user = _kind(change) == "user"
        memory = user if is_user else project
        outcome = _moved(change) or judge_change(change, reading.sources, memory)
        judged.append(ScopedChange(change, is_user, outcome))
        if isinstance(outcome, AcceptedChange):
            user, project = (_after(user, outcome), project) if is_user else (user, _after(project, outcome))
    return tuple(judged)


def decoded(parts: tuple[object, ...]) -> SessionReply:
    """Return the reply that the parts of a message state. Raises `CannotFold` if they state none, or more than a reply has."""
    text = "".join(part.text for part in parts if isinstance(part, Text))
    start, end = text.find("{"), text.rfind("}")
    try:
        return _reply.decode(text[start : end + 1] if 0 <= start < end else text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotFold(f"the reply about a session does not have the required form: {error}", kind="malformed") from error


@cache
def session_schema() -> str:
    """Return the JSON schema of the reply."""
    return reply_schema(SessionReply)


@cache
def _template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/phase_one.md")
    return (data or b"").decode()


def _prompt(reading: SessionReading, user: Memory, project: Memory, limit: int) -> tuple[str, tuple[QuotableEvent, ...]]:
    """Return the prompt and the sources that it shows; prompt, manifest and session have together at most `limit` tokens."""
    lines = "\n".join(manifest((*user.notes.values(), *project.notes.values()))) or "(none)"
    facts = f"session {reading.session} of {reading.origin} in {reading.cwd or 'an unknown folder'}" + (
        f", branch {reading.branch}" if reading.branch else ""
    )
    text = _template().replace("{{manifest}}", lines).replace("{{session}}", escaped(facts))
    beginning, end = middle_cut(reading.sources, max(0, limit - estimate(text)))
    read = (*beginning, *end)
    shown = "\n".join(transcript_lines(beginning, end, len(reading.sources) - len(read)))
    return text.replace("{{events}}", shown), read


def _kind(change: Change) -> NoteKind | str:
    match change:
        case AddNote(note=draft):
            return draft.kind
        case SupersedeNote(name=name) | RetractNote(name=name) | ConfirmNote(name=name):
            return name.partition("_")[0]


def _moved(change: Change) -> RefusedChange | None:
    """Refuse a correction of a note of the user by one of the project, or the other way round: they are kept in two places."""
    is_moved = isinstance(change, SupersedeNote) and (change.note.kind == "user") != (_kind(change) == "user")
    return RefusedChange("a note about the user and one about the project do not correct each other") if is_moved else None


def _after(memory: Memory, outcome: AcceptedChange) -> Memory:
    gone = {note.name for note in outcome.past}
    notes = {name: note for name, note in memory.notes.items() if name not in gone}
    return msgspec.structs.replace(memory, notes={**notes, **{note.name: note for note in outcome.saved}})
