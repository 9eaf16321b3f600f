"""Extraction: asks a model which notes the new events of a session support, and judges each change by what it quotes."""

import pkgutil
from collections.abc import Generator, Iterable
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
    Memory,
    QuotableEvent,
    RefusedChange,
    SupersedeNote,
    judge_change,
)
from palimpsest.memory.note import Note
from palimpsest.memory.reading import line_of_source, manifest, newest_within
from palimpsest.wire.reply_schema import reply_schema

PURPOSE: Final = "memory"
# Tokens of the whole request and of the reply, and of the list of notes, of which the newest are kept.
MOST_READ: Final = 8_000
MOST_WRITTEN: Final = 1_500
MOST_LISTED: Final = 2_500
MOST_CHANGES: Final = 20
# Requests: a second one if the first reply cannot be read.
MOST_ASKS: Final = 2
# Characters of a reply that are read; the request asks for far less.
LONGEST_REPLY: Final = 60_000
OWN_NOTE: Final = "a reply cannot change a note that it adds itself"


class Changes(msgspec.Struct, frozen=True):
    """The reply of the model."""

    changes: tuple[Change, ...]


class Proposed(Value, frozen=True):
    """What a model proposed after it had read these sources. `left_out` counts the changes beyond the most that one reply may have."""

    changes: tuple[Change, ...] = ()
    read: tuple[QuotableEvent, ...] = ()
    left_out: int = 0


class Judged(Value, frozen=True):
    """A proposed change and what became of it."""

    change: Change
    outcome: AcceptedChange | RefusedChange


_reply = msgspec.json.Decoder(Changes)
# Characters that stand for `<` and `>` in a request, where no tag may begin or end.
_SHOWN: Final = str.maketrans("‹›", "<>")
_TYPOGRAPHIC: Final = str.maketrans("‘’“”–—", "''\"\"--")


def proposed_changes(sources: tuple[QuotableEvent, ...], notes: Iterable[Note], model: str = "") -> Generator[Want, Answer, Proposed]:
    """Ask about the newest of the sources and return the changes that a model proposes; without sources nothing is asked.

    A reply that cannot be read is asked for once more. Raises `CannotFold` if that cannot be read either, and the `PalimpsestError` of a
    failed call.
    """
    listed = _listed(notes)
    read = newest_within(sources, MOST_READ - estimate(_template()) - estimate(listed))
    if not read:
        return Proposed()
    prompt, advice = _prompt(read, listed), ""
    for number in range(1, MOST_ASKS + 1):
        want = Ask((), prompt + advice, PURPOSE, head=False, tools=False, model=model, reply=MOST_WRITTEN, schema=changes_schema())
        reply = yield from ask(want)
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        try:
            proposed = _reply.decode(_json_in(text)).changes
            break
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if number == MOST_ASKS:
                raise CannotFold(f"the reply of the memory job is no list of changes: {error}", kind="malformed") from error
            advice = f"\n\nYour last reply could not be read ({error}). Reply with the JSON object alone, and make it shorter."
    return Proposed(tuple(_as_written(change, read) for change in proposed[:MOST_CHANGES]), read, len(proposed[MOST_CHANGES:]))


def extraction(sources: tuple[QuotableEvent, ...], memory: Memory, model: str = "") -> Generator[Want, Answer, tuple[Judged, ...]]:
    """Ask about the newest of the sources and return each proposed change with its outcome; without sources nothing is asked.

    A change is judged by the notes as the changes before it leave them. Raises as `proposed_changes` does.
    """
    proposed = yield from proposed_changes(sources, memory.notes.values(), model)
    judged: list[Judged] = []
    added: set[str] = set()
    for change in proposed.changes:
        outcome = RefusedChange(OWN_NOTE) if target_of(change) in added else judge_change(change, proposed.read, memory)
        judged.append(Judged(change, outcome))
        if isinstance(outcome, AcceptedChange):
            added |= {note.name for note in outcome.saved if note.name not in memory.notes}
            memory = _after(memory, outcome)
    return tuple(judged)


def target_of(change: Change) -> str:
    """Return the name of the note that a change is about; empty for one that adds a note."""
    return "" if isinstance(change, AddNote) else change.name


@cache
def changes_schema() -> str:
    """Return the JSON schema of the reply."""
    return reply_schema(Changes)


@cache
def _template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/extract.md")
    return (data or b"").decode()


def _listed(notes: Iterable[Note]) -> str:
    """Return the manifest within its bound, cut at a line, with a line that says how many notes are not in it."""
    lines, kept, left = manifest(notes), list[str](), MOST_LISTED
    for line in lines:
        left -= estimate(f"{line}\n")
        if left < 0:
            return "\n".join((*kept, f"({len(lines) - len(kept)} older notes are not listed)"))
        kept.append(line)
    return "\n".join(kept) or "(none)"


def _prompt(read: tuple[QuotableEvent, ...], listed: str) -> str:
    values = {"newest": max(source.at for source in read), "most": str(MOST_CHANGES), "manifest": listed}
    text = _template()
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    # The last one, because the events may contain anything.
    return text.replace("{{events}}", "\n".join(map(line_of_source, read)))


def _json_in(text: str) -> str:
    """Return the outermost object of a reply; models like to put a fence or a sentence around it."""
    text = text[:LONGEST_REPLY]
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _as_written(change: Change, read: tuple[QuotableEvent, ...]) -> Change:
    """Return a change with the signs of the events in place of those that the request, or the habits of a model, put there."""
    seen = "".join(source.text for source in read)
    signs = {sign: plain for sign, plain in _SHOWN.items() if chr(sign) not in seen}
    quote = change.quote.translate(signs | {sign: plain for sign, plain in _TYPOGRAPHIC.items() if chr(sign) not in seen})
    if not isinstance(change, AddNote | SupersedeNote):
        return msgspec.structs.replace(change, quote=quote)
    note = change.note
    texts = {name: getattr(note, name).translate(signs) for name in ("about", "body", "backstory")}
    return msgspec.structs.replace(change, quote=quote, note=msgspec.structs.replace(note, **texts))


def _after(memory: Memory, outcome: AcceptedChange) -> Memory:
    gone = {note.name for note in outcome.past}
    notes = {name: note for name, note in memory.notes.items() if name not in gone}
    return msgspec.structs.replace(memory, notes={**notes, **{note.name: note for note in outcome.saved}})
