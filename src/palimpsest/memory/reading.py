"""What a memory job reads of a session: user texts, replies and the beginnings of tool results, as sources that can be quoted."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.changes import QuotableEvent, Speaker
from palimpsest.memory.note import Note

RESULT_CHARACTERS: Final = 200
MOST_IN_MANIFEST: Final = 200


def sources_of(session: str, events: Iterable[Event], is_untrusted: Callable[[ToolReturned], bool]) -> tuple[QuotableEvent, ...]:
    """Return the events of a session that can be quoted, without secrets; tool results are cut to their first 200 characters.

    `is_untrusted` says whether a result brings text from outside of the workspace, such as a web page.
    """
    found: list[QuotableEvent] = []
    for event in events:
        body = event.body
        speaker: Speaker
        match body:
            case UserSaid(parts=parts):
                speaker, text = "user", _texts(parts)
            case ModelReplied(parts=parts, purpose="turn"):
                speaker, text = "assistant", _texts(parts)
            case ToolReturned():
                speaker = "untrusted" if is_untrusted(body) else "tool"
                text = _texts(body.result.parts)[:RESULT_CHARACTERS]
            case _:
                continue
        if text.strip():
            found.append(QuotableEvent(f"{session}:{event.seq}", speaker, redact(text), iso_time(event.at)))
    return tuple(found)


def newest_within(sources: Iterable[QuotableEvent], tokens: int) -> tuple[QuotableEvent, ...]:
    """Return the newest sources that have together at most so many tokens, in their order; the texts of the user are kept first."""
    kept: dict[str, QuotableEvent] = {}
    left = tokens
    listed = list(sources)
    for speakers in (("user",), ("assistant", "tool", "untrusted")):
        for source in reversed(listed):
            size = estimate(line_of_source(source))
            if source.speaker in speakers and size <= left:
                left -= size
                kept[source.id] = source
    return tuple(source for source in listed if source.id in kept)


def line_of_source(source: QuotableEvent) -> str:
    """Return a source as a prompt shows it: its id, who is quoted and the text, with the marks of our own tags made harmless."""
    return f"[{source.id}] {source.speaker}: {escaped(source.text)}"


def manifest(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return one line for each of the newest 200 active notes, newest first."""
    active = sorted((note for note in notes if note.status == "active"), key=lambda note: (note.when, note.name), reverse=True)
    return tuple(f"[{note.kind}] {note.name} ({note.when}): {escaped(note.about)}" for note in active[:MOST_IN_MANIFEST])


def escaped(text: str) -> str:
    """Return a text in which no tag can begin or end, so that it cannot close the block in which it is shown."""
    return text.replace("<", "‹").replace(">", "›")


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def iso_time(milliseconds: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
