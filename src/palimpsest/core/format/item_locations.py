"""Where the items of a view stand in the log files, so that a checkpoint need not copy them."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from palimpsest.core.errors import BadLog
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.format.codec import decode_chunk
from palimpsest.core.format.reading import LogReader
from palimpsest.core.items import Item, seq_of

# Bytes between two events of a view that are read along: one more read costs more than that.
_GAP = 4 * 1024


class FileRange(Struct, frozen=True, array_like=True, gc=False):
    """Events `first` to `last` stand in the file at `offset`, `length` bytes long."""

    first: int
    last: int
    offset: int
    length: int


def locate_items(reader: LogReader, items: Sequence[Item]) -> dict[str, tuple[FileRange, ...]]:
    """Where the events of items stand, by session; those that lie close together are joined, so that few reads bring them back."""
    wanted: dict[LogReader, list[int]] = {}
    for seq in sorted({seq_of(item.id) for item in items}):
        wanted.setdefault(reader.owner(seq), []).append(seq)
    return {owner.session: tuple(_joined(owner.spans(seqs))) for owner, seqs in wanted.items()}


def read_items(reader: LogReader, stretches: dict[str, tuple[FileRange, ...]], wanted: AbstractSet[str]) -> dict[str, Item]:
    """The wanted items by id, as they were first brought. Raises `BadLog` if the files hold something else there now."""
    found: dict[str, Item] = {}
    for session, places in stretches.items():
        owner = _reader_of(reader, session)
        for place in places:
            data = owner.lines.read(place.offset, place.length)
            for event in decode_chunk(data, owner.lines.name, place.offset):
                found.update((item.id, item) for item in all_items_of(event) if item.id in wanted)
    if len(found) < len(wanted):
        raise BadLog(f"{len(wanted) - len(found)} items of the checkpoint are no longer where it says", where=reader.lines.name)
    return found


def _reader_of(reader: LogReader, session: str) -> LogReader:
    at: LogReader | None = reader
    while at is not None and at.session != session:
        at = at.base
    if at is None:
        raise BadLog(f"the checkpoint names session {session}, which this one does not read through", where=reader.lines.name)
    return at


def _joined(spans: dict[int, tuple[int, int]]) -> Iterator[FileRange]:
    at: FileRange | None = None
    for seq, (start, stop) in spans.items():
        if at is not None and start - at.offset - at.length <= _GAP:
            at = FileRange(at.first, seq, at.offset, stop - at.offset)
            continue
        if at is not None:
            yield at
        at = FileRange(seq, seq, start, stop - start)
    if at is not None:
        yield at
