"""Messages of the user that are a command to remember something: told by the form of their beginning, noted in the user's own words."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from palimpsest.core.events import Event, UserSaid
from palimpsest.core.items import Value
from palimpsest.core.redaction import redact
from palimpsest.memory.changes import LONGEST_QUOTE_WORDS, AddNote, Draft, QuotableEvent
from palimpsest.memory.note import KINDS, LONGEST_ABOUT, UNTOLD, NoteKind
from palimpsest.memory.reading import iso_time, typed_and_attached

# Of the four kinds this one is for how to work, holds in the project, and fades as slowly as what is known about the user.
DEFAULT_KIND: Final[NoteKind] = "feedback"
# The form of a command. A word with a comma (a name, "ok") and a word of courtesy may stand before it, and a sign or `that` ends it:
# without one "remember" begins other sentences too ("remember me?"). In Chinese a space or the word of courtesy will do.
_COMMAND: Final = re.compile(
    rf"""\s*(?:\w{{1,20}}\s*[,，]\s*)?
    (?:
        (?:(?:please|pls|kindly|also|and|always)\b\s*,?\s*){{0,3}}
        remember(?:\s+(?:this|the\s+following))?(?:\s+for\s+(?:later|next\s+time|the\s+future))?
        (?:\s*[:：]|[ \t]*\n|\s*[,，](?=\s)|\s+[-–—]+(?=\s)
          |\s+that(?![\w'’-])\s*[:：,，]?|(?=\s+(?:{"|".join(KINDS)})\s*[:：]))
      | (?:请|請)(?:你|您|帮我|幫我|务必|務必){{0,3}}(?:记住|記住)(?!了)[\s:：，,]*
      | (?:麻烦|麻煩)?(?:你|您|帮我|幫我)?(?:记住|記住)(?:[\s:：，,]+)
    )
    \s*(?:(?P<kind>{"|".join(KINDS)})\s*[:：])?\s*(?P<text>.*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_COURTESY: Final = re.compile(r"\W*(?:please|pls|thanks|thank\s+you|ok|okay|谢谢|謝謝)\W*", re.IGNORECASE)
_FENCE: Final = re.compile(r"^[ \t]*(?:```+|~~~+)[^\n]*\n?", re.MULTILINE)
_CITATION: Final = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
# Where a sentence ends: at a sign before white space, at one of Chinese, or at a line; the sign of a quotation after which the sentence
# goes on ends none.
_SENTENCE_END: Final = re.compile(r"[.!]+[)\]]*(?=\s)|[.!]+[\"'”’)\]]+(?=\s+[^\sa-z])|[。！]+(?![”’」』]+\S)|\n")
# A question: its sign, behind which other signs may stand (`?!`, `?)`, `?*`, an emoji) but no word, so that `?a=b` of an address is none;
# or its particle. One inside quotation marks is none if the sentence goes on behind them.
_QUESTION: Final = re.compile(
    r"""[?؟⁇⁈⁉‽](?:[^\w\s\"'”’`]{0,20}(?=\s|$) | [^\w\s,，;；:：、]{0,20}(?=[ \t]*(?:\n|$)|\s+[^\sa-z]))
      | ？(?![”’」』]+\S)
      | [吗嗎](?!\w|[^\w\s]{0,20}[\"'”’」』`])
      | 呢(?:[.!~～…]+(?=\s|$)|[。！]|[ \t]*(?=\n|$))""",
    re.VERBOSE,
)


class UserStatement(Value, frozen=True):
    """What the user asked to remember: the kind of the note and its text, with the event as it can be quoted."""

    kind: NoteKind
    text: str
    source: QuotableEvent

    def change(self) -> AddNote:
        """Return the note as a change that quotes the user: it is judged like any other."""
        draft = Draft(kind=self.kind, about=first_line(self.text), body=self.text, backstory=UNTOLD["asked"])
        return AddNote(draft, (self.source.id,), " ".join(self.text.split()[:LONGEST_QUOTE_WORDS]))


def statements(session: str, events: Iterable[Event]) -> Iterator[UserStatement]:
    """Yield what the user asked to remember in these events of a session, oldest first, without secrets.

    A message counts if the user typed it in the form of a command: `remember: …`, `remember that …`, `remember user: …` (which names the
    kind of the note; without one it is `feedback`), 记住：…, each also behind a word of courtesy. Questions are never noted: the note
    ends before the first one. Attachments of the message are no part of it.
    """
    for event in events:
        if not isinstance(event.body, UserSaid):
            continue
        found = _COMMAND.fullmatch(typed_and_attached(event.body.parts)[0])
        # The marks of pasted blocks go: the user asked for these words, also if they are pasted.
        text = "" if found is None else redact(_CITATION.sub("", _FENCE.sub("", _before_question(found["text"])))).strip()
        if found is not None and _COURTESY.fullmatch(text) is None and any(unicodedata.category(letter)[0] in "LN" for letter in text):
            kind = next((kind for kind in KINDS if kind == (found["kind"] or "").lower()), DEFAULT_KIND)
            yield UserStatement(kind, text, QuotableEvent(f"{session}:{event.seq}", "user", text, iso_time(event.at)))


def _before_question(text: str) -> str:
    """Return a text up to its first sentence that is a question."""
    question = _QUESTION.search(text)
    if question is None:
        return text
    ends = (end.end() for end in _SENTENCE_END.finditer(text) if end.end() <= question.start())
    return text[: max(ends, default=0)]


def first_line(text: str) -> str:
    """Return the first line of a text as the line that a note is listed by."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= LONGEST_ABOUT else f"{line[: LONGEST_ABOUT - 1]}…"
