"""Saves what a model wants remembered: as stated if it quotes the user, as observed otherwise, held back if it may come from outside."""

import asyncio
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.core.log.log import Log
from palimpsest.engine.memory.access.quoting import SessionRead, first_words, read_session
from palimpsest.engine.memory.access.writing import first_line, same_attribute
from palimpsest.engine.memory.memories import Memories
from palimpsest.engine.memory.notebook import Notebook, NoteEvent
from palimpsest.engine.session import Session
from palimpsest.memory.changes import AcceptedChange, AddNote, Change, Draft, Memory, RefusedChange, SupersedeNote, judge_change
from palimpsest.memory.note import UNTOLD
from palimpsest.tools.memory.remember import RememberArguments
from palimpsest.tools.tool import ToolError, ToolOutput

_ADVICE: Final = "; give the words of the user in `quote`, verbatim"


class SessionKeeper(Struct, frozen=True):
    """Saves notes for one session."""

    session: Session
    root: Path
    memories: Memories

    async def remember(self, given: RememberArguments) -> ToolOutput:
        """Save a note and return its name and trust, with the events that the session records. Raises `ToolError` if it is refused."""
        return await asyncio.to_thread(self._remember, given)

    def _remember(self, given: RememberArguments) -> ToolOutput:
        return _saved(self.memories, given, read_session(self.session.log, self.root))


def remember_from_outside(memories: Memories, given: RememberArguments, root: Path, log: Log | None, now: str) -> str:
    """Save a note for the model of another program, and return its name and what becomes of it. Raises `ToolError` if it is refused.

    The log of its session, if there is one, can be quoted. All else that the model says is held back until the user promotes it: what
    it has read in that program is not known here.
    """
    read = SessionRead((), "", now, is_tainted=True, changes=0) if log is None else replace(read_session(log, root), is_tainted=True)
    return _saved(memories, given, read, is_call_recorded=False).text


def _saved(memories: Memories, given: RememberArguments, read: SessionRead, *, is_call_recorded: bool = True) -> ToolOutput:
    if given.quote and read.holding(given.quote) is None:
        raise ToolError("the quotation is not in this session; copy at most 25 words verbatim, or leave it out")
    notebook = memories.find(given.replaces)[0] if given.replaces else memories.place_of(given.kind)

    def propose(memory: Memory, event: str) -> AcceptedChange | RefusedChange:
        # A call that no log has is cited by the event that records the note.
        return _judged(given, read if is_call_recorded else replace(read, call_id=event), memory)

    outcome = notebook.change(propose, "remember")
    if isinstance(outcome, RefusedChange):
        advice = _ADVICE if given.kind in ("user", "feedback") and not given.quote else ""
        raise ToolError(f"nothing was saved: {outcome.reason}{advice}")
    return ToolOutput(_report(notebook, outcome), events=outcome)


def _judged(given: RememberArguments, read: SessionRead, memory: Memory) -> AcceptedChange | RefusedChange:
    """Return what becomes of a note that rests on the quoted event; if that does not carry all of it, on the call as well."""
    quoted = read.holding(given.quote) if given.quote else None
    fields = (given.text, given.about, given.attribute, given.person, given.relationship, given.backstory)
    call = read.call("\n".join(fields))
    said = read.sources if quoted is None else (*read.sources, quoted)
    if quoted is not None:
        outcome = judge_change(_change(given, (quoted.id,), first_words(given.quote), memory, read.at), said, memory)
        if isinstance(outcome, AcceptedChange) or given.kind in ("user", "feedback"):
            return outcome
    ids = (call.id,) if quoted is None else (quoted.id, call.id)
    return judge_change(_change(given, ids, first_words(given.text), memory, read.at), (*said, call), memory)


def _change(given: RememberArguments, evidence: tuple[str, ...], quote: str, memory: Memory, now: str) -> Change:
    draft = Draft(
        kind=given.kind,
        about=given.about or first_line(given.text),
        body=given.text,
        backstory=given.backstory.strip() or UNTOLD["quoted" if given.quote else "noted"],
        person=given.person,
        relationship=given.relationship,
        attribute=given.attribute,
        intensity=given.intensity,
    )
    replaced = given.replaces or same_attribute(memory, draft, now)
    return SupersedeNote(replaced, draft, evidence, quote) if replaced else AddNote(draft, evidence, quote)


def _report(notebook: Notebook, outcome: tuple[NoteEvent, ...]) -> str:
    saved = next((event for event in outcome if isinstance(event, NoteSaved)), None)
    if saved is None:
        return "It was known already; nothing was changed."
    gone = [event.name for event in outcome if isinstance(event, NoteForgotten)]
    notes = notebook.notes()
    if saved.name in notes.quarantine:
        return f"Held as {saved.name}: it may come from outside, so it is not used until the user runs `pal memory promote {saved.name}`."
    trust = notes.active[saved.name].trust if saved.name in notes.active else "saved"
    replaced = f"; it replaces {', '.join(gone)}" if gone else ""
    return f"Saved as {saved.name} ({saved.reason}, {trust}){replaced}."
