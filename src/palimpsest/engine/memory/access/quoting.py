"""What a tool call of a session may cite: the words of the user and of results in the log, and the call itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.events import Event, ModelReplied, NoteForgotten, NoteSaved, ToolReturned, UserSaid
from palimpsest.core.items import ToolCall
from palimpsest.core.log.log import Log
from palimpsest.memory.changes import LONGEST_QUOTE_WORDS, QuotableEvent
from palimpsest.memory.evidence.trust import untrusted_results
from palimpsest.memory.reading import iso_time, sources_of
from palimpsest.memory.weighing.wording import folded
from palimpsest.tools.memory.commands import MEMORY
from palimpsest.tools.memory.remember import REMEMBER
from palimpsest.tools.tool import CURRENT_CALL, ToolError

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
