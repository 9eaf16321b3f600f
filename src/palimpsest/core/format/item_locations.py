"""Byte ranges of the items of a view in the log files, so that a checkpoint need not copy the items."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from palimpsest.core.errors import BadLog
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.codec import decode_chunk
from palimpsest.core.format.reading import LogReader
from palimpsest.core.items import Item, seq_of

# Ranges that are at most this many bytes apart are joined, because one more read would cost more.
_GAP = 4 * 1024


class FileRange(Struct, frozen=True, array_like=True, gc=False):
    """Byte range of the events `first` to `last` in a log file."""

    first: int
    last: int
    offset: int
    length: int


def locate_items(reader: LogReader, items: Sequence[Item]) -> dict[str, tuple[FileRange, ...]]:
    """Return the byte ranges of the events of the items, by session; ranges that are close together are joined."""
    wanted: dict[LogReader, list[int]] = {}
    for seq in sorted({seq_of(item.id) for item in items}):
        wanted.setdefault(reader.owner(seq), []).append(seq)
    return {owner.session: tuple(_joined(owner.spans(seqs))) for owner, seqs in wanted.items()}


def read_items(reader: LogReader, locations: dict[str, tuple[FileRange, ...]], wanted: AbstractSet[str]) -> dict[str, Item]:
    """Return the wanted items by id, as their events created them. Raises `BadLog` if the files no longer have them there."""
    found: dict[str, Item] = {}
    for session, ranges in locations.items():
        owner = _reader_of(reader, session)
        for part in ranges:
            data = owner.lines.read(part.offset, part.length)
            for event in decode_chunk(data, owner.lines.name, part.offset):
                found.update((item.id, item) for item in all_items_of(event) if item.id in wanted)
    if len(found) < len(wanted):
        raise BadLog(f"{len(wanted) - len(found)} items of the checkpoint are no longer where it says", where=reader.lines.name)
    return found


def _reader_of(reader: LogReader, session: str) -> LogReader:
    owner: LogReader | None = reader
    while owner is not None and owner.session != session:
        owner = owner.base
    if owner is None:
        raise BadLog(f"the checkpoint names session {session}, which is no base of this one", where=reader.lines.name)
    return owner


def _joined(spans: dict[int, tuple[int, int]]) -> Iterator[FileRange]:
    current: FileRange | None = None
    for seq, (start, stop) in spans.items():
        if current is not None and start - current.offset - current.length <= _GAP:
            current = FileRange(current.first, seq, current.offset, stop - current.offset)
            continue
        if current is not None:
            yield current
        current = FileRange(seq, seq, start, stop - start)
    if current is not None:
        yield current
