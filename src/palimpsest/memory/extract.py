"""Extraction: asks a model once which notes the new events of a session support, and judges each change by what it quotes."""

import pkgutil
from collections.abc import Generator
from functools import cache
from typing import Final

import msgspec

from palimpsest.core.errors import CannotFold
from palimpsest.core.items import Text, Value
from palimpsest.core.policy import Answer, Ask, Want, ask
from palimpsest.memory.changes import AcceptedChange, Change, Memory, QuotableEvent, RefusedChange, judge_change
from palimpsest.memory.reading import line_of_source, manifest, newest_within

PURPOSE: Final = "memory"
# Tokens of the request beside the prompt, and of the reply.
MOST_READ: Final = 8_000
MOST_WRITTEN: Final = 1_500
MOST_CHANGES: Final = 20


class Changes(msgspec.Struct, frozen=True):
    """The reply of the model."""

    changes: tuple[Change, ...]


class Judged(Value, frozen=True):
    """A proposed change and what became of it."""

    change: Change
    outcome: AcceptedChange | RefusedChange


_reply = msgspec.json.Decoder(Changes)


def extraction(sources: tuple[QuotableEvent, ...], memory: Memory, model: str = "") -> Generator[Want, Answer, tuple[Judged, ...]]:
    """Ask once about the newest of the sources and return each proposed change with its outcome; without sources nothing is asked.

    A change is judged by the notes as the changes before it leave them. Raises `CannotFold` if the reply is no list of changes, and the
    `PalimpsestError` of a failed call.
    """
    read = newest_within(sources, MOST_READ)
    if not read:
        return ()
    prompt = _prompt(read, memory)
    reply = yield from ask(Ask((), prompt, PURPOSE, head=False, tools=False, model=model, reply=MOST_WRITTEN, schema=changes_schema()))
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    try:
        proposed = _reply.decode(_json_in(text)).changes[:MOST_CHANGES]
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotFold(f"the reply of the memory job is no list of changes: {error}", kind="malformed") from error
    judged: list[Judged] = []
    for change in proposed:
        outcome = judge_change(change, read, memory)
        judged.append(Judged(change, outcome))
        if isinstance(outcome, AcceptedChange):
            memory = _after(memory, outcome)
    return tuple(judged)


@cache
def changes_schema() -> str:
    """Return the JSON schema of the reply."""
    return msgspec.json.encode(msgspec.json.schema(Changes)).decode()


@cache
def _template() -> str:
    data = pkgutil.get_data("palimpsest.memory", "prompts/extract.md")
    return (data or b"").decode()


def _prompt(read: tuple[QuotableEvent, ...], memory: Memory) -> str:
    lines = "\n".join(manifest(memory.notes.values())) or "(none)"
    return _template().replace("{{manifest}}", lines).replace("{{events}}", "\n".join(map(line_of_source, read)))


def _json_in(text: str) -> str:
    """Return the outermost object of a reply; models like to put a fence or a sentence around it."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _after(memory: Memory, outcome: AcceptedChange) -> Memory:
    gone = {note.name for note in outcome.past}
    notes = {name: note for name, note in memory.notes.items() if name not in gone}
    return msgspec.structs.replace(memory, notes={**notes, **{note.name: note for note in outcome.saved}})
