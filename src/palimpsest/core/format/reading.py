"""Reading the events of a log: one by number, some along a path, through the sessions that it was forked from."""

import re
from collections.abc import Iterator, Sequence

from palimpsest.core.errors import BadInput, BadLog, MissingBase
from palimpsest.core.events import EditUndone, Event, EventRef, SessionOpened
from palimpsest.core.events.event_items import item_of, numbers_of
from palimpsest.core.format.chain import broken, check_chain, prev_of
from palimpsest.core.format.checkpoint import load_checkpoint
from palimpsest.core.format.codec import GENESIS, decode_chunk, decode_line, link_of_line
from palimpsest.core.format.path import EventRange, Path, Skip, path_to
from palimpsest.core.items import Item
from palimpsest.core.ports import LogFile, SessionStore

_BLOCK = 16 * 1024
_opening_of_line = re.compile(rb'\{"seq":([0-9]{1,18}),').match
_CLOSE = 16
# Bytes that hold the seq, parent, time and link at the beginning of a line.
_OPENING = 256


class LogReader:
    """One log file and, for a fork, the log it reads through.

    It keeps no events: only where branches begin (`jumps`) and which edits were undone (`undone`), both few.
    """

    def __init__(self, session: str, lines: LogFile, opened: Event, base: "LogReader | None" = None) -> None:
        self.session = session
        self.lines = lines
        self.opened = opened
        self.first = opened.seq
        self.base = base
        self.jumps: list[tuple[int, int]] = []
        self.undone: list[tuple[int, EditUndone]] = []
        self._spans: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Let go of this file and of those below it."""
        self.lines.close()
        if self.base is not None:
            self.base.close()

    def upto(self, seq: int, store: SessionStore) -> "LogReader":
        """A reader of the same log through handles of its own, for a fork that outlives this one and knows nothing after `seq`."""
        below = None if self.base is None else self.base.upto(self.first - 1, store)
        twin = LogReader(self.session, store.open(self.session), self.opened, below)
        twin.jumps = [jump for jump in self.jumps if jump[0] <= seq]
        twin.undone = [undone for undone in self.undone if undone[0] <= seq]
        return twin

    def note(self, event: Event) -> bool:
        """Remember what an event says about the shape of the log; true when the view does not just grow by it."""
        shaped = False
        if event.parent != event.seq - 1:
            self.jumps.append((event.seq, event.parent))
            shaped = True
        if isinstance(event.body, EditUndone):
            self.undone.append((event.seq, event.body))
            shaped = True
        return shaped

    def path(self, seq: int) -> Path:
        """The way from the root to an event."""
        if seq < self.first:
            if self.base is None:
                raise BadInput(f"there is no event {seq}", where=self.lines.name)
            return self.base.path(seq)
        own = path_to(seq, self.first, self.jumps)
        start = own.runs[0].first
        parent = dict(self.jumps).get(start, start - 1)
        if parent < 0 or self.base is None:
            return own
        below = self.base.path(parent).runs
        if own.runs[0].first == below[-1].last + 1:
            return Path((*below[:-1], EventRange(below[-1].first, own.runs[0].last), *own.runs[1:]))
        return Path((*below, *own.runs))

    def skip(self, path: Path) -> Skip:
        """The edits that were undone on a path."""
        found = dict(self.base.skip(path)) if self.base is not None else {}
        for seq, body in self.undone:
            if seq in path:
                before = found.get(body.event)
                whole = not body.edits or (before is not None and not before)
                found[body.event] = frozenset() if whole else frozenset(body.edits) | (before or frozenset())
        return found

    def run(self, first: int, last: int) -> Iterator[Event]:
        """The events `first` to `last` of the log, in order. Raises `BadLog` where a line does not continue the one before."""
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
        """Read every line up to event `last` and those of the logs below, and check the chain. Raises `BadLog` where it breaks."""
        if self.base is not None:
            self.base.check(self.first - 1)
        stop = self.locate(last + 1) if last >= self.first else 0
        link: str | None = self.opened.prev if self.base is not None else GENESIS
        for offset, chunk in self.lines.chunks(0, stop):
            link = check_chain(chunk, self.lines.name, offset, link)
        self._check_next(stop, link)

    def _check_next(self, start: int, link: str | None) -> None:
        """Check the newest line that was read by what the line after it says came before."""
        if link is None or start >= self.lines.size:
            return
        line = self.lines.read(start, _OPENING)
        prev = prev_of(line)
        if prev is not None and prev != link:
            raise broken(_number(line, 0) or 0, f"{self.lines.name}, byte {start}")

    def along(self, path: Path) -> Iterator[Event]:
        """The events of a path, in order."""
        for run in path.runs:
            yield from self.run(run.first, run.last)

    def event(self, seq: int) -> Event:
        """One event, wherever it is kept."""
        if seq < self.first and self.base is not None:
            return self.base.event(seq)
        start = self.locate(seq)
        line = self.line_at(start)
        event = decode_line(line, self.lines.name, start) if line else None
        if event is None or event.seq != seq:
            raise BadInput(f"there is no event {seq}", where=self.lines.name)
        self._check_next(self._past_blanks(start + len(line), self.lines.size), link_of_line(line, event))
        return event

    def item(self, item_id: str) -> Item | None:
        """An item as its event first brought it, whether it shows now or not."""
        numbers = numbers_of(item_id)
        if numbers is None:
            return None
        try:
            return item_of(self.event(numbers[0]), item_id)
        except BadInput:
            return None

    def link(self, seq: int) -> str:
        """The hash chain up to and including an event."""
        if seq < self.first and self.base is not None:
            return self.base.link(seq)
        start = self.locate(seq)
        line = self.line_at(start)
        event = decode_line(line, self.lines.name, start) if line else None
        return link_of_line(line, event) if event is not None and event.seq == seq else ""

    def owner(self, seq: int) -> "LogReader":
        """The reader of the file that holds an event."""
        return self if seq >= self.first or self.base is None else self.base.owner(seq)

    def saw(self, seq: int, start: int, stop: int) -> None:
        """Remember where a line stands, until the spans are asked for."""
        self._spans[seq] = (start, stop)

    def spans(self, seqs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Where the lines of events of this file begin and end; only these are remembered from now on."""
        missing = [seq for seq in seqs if seq not in self._spans]
        for first, last in _runs(missing):
            for offset, chunk in self.lines.chunks(self.locate(first), self.locate(last + 1)):
                self.scan(chunk, offset)
        self._spans = {seq: self._spans.get(seq) or (self.locate(seq), self.locate(seq + 1)) for seq in seqs}
        return self._spans

    def scan(self, chunk: bytes, offset: int) -> None:
        """Remember where each line of a run of whole lines stands."""
        start = 0
        while (stop := chunk.find(b"\n", start) + 1) > 0:
            if (number := _number(chunk, start)) is not None:
                self._spans[number] = (offset + start, offset + stop)
            start = stop

    def locate(self, seq: int) -> int:
        """The byte where the line of an event begins, found by halving: lines stand in the order of their numbers."""
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
        """The first byte at or after `at` where a line begins."""
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
        """The next line that has something on it; a file that was edited by hand may have empty ones."""
        while at < stop and self.lines.read(at, 1) == b"\n":
            at += 1
        return at

    def _seq_at(self, start: int) -> int:
        number = _number(self.lines.read(start, 64), 0)
        return decode_line(self.line_at(start), self.lines.name, start).seq if number is None else number

    def line_at(self, start: int) -> bytes:
        """The whole line that begins at a byte; empty at the end."""
        return self.lines.read(start, self._line_start(start + 1, self.lines.size) - start) if start < self.lines.size else b""


