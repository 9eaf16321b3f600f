"""Notes that a model wants remembered, and the events that they may cite."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.agent.tool import CURRENT_CALL, ToolError, ToolOutput
from palimpsest.core.events import Event, ModelReplied, NoteForgotten, NoteSaved, ToolReturned, UserSaid
from palimpsest.core.items import ToolCall
from palimpsest.core.log import Log
from palimpsest.memory.changes import (
    LONGEST_QUOTE_WORDS,
    AcceptedChange,
    AddNote,
    Change,
    Draft,
    Memory,
    QuotableEvent,
    RefusedChange,
    SupersedeNote,
    folded,
    judge_change,
)
from palimpsest.memory.evidence import iso_time, sources_of, untrusted_results
from palimpsest.memory.note import UNTOLD
from palimpsest.memory.notebook import Memories, Notebook, NoteEvent
from palimpsest.memory.tool_calls import MEMORY, REMEMBER, RememberArguments
from palimpsest.memory.writing import first_line, same_attribute

MOST_CHANGES_A_TURN: Final = 10
"""Notes that tools save or delete in one turn."""
# Tools whose results repeat the model's own words, notes that are trusted, or ours.
_OWN_WORDS: Final = frozenset({REMEMBER, MEMORY, "todo", "compact", "task_create", "task_update", "task_list", "task_get"})
# Characters of a line that is taken for a quotation of the user; shorter ones occur by chance.
_SHORTEST_LINE: Final = 12
_SHORTEST_UNSPACED: Final = 4


class SessionRead(Struct, frozen=True):
    """The session as a call sees it: what can be quoted, the call as an event, and how many notes tools have changed in this turn.

    The call is untrusted if the turn has read a text from outside of the workspace, for the model may repeat it.
    """

    sources: tuple[QuotableEvent, ...]
    call_id: str
    at: str
    is_tainted: bool
    changes: int

    def call(self, text: str) -> QuotableEvent:
        """Return this call as an event that says a text."""
        return QuotableEvent(self.call_id, "untrusted" if self.is_tainted else "assistant", text, self.at)

    def holding(self, quote: str) -> QuotableEvent | None:
        """Return the newest event that contains a text, one of the user if there is one, regardless of case and white space."""
        wanted = folded(quote)
        found = [source for source in self.sources if wanted and wanted in folded(source.text)]
        return next((each for each in reversed(found) if each.speaker == "user"), found[-1] if found else None)

    def user_words(self, text: str) -> tuple[QuotableEvent, str] | None:
        """Return the first line of a text that the user said, with the event; `None` if there is none."""
        for line in text.splitlines():
            words = line.strip(" \t-*>#\"'")
            long_enough = len(words) >= (_SHORTEST_LINE if words.isascii() else _SHORTEST_UNSPACED)
            found = self.holding(words) if long_enough else None
            if found is not None and found.speaker == "user":
                return found, first_words(words)
        return None

    def is_said_by_user(self, text: str) -> bool:
        """Whether every line of a text is one that the user said."""
        lines = [line for line in text.splitlines() if line.strip()]
        return bool(lines) and all(self.user_words(line) is not None for line in lines)


def read_session(log: Log, root: Path) -> SessionRead:
    """Return what the present call may cite, in the log of a session that works in the folder `root`.

    Raises `ToolError` if tools have changed enough notes in this turn.
    """
    with log.locked():
        events = tuple(event for event in log.events() if not _repeats_own_words(event))
    current = CURRENT_CALL.get()
    asked = next((event for event in reversed(events) if _has_call(event, current)), events[-1])
    turn = _this_turn(events)
    changes = sum(isinstance(event.body, NoteSaved | NoteForgotten) and event.body.by in ("remember", "memory_tool") for event in turn)
    if changes >= MOST_CHANGES_A_TURN:
        raise ToolError(f"{changes} notes were changed in this turn, which is enough; tell the user what else there is to remember")
    is_untrusted = untrusted_results(events, str(root))
    is_tainted = any(isinstance(event.body, ToolReturned) and is_untrusted(event.body) for event in turn)
    sources = sources_of(log.session, events, is_untrusted)
    return SessionRead(sources, f"{log.session}:{asked.seq}", iso_time(asked.at), is_tainted, changes)


def first_words(text: str) -> str:
    """Return as many words of a text as a quotation may have."""
    return " ".join(text.split()[:LONGEST_QUOTE_WORDS])


def _repeats_own_words(event: Event) -> bool:
    return isinstance(event.body, ToolReturned) and event.body.tool in _OWN_WORDS


def _has_call(event: Event, call_id: str) -> bool:
    body = event.body
    return isinstance(body, ModelReplied) and any(isinstance(part, ToolCall) and part.call_id == call_id for part in body.parts)


def _this_turn(events: Iterable[Event]) -> list[Event]:
    """Return the events since the user spoke last."""
    turn: list[Event] = []
    for event in events:
        turn = [] if isinstance(event.body, UserSaid) else turn
        turn.append(event)
    return turn


_ADVICE: Final = "; give the words of the user in `quote`, verbatim"


def remember_in_session(memories: Memories, given: RememberArguments, root: Path, log: Log) -> ToolOutput:
    """Save a note and return its name and trust, with the events that the session records. Raises `ToolError` if it is refused."""
    return _saved(memories, given, read_session(log, root))


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
