"""Reads a log in segments of consecutive lines, for what follows logs: lines that are no events are counted and left out."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event
from palimpsest.core.format.codec import decode_chunk, decode_line
from palimpsest.core.ports import LogFile

# SQLite stores numbers of 64 bits.
_LARGEST_NUMBER: Final = 2**62


class LoggedEvent(Struct, frozen=True, gc=False):
    """An event with the offset and the length of its line in bytes."""

    event: Event
    start: int
    length: int


class LogSegment(Struct, frozen=True):
    """Consecutive lines of a log: their events, the number of lines that are no events and the offset of the first, and the end."""

    lines: tuple[LoggedEvent, ...]
    bad: int
    first_bad: int
    end: int


def read_segments(lines: LogFile, start: int) -> Iterator[LogSegment]:
    """Yield the segments of a log from an offset on; lines that are no events are counted and left out."""
    for offset, chunk in lines.chunks(start):
        spans = list(_spans(chunk))
        try:
            events = decode_chunk(chunk, lines.name, offset)
        except BadLog:
            events = []
        if len(events) == len(spans) and all(map(_is_storable, events)):
            found = (LoggedEvent(event, offset + begin, length) for event, (begin, length) in zip(events, spans, strict=True))
            yield LogSegment(tuple(found), 0, -1, offset + len(chunk))
        else:
            yield _line_by_line(chunk, offset, spans)


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