def _number(data: bytes, start: int) -> int | None:
    """The number of the event whose line begins at a byte, if the line begins as we write it."""
    found = _opening_of_line(data, start)
    return None if found is None else int(found[1])


def _runs(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of numbers that lie close together: reading along is cheaper than looking for each."""
    first = last = -1
    for seq in seqs:
        if first >= 0 and seq - last > _CLOSE:
            yield first, last
            first = seq
        first, last = seq if first < 0 else first, seq
    if first >= 0:
        yield first, last


def open_reader(store: SessionStore, session: str, lines: LogFile, *, check: bool = True) -> LogReader:
    """A reader of a log and of every log below it; the shape of this file itself is still to be noted.

    Without `check` a base that changed since the fork is read all the same.
    """
    opened = _first_event(lines)
    place = _opening(opened, lines).base
    return LogReader(session, lines, opened, None if place is None else _open_base(store, lines, place, check=check))


def _opening(event: Event, lines: LogFile) -> SessionOpened:
    if not isinstance(event.body, SessionOpened):
        raise BadLog("the first line does not open a session", where=f"{lines.name}, byte 0")
    return event.body


def _first_event(lines: LogFile) -> Event:
    first = b"".join(chunk for _, chunk in _first_line(lines))
    if not first:
        raise BadLog("the log is empty; nothing was ever recorded in it", where=lines.name)
    return decode_line(first, lines.name)


def _first_line(lines: LogFile) -> Iterator[tuple[int, bytes]]:
    place = 0
    while block := lines.read(place, _BLOCK):
        newline = block.find(b"\n")
        yield place, block if newline < 0 else block[: newline + 1]
        if newline >= 0:
            return
        place += len(block)


def _open_base(store: SessionStore, lines: LogFile, place: EventRef, *, check: bool) -> LogReader:
    try:
        below = store.open(place.session)
    except BadInput as error:
        raise MissingBase(f"the fork reads through session {place.session}, which is not there", where=lines.name) from error
    try:
        base = open_reader(store, place.session, below)
    except BaseException:
        below.close()
        raise
    try:
        _note_shape(base, place.seq)
        if check:
            _check_link(base, place, lines.name)
    except BaseException:
        base.close()
        raise
    return base


def _check_link(base: LogReader, place: EventRef, where: str) -> None:
    if base.link(place.seq) != place.link:
        raise MissingBase(f"session {place.session} is not the one this was forked from: event {place.seq} differs", where=where)


def _note_shape(base: LogReader, seq: int) -> None:
    """Note the branches and undone edits of a base up to the event that a fork goes on from."""
    checkpoint = load_checkpoint(base.lines)
    start = base.first
    if checkpoint is not None and checkpoint.seq <= seq:
        base.jumps.extend(checkpoint.jumps)
        base.undone.extend(checkpoint.undone)
        start = checkpoint.seq + 1
    for event in base.run(start, seq):
        base.note(event)
