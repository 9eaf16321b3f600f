"""Messages of the user that are a command to remember something: told by their first word, and noted in the user's own words."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from palimpsest.core.events import Event, UserSaid
from palimpsest.core.items import Text, Value
from palimpsest.core.redaction import redact
from palimpsest.memory.changes import LONGEST_QUOTE_WORDS, AddNote, Draft, QuotableEvent
from palimpsest.memory.note import KINDS, LONGEST_ABOUT, NoteKind
from palimpsest.memory.reading import iso_time

# Of the four kinds this one is for how to work, holds in the project, and fades as slowly as what is known about the user.
DEFAULT_KIND: Final[NoteKind] = "feedback"
_BACKSTORY: Final = "the user asked to remember it"
# The command is the first word. Chinese has no space after it; a name of a kind and a colon may follow.
_COMMAND: Final = re.compile(
    rf"\s*(?:remember(?=[\s:：])|记住|記住)[\s:：，,]*(?:(?P<kind>{'|'.join(KINDS)})\s*[:：])?\s*(?P<text>.*)", re.IGNORECASE | re.DOTALL
)
_FENCE: Final = re.compile(r"^[ \t]*(?:```+|~~~+)[^\n]*\n?", re.MULTILINE)
_CITATION: Final = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)


class UserStatement(Value, frozen=True):
    """What the user asked to remember: the kind of the note and its text, with the event as it can be quoted."""

    kind: NoteKind
    text: str
    source: QuotableEvent

    def change(self) -> AddNote:
        """Return the note as a change that quotes the user: it is judged like any other."""
        draft = Draft(kind=self.kind, about=first_line(self.text), body=self.text, backstory=_BACKSTORY, intensity=1.0)
        return AddNote(draft, (self.source.id,), " ".join(self.text.split()[:LONGEST_QUOTE_WORDS]))


def statements(session: str, events: Iterable[Event]) -> Iterator[UserStatement]:
    """Yield what the user asked to remember in these events of a session, oldest first, without secrets.

    A message counts if its first word is `remember` or 记住 and something follows. `remember user: …` names the kind of the note; without
    one it is `feedback`. Attachments of the message are no part of it.
    """
    for event in events:
        if not isinstance(event.body, UserSaid):
            continue
        message = next((part.text for part in event.body.parts if isinstance(part, Text)), "")
        found = _COMMAND.fullmatch(message)
        # The marks of pasted blocks go: the user asked for these words, whoever wrote them first.
        text = "" if found is None else redact(_CITATION.sub("", _FENCE.sub("", found["text"]))).strip()
        if found is not None and any(unicodedata.category(letter)[0] in "LN" for letter in text):
            kind = next((kind for kind in KINDS if kind == (found["kind"] or "").lower()), DEFAULT_KIND)
            yield UserStatement(kind, text, QuotableEvent(f"{session}:{event.seq}", "user", text, iso_time(event.at)))


def first_line(text: str) -> str:
    """Return the first line of a text as the line that a note is listed by."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= LONGEST_ABOUT else f"{line[: LONGEST_ABOUT - 1]}…"
