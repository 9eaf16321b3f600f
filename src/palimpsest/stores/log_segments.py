"""Reading of a log in segments."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event
from palimpsest.core.lines import check_chain, decode_chunk, decode_line, link_of_line
from palimpsest.core.ports import LogFile

# SQLite stores numbers of 64 bits.
_LARGEST_NUMBER: Final = 2**62


class LoggedEvent(Struct, frozen=True, gc=False):
    """An event with the offset and the length of its line in bytes."""

    event: Event
    start: int
    length: int


class LogSegment(Struct, frozen=True):
    """Consecutive lines of a log: their events, the number of lines that are no events and the offset of the first, and the end.

    `fault` says where the hash chain is broken; it is empty if it is not, or if lines that are no events interrupt it anyway.
    """

    lines: tuple[LoggedEvent, ...]
    bad: int
    first_bad: int
    end: int
    fault: str = ""


def read_segments(lines: LogFile, start: int, last: int | None = None) -> Iterator[LogSegment]:
    """Yield the segments of a log from an offset on; lines that are no events are counted and left out.

    `last` is the offset of the line before, which the first one has to continue.
    """
    link: str | None = None
    if last is not None and last < start:
        with suppress(BadLog):
            before = lines.read(last, start - last)
            link = link_of_line(before, decode_line(before, lines.name, last))
    for offset, chunk in lines.chunks(start):
        spans = list(_spans(chunk))
        try:
            events = decode_chunk(chunk, lines.name, offset)
        except BadLog:
            events = []
        if len(events) == len(spans) and all(map(_is_storable, events)):
            found = (LoggedEvent(event, offset + begin, length) for event, (begin, length) in zip(events, spans, strict=True))
            link, fault = _checked_chain(chunk, offset, link)
            yield LogSegment(tuple(found), 0, -1, offset + len(chunk), fault)
        else:
            link = None
            yield _line_by_line(chunk, offset, spans)


def _checked_chain(chunk: bytes, offset: int, link: str | None) -> tuple[str | None, str]:
    try:
        return check_chain(chunk, "", offset, link), ""
    except BadLog as error:
        return None, f"{error.message} (byte {error.where.rpartition(' ')[2]})"


def _line_by_line(chunk: bytes, offset: int, spans: list[tuple[int, int]]) -> LogSegment:
    found: list[LoggedEvent] = []
    bad: list[int] = []
    for begin, length in spans:
        try:
            event = decode_line(chunk[begin : begin + length], "", offset + begin)
        except BadLog:
            event = None
        if event is not None and _is_storable(event):
            found.append(LoggedEvent(event, offset + begin, length))
        else:
            bad.append(offset + begin)
    return LogSegment(tuple(found), len(bad), bad[0] if bad else -1, offset + len(chunk))


def _is_storable(event: Event) -> bool:
    """Return whether SQLite can store the numbers of an event."""
    return 0 <= event.seq <= _LARGEST_NUMBER and 0 <= event.at <= _LARGEST_NUMBER


def _spans(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each line that is not blank."""
    begin = 0
    while (end := chunk.find(b"\n", begin)) >= 0:
        if end - begin > 1 or chunk[begin:end].strip():
            yield begin, end + 1 - begin
        begin = end + 1
