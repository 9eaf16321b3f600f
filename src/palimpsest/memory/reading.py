"""What a memory job reads of a session: user texts, replies and the beginnings of tool results, as sources that can be quoted."""

from collections.abc import Callable, Iterable
from typing import Final

from palimpsest.core.events import Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.format.texts import utc_text
from palimpsest.core.items import Content, Part, Text
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.changes import QuotableEvent, Speaker
from palimpsest.memory.note import Note, time_of

RESULT_CHARACTERS: Final = 200
# Characters of a message of the user and of a reply; the middle of a longer one is left out.
MESSAGE_CHARACTERS: Final = 8_000
REPLY_CHARACTERS: Final = 4_000
MOST_IN_MANIFEST: Final = 200


def sources_of(
    session: str, events: Iterable[Event], is_untrusted: Callable[[ToolReturned], bool], *, results: int = RESULT_CHARACTERS
) -> tuple[QuotableEvent, ...]:
    """Return the events of a session that can be quoted, without secrets; tool results are cut to their first characters.

    `is_untrusted` says whether a result brings text from outside of the workspace, such as a web page. After such a result the replies of
    the turn are untrusted too, for they may repeat it. What the user typed of an input is the user's; its other texts are
    attachments, and untrusted.
    """
    found: list[QuotableEvent] = []
    is_tainted = False
    for event in events:
        body = event.body
        read: list[tuple[Speaker, str]]
        match body:
            case UserSaid(parts=parts):
                is_tainted = False
                written, *attached = typed_and_attached(parts)
                read = [("user", _shortened(written, MESSAGE_CHARACTERS)), ("untrusted", "\n".join(attached)[:results])]
            case ModelReplied(parts=parts, purpose="turn"):
                read = [("untrusted" if is_tainted else "assistant", _shortened(_texts(parts), REPLY_CHARACTERS))]
            case ToolReturned():
                comes_from_outside = is_untrusted(body)
                is_tainted = is_tainted or comes_from_outside
                read = [("untrusted" if comes_from_outside else "tool", _texts(body.result.parts)[:results])]
            case _:
                continue
        found += [QuotableEvent(f"{session}:{event.seq}", who, redact(text), iso_time(event.at)) for who, text in read if text.strip()]
    return tuple(found)


def newest_within(sources: Iterable[QuotableEvent], tokens: int) -> tuple[QuotableEvent, ...]:
    """Return the newest sources that have together at most so many tokens, in their order; the texts of the user are kept first."""
    # By place: an input and its attachment have one id.
    kept: set[int] = set()
    left = tokens
    listed = list(sources)
    for speakers in (("user",), ("assistant", "tool", "untrusted")):
        for place in range(len(listed) - 1, -1, -1):
            size = estimate(line_of_source(listed[place]))
            if listed[place].speaker in speakers and size <= left:
                left -= size
                kept.add(place)
    return tuple(source for place, source in enumerate(listed) if place in kept)


def typed_and_attached(parts: tuple[Part, ...]) -> tuple[str, ...]:
    """Return what the user typed of an input, empty if nothing was, and then the texts that came with it.

    Of texts without a mark the first is what the user typed.
    """
    texts = [part for part in parts if isinstance(part, Text)]
    typed = bool(texts) and not texts[0].attached
    return ("" if not typed else texts[0].text, *(part.text for part in texts[typed:]))


def line_of_source(source: QuotableEvent) -> str:
    """Return a source as a prompt shows it: its id, who is quoted and the text, with the marks of our own tags made harmless."""
    return f"[{source.id}] {source.speaker}: {escaped(source.text)}"


def manifest(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return one line for each of the newest 200 active notes, newest first."""
    active = sorted((note for note in notes if note.status == "active"), key=lambda note: (time_of(note.when), note.name), reverse=True)
    return tuple(f"[{note.kind}] {note.name} ({note.when}): {escaped(note.about)}" for note in active[:MOST_IN_MANIFEST])


def escaped(text: str) -> str:
    """Return a text in which no tag can begin or end, so that it cannot close the block in which it is shown."""
    return text.replace("<", "‹").replace(">", "›")


def _texts(parts: tuple[Content, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _shortened(text: str, characters: int) -> str:
    half = characters // 2
    return text if len(text) <= characters else f"{text[:half]}\n…\n{text[-half:]}"


def iso_time(milliseconds: int) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC; milliseconds are stated, so that notes of one second have an order."""
    rest = milliseconds % 1_000
    return utc_text(milliseconds, f"%Y-%m-%dT%H:%M:%S.{rest:03}Z" if rest else "%Y-%m-%dT%H:%M:%SZ")
