"""Reads the events of a log by number, range or path, including those of the sessions that it was forked from."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack

from msgspec import Struct

from palimpsest.core.errors import BadInput, BadLog, MissingBase
from palimpsest.core.events import EditUndone, Event, EventRef, SessionOpened, all_items_of, item_of, numbers_of
from palimpsest.core.items import Item, seq_of
from palimpsest.core.lines import (
    GENESIS,
    EventRange,
    Path,
    UndoneEdits,
    broken,
    check_chain,
    decode_chunk,
    decode_line,
    link_of_line,
    load_checkpoint,
    path_to,
    prev_of,
)
from palimpsest.core.ports import LogFile, SessionStore

_BLOCK = 16 * 1024
_match_seq = re.compile(rb'\{"seq":([0-9]{1,18}),').match
# Events that are at most this far apart are read together.
_CLOSE = 16
# Byte ranges that are at most this many bytes apart are joined, because one more read would cost more.
_GAP = 4 * 1024
# Bytes at the start of a line that contain its seq, parent, time and link.
_ENVELOPE = 256


class LogReader:
    """Reader of one log file and, in a fork, of the logs of its base.

    It holds no events in memory, only the starts of branches (`jumps`: event and parent) and the undone edits (`undone`), both few.
    """

    def __init__(self, session: str, lines: LogFile, opened: Event, base: "LogReader | None" = None) -> None:
        self.session = session
        self.lines = lines
        self.opened = opened
        self.first = opened.seq
        # The link that the first line continues; that of a fork stands in its own opening too, so it is known without the base.
        self.opening_link = opened.body.base.link if isinstance(opened.body, SessionOpened) and opened.body.base is not None else GENESIS
        self.base = base
        self.jumps: list[tuple[int, int]] = []
        self.undone: list[tuple[int, EditUndone]] = []
        self._spans: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Close this file and those of its bases."""
        self.lines.close()
        if self.base is not None:
            self.base.close()

    def upto(self, seq: int, store: SessionStore) -> "LogReader":
        """Return a reader of the same log up to event `seq` with its own file handles, for a fork that may outlive this reader."""
        below = None if self.base is None else self.base.upto(self.first - 1, store)
        reader = LogReader(self.session, store.open(self.session), self.opened, below)
        reader.jumps = [jump for jump in self.jumps if jump[0] <= seq]
        reader.undone = [undone for undone in self.undone if undone[0] <= seq]
        return reader

    def note_branching(self, event: Event) -> None:
        """Remember the event if it starts a branch or undoes an edit."""
        if event.parent != event.seq - 1:
            self.jumps.append((event.seq, event.parent))
        if isinstance(event.body, EditUndone):
            self.undone.append((event.seq, event.body))

    def path(self, seq: int) -> Path:
        """Return the path from the first event to event `seq`. Raises `BadInput` if there is no such event."""
        if seq < self.first:
            if self.base is None:
                raise BadInput(f"there is no event {seq}", where=self.lines.name)
            return self.base.path(seq)
        own = path_to(seq, self.first, self.jumps)
        start = own.ranges[0].first
        parent = dict(self.jumps).get(start, start - 1)
        if parent < 0 or self.base is None:
            return own
        below = self.base.path(parent).ranges
        if own.ranges[0].first == below[-1].last + 1:
            return Path((*below[:-1], EventRange(below[-1].first, own.ranges[0].last), *own.ranges[1:]))
        return Path((*below, *own.ranges))

    def undone_edits(self, path: Path) -> UndoneEdits:
        """Return the edits that were undone on a path."""
        skip = dict(self.base.undone_edits(path)) if self.base is not None else {}
        for seq, body in self.undone:
            if seq in path:
                before = skip.get(body.event)
                whole = not body.edits or (before is not None and not before)
                skip[body.event] = frozenset() if whole else frozenset(body.edits) | (before or frozenset())
        return skip

    def run(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events `first` to `last`, both included. Raises `BadLog` where a line does not continue the previous one."""
        if first < self.first and self.base is not None:
            yield from self.base.run(first, min(last, self.first - 1))
            first = self.first
        if first > last:
            return
        link: str | None = None
        stop = self.locate(last + 1)
        for offset, chunk in self.lines.chunks(self.locate(first), stop):
            events = decode_chunk(chunk, self.lines.name, offset)
            link = check_chain(chunk, self.lines.name, offset, link)
            yield from events
        self._check_next(stop, link)

    def check(self, last: int) -> None:
        """Verify the chain of all lines up to event `last`, bases included. Raises `BadLog` where it is broken."""
        if self.base is not None:
            self.base.check(self.first - 1)
        stop = self.locate(last + 1) if last >= self.first else 0
        link: str | None = self.opening_link
        for offset, chunk in self.lines.chunks(0, stop):
            link = check_chain(chunk, self.lines.name, offset, link)
        self._check_next(stop, link)

    def _check_next(self, start: int, link: str | None) -> None:
        """Verify the link of the last line that was read with the line at byte `start`, which follows it. Raises `BadLog`."""
        if link is None or start >= self.lines.size:
            return
        line = self.lines.read(start, _ENVELOPE)
        prev = prev_of(line)
        if prev is not None and prev != link:
            raise broken(_number(line, 0) or 0, f"{self.lines.name}, byte {start}")

    def along(self, path: Path, after: int = -1) -> Iterator[Event]:
        """Yield the events of a path after event `after`, in order. Ranges that are close together are read at once."""
        parts = [EventRange(max(part.first, after + 1), part.last) for part in path.ranges if part.last > after]
        start = 0
        for stop in range(1, len(parts) + 1):
            if stop < len(parts) and parts[stop].first - parts[stop - 1].last <= _CLOSE:
                continue
            close = Path(tuple(parts[start:stop]))
            yield from (event for event in self.run(parts[start].first, close.tip) if event.seq in close)
            start = stop

    def event(self, seq: int) -> Event:
        """Return one event of this log or of its bases. Raises `BadInput` if there is none."""
        if seq < self.first and self.base is not None:
            return self.base.event(seq)
        start, line, event = self._line_of(seq)
        if event is None:
            raise BadInput(f"there is no event {seq}", where=self.lines.name)
        self._check_next(self._past_blanks(start + len(line), self.lines.size), link_of_line(line, event))
        return event

    def item(self, item_id: str) -> Item | None:
        """Return an item as its event created it, visible or not, or `None`."""
        numbers = numbers_of(item_id)
        if numbers is None:
            return None
        try:
            return item_of(self.event(numbers[0]), item_id)
        except BadInput:
            return None

    def link(self, seq: int) -> str:
        """Return the link of an event; empty if there is no such event."""
        if seq < self.first and self.base is not None:
            return self.base.link(seq)
        _, line, event = self._line_of(seq)
        return "" if event is None else link_of_line(line, event)

    def _line_of(self, seq: int) -> tuple[int, bytes, Event | None]:
        """Return the offset, the bytes and the event of the line of an event of this file; without an event if there is none."""
        start = self.locate(seq)
        line = self.line_at(start)
        event = decode_line(line, self.lines.name, start) if line else None
        return start, line, event if event is not None and event.seq == seq else None

    def owner(self, seq: int) -> "LogReader":
        """Return the reader of the file that contains an event."""
        return self if seq >= self.first or self.base is None else self.base.owner(seq)

    def remember_line(self, seq: int, start: int, stop: int) -> None:
        """Remember the byte range of a line until the next call of `spans`."""
        self._spans[seq] = (start, stop)

    def spans(self, seqs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the byte ranges of the lines of events of this file, and forget those of all other events."""
        missing = [seq for seq in seqs if seq not in self._spans]
        for first, last in _runs(missing):
            for offset, chunk in self.lines.chunks(self.locate(first), self.locate(last + 1)):
                self.scan(chunk, offset)
        self._spans = {seq: self._spans.get(seq) or (self.locate(seq), self.locate(seq + 1)) for seq in seqs}
        return self._spans

    def scan(self, chunk: bytes, offset: int) -> None:
        """Remember the byte range of each line in a chunk of complete lines."""
        start = 0
        while (stop := chunk.find(b"\n", start) + 1) > 0:
            if (number := _number(chunk, start)) is not None:
                self._spans[number] = (offset + start, offset + stop)
            start = stop

    def locate(self, seq: int) -> int:
        """Return the byte offset of the line of an event, by binary search: lines are ordered by sequence number."""
        low, high = 0, self.lines.size
        while low < high:
            middle = (low + high) // 2
            start = self._line_start(middle, high)
            if start >= high or self._seq_at(start) >= seq:
                high = middle
            else:
                low = self._line_start(start + 1, self.lines.size)
        return low

    def _line_start(self, at: int, stop: int) -> int:
        """Return the offset of the first line that begins at or after `at`."""
        if at == 0:
            return 0
        place = at - 1
        while place < stop:
            block = self.lines.read(place, _BLOCK)
            if not block:
                return stop
            newline = block.find(b"\n")
            if newline >= 0:
                return self._past_blanks(place + newline + 1, stop)
            place += len(block)
        return stop

    def _past_blanks(self, at: int, stop: int) -> int:
        """Return the offset of the next line that is not empty; a file that was edited by hand may have empty lines."""
        while at < stop and self.lines.read(at, 1) == b"\n":
            at += 1
        return at

    def _seq_at(self, start: int) -> int:
        number = _number(self.lines.read(start, 64), 0)
        return decode_line(self.line_at(start), self.lines.name, start).seq if number is None else number

    def line_at(self, start: int) -> bytes:
        """Return the complete line at a byte offset; empty at the end of the file."""
        return self.lines.read(start, self._line_start(start + 1, self.lines.size) - start) if start < self.lines.size else b""


def _number(data: bytes, start: int) -> int | None:
    """Return the sequence number of the line at an offset, or `None` if the line is not formatted as this library writes it."""
    found = _match_seq(data, start)
    return None if found is None else int(found[1])


def _runs(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each group of close numbers: reading the events between them is cheaper than separate searches."""
    first = last = -1
    for seq in seqs:
        if first >= 0 and seq - last > _CLOSE:
            yield first, last
            first = seq
        first, last = seq if first < 0 else first, seq
    if first >= 0:
        yield first, last


def open_reader(
    store: SessionStore, session: str, lines: LogFile, *, check: bool = True, alone: bool = False, above: frozenset[str] = frozenset()
) -> LogReader:
    """Return a reader of a log and of its bases. The caller still has to note the branches of this file.

    Raises `MissingBase` if a base is missing or, unless `check` is false, was changed since the fork, or if it leads
    back to one of the sessions `above` it. With `alone` bases are not read.
    """
    first, has_ended = b"", False
    while not has_ended and (block := lines.read(len(first), _BLOCK)):
        part, newline, _ = block.partition(b"\n")
        first, has_ended = first + part + newline, bool(newline)
    if not first:
        raise BadLog("the log is empty; nothing was ever recorded in it", where=lines.name)
    opened = decode_line(first, lines.name)
    if not isinstance(opened.body, SessionOpened):
        raise BadLog("the first line does not open a session", where=f"{lines.name}, byte 0")
    place = opened.body.base
    return LogReader(
        session, lines, opened, None if place is None or alone else _open_base(store, lines, place, above | {session}, check=check)
    )


def _open_base(store: SessionStore, lines: LogFile, place: EventRef, above: frozenset[str], *, check: bool) -> LogReader:
    if place.session in above:
        raise MissingBase(f"the base of the fork, session {place.session}, leads back to the fork", where=lines.name)
    try:
        below = store.open(place.session)
    except BadInput as error:
        raise MissingBase(f"the base of the fork, session {place.session}, does not exist", where=lines.name) from error
    with ExitStack() as opened:
        opened.callback(below.close)
        base = open_reader(store, place.session, below, above=above)
        opened.callback(base.close)
        _note_branches(base, place.seq)
        if check and base.link(place.seq) != place.link:
            raise MissingBase(f"session {place.session} is not the base of this fork: event {place.seq} differs", where=lines.name)
        opened.pop_all()
    return base


def _note_branches(base: LogReader, seq: int) -> None:
    """Note the branches and undone edits of a base up to event `seq`, from which the fork continues."""
    checkpoint = load_checkpoint(base.lines)
    start = base.first
    if checkpoint is not None and checkpoint.seq <= seq:
        base.jumps.extend(checkpoint.jumps)
        base.undone.extend(checkpoint.undone)
        start = checkpoint.seq + 1
    for event in base.run(start, seq):
        base.note_branching(event)


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
