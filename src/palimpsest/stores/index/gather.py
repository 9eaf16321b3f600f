"""Reading what is new in a log, for the index."""

from collections.abc import Iterator
from hashlib import blake2b

from msgspec import Struct

from palimpsest.core.errors import BadLog
from palimpsest.core.events import Event
from palimpsest.core.format.codec import decode_chunk, decode_line
from palimpsest.core.ports import LogFile

_PIECE = 1024 * 1024
# So much is read again, in a few hundredths of a second, whenever a log has grown.
_PRINT = 32 * _PIECE
_OPENING = 512
_MOST = 2**62


class Line(Struct, frozen=True, gc=False):
    """An event and the bytes of the log where it stands."""

    event: Event
    start: int
    length: int


class Gathered(Struct, frozen=True):
    """A run of lines: its events, how many lines are none (`first_bad` says where the first is), and where the run ends."""

    lines: tuple[Line, ...]
    bad: int
    first_bad: int
    end: int


def gather(lines: LogFile, start: int) -> Iterator[Gathered]:
    """The events of a log from a byte on, run by run; lines that are no events of ours are counted and left out."""
    for offset, chunk in lines.chunks(start):
        spans = list(_spans(chunk))
        try:
            events = decode_chunk(chunk, lines.name, offset)
        except BadLog:
            events = []
        if len(events) == len(spans) and all(map(_fits, events)):
            found = (Line(event, offset + begin, length) for event, (begin, length) in zip(events, spans, strict=True))
            yield Gathered(tuple(found), 0, -1, offset + len(chunk))
        else:
            yield _one_by_one(chunk, offset, spans)


def _one_by_one(chunk: bytes, offset: int, spans: list[tuple[int, int]]) -> Gathered:
    found: list[Line] = []
    bad: list[int] = []
    for begin, length in spans:
        try:
            event = decode_line(chunk[begin : begin + length], "", offset + begin)
        except BadLog:
            event = None
        if event is not None and _fits(event):
            found.append(Line(event, offset + begin, length))
        else:
            bad.append(offset + begin)
    return Gathered(tuple(found), len(bad), bad[0] if bad else -1, offset + len(chunk))


def _fits(event: Event) -> bool:
    """Whether a database can hold its numbers."""
    return 0 <= event.seq <= _MOST and 0 <= event.at <= _MOST


def _spans(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Where each line begins and how long it is; blank ones are none."""
    begin = 0
    while (end := chunk.find(b"\n", begin)) >= 0:
        if end - begin > 1 or chunk[begin:end].strip():
            yield begin, end + 1 - begin
        begin = end + 1


def print_of(lines: LogFile, last: int, done: int) -> str:
    """What tells a log from another one: its first 32 MiB, and the line at `last`, whose chain covers all before it.

    The chain alone would not do: it holds on purpose when a line is redacted.
    """
    digest = blake2b(lines.read(last, min(_OPENING, done - last)), digest_size=32)
    for start in range(0, min(_PRINT, done), _PIECE):
        digest.update(lines.read(start, min(_PIECE, done - start, _PRINT - start)))
    return digest.hexdigest()
