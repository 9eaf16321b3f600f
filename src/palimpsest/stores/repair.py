"""Repair of a damaged log: readable events are kept, missing ones are marked, and the damaged file stays as a copy."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from msgspec import structs

from palimpsest.core.errors import BadLog, NewerFormat, PalimpsestError
from palimpsest.core.events import Body, Event, Failed, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.lines import (
    GENESIS,
    body_bytes,
    decode_line,
    digest_of,
    encode_body,
    encode_line,
    link_of,
    load_checkpoint,
    stored_checkpoint,
)
from palimpsest.core.ports import LogFile, SessionStore
from palimpsest.core.reading import open_reader
from palimpsest.core.verify import LOST

# A single event number this far from the previous one is taken for damaged.
_LARGEST_GAP = 64
_EVENT_START = re.compile(rb'\{"seq":(\d{1,12}),')


@dataclass(frozen=True)
class RebuiltLog:
    """The lines of a rebuilt log, and the changes that were made; without changes the log was intact."""

    lines: tuple[bytes, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class _SalvagedEvent:
    """A readable event with its bytes and their offset."""

    offset: int
    line: bytes
    event: Event


def rebuild_log(data: bytes, session: str, base_link: str | None = None) -> RebuiltLog:
    """Rebuild a log from its bytes: readable events keep plausible numbers, and each missing number gets a `Failed` event.

    `base_link` is the hash link that a fork continues, as its base has it now.
    """
    changes: list[str] = []
    lost: set[int] = set()
    readable = list(_readable_events(data, changes, lost))
    placed = _number(readable, changes)
    last = max(placed, default=-1)
    while last + 1 in lost:
        last += 1
    return _LogRebuilder(session, base_link, changes).write(placed, last)


def _readable_events(data: bytes, changes: list[str], lost: set[int]) -> Iterator[_SalvagedEvent]:
    offset = 0
    for line in data.splitlines(keepends=True):
        if not line.strip():
            changes.append(f"byte {offset}: an empty line was left out")
        else:
            yield from _read_line(line, offset, changes, lost)
        offset += len(line)


def _read_line(line: bytes, offset: int, changes: list[str], lost: set[int]) -> Iterator[_SalvagedEvent]:
    try:
        yield _SalvagedEvent(offset, line, decode_line(line, "", offset))
    except NewerFormat:
        raise
    except BadLog as error:
        starts = [match.start() for match in _EVENT_START.finditer(line)]
        embedded = [piece for start, stop in pairwise([*starts, len(line)]) for piece in _embedded_event(line[start:stop], offset + start)]
        kept = f"; {len(embedded)} whole event(s) inside it were kept" if embedded else ""
        changes.append(f"byte {offset}: {error.message}{kept}")
        lost.update(int(match[1]) for match in _EVENT_START.finditer(line))
        yield from embedded


def _embedded_event(data: bytes, offset: int) -> Iterator[_SalvagedEvent]:
    """Yield the event in a part of a line; a lost newline joins two lines."""
    try:
        yield _SalvagedEvent(offset, data, decode_line(data, "", offset))
    except BadLog:
        return


def _number(readable: list[_SalvagedEvent], changes: list[str]) -> dict[int, _SalvagedEvent]:
    """Assign numbers to events: those in order keep theirs, and the others get free numbers near their offset."""
    order = _plausible([event.event.seq for event in readable])
    placed = {readable[index].event.seq: readable[index] for index in order}
    if not placed:
        return {}
    first, last = min(placed), max(placed)
    for index in sorted(set(range(len(readable))) - set(order)):
        read = readable[index]
        number: int | None = read.event.seq
        if number in placed or not first - _LARGEST_GAP <= read.event.seq <= last:
            number = _free_number(read.offset, placed)
        if number is None:
            changes.append(f"byte {read.offset}: event {read.event.seq} was repeated and was left out")
            continue
        changes.append(f"byte {read.offset}: event {read.event.seq} was out of order and is event {number} now")
        placed[number] = read
    return placed


def _plausible(numbers: list[int]) -> list[int]:
    """Return the indexes of plausible numbers: those in ascending order, without single ones far from the previous one."""
    order = _longest_ascending(numbers)
    kept: list[int] = []
    for index, following in zip_longest(order, order[1:]):
        is_far = bool(kept) and numbers[index] - numbers[kept[-1]] > _LARGEST_GAP
        is_single = following is None or numbers[following] != numbers[index] + 1
        if not (is_far and is_single):
            kept.append(index)
    return kept


def _longest_ascending(numbers: list[int]) -> list[int]:
    """Return the indexes of the longest ascending subsequence; events outside it were moved, repeated or changed."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        at = bisect_left(tails, number)
        before.append(ends[at - 1] if at else -1)
        tails[at : at + 1] = [number]
        ends[at : at + 1] = [place]
    chain: list[int] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        chain.append(place)
        place = before[place]
    return chain[::-1]


def _free_number(offset: int, placed: dict[int, _SalvagedEvent]) -> int | None:
    """Return a free number between the neighbours of an offset, or the next number at the end; `None` if there is none."""
    below = max((number for number, read in placed.items() if read.offset < offset), default=None)
    above = min((number for number, read in placed.items() if read.offset > offset), default=None)
    if below is None:
        return None
    if above is None:
        return below + 1
    return next((number for number in range(below + 1, above) if number not in placed), None)


class _LogRebuilder:
    """Writes the lines of a rebuilt log; a readable line stays byte-equal while the hash chain before it is unchanged."""

    def __init__(self, session: str, base_link: str | None, changes: list[str]) -> None:
        self._session = session
        self._base_link = base_link
        self._changes = changes
        self._link = GENESIS
        self._rechained = False
        self._lowest = 0
        self._lines: list[bytes] = []

    def write(self, placed: dict[int, _SalvagedEvent], last: int) -> RebuiltLog:
        if not placed:
            self._changes.append("no event could be read; a new, empty session replaces it")
            self._add(0, -1, 0, encode_body(SessionOpened(self._session)))
            return RebuiltLog(tuple(self._lines), tuple(self._changes))
        first = self._open(placed)
        for number in range(first, last + 1):
            read = placed.get(number)
            if read is None:
                self._changes.append(f"event {number} was missing; an event that says so replaces it")
                self._add(number, number - 1, 0, encode_body(Failed(*LOST, f"event {number} could not be read")))
            else:
                self._keep(read, number)
        return RebuiltLog(tuple(self._lines), tuple(self._changes))

    def _open(self, placed: dict[int, _SalvagedEvent]) -> int:
        """Write a new opening if it is missing or the base of a fork was repaired; return the number of the next event."""
        first = min(placed)
        event = placed[first].event
        body: Body = event.body
        if not isinstance(body, SessionOpened):
            first = max(first - 1, 0)
            self._changes.append("the opening of the session was missing; a new one replaces it")
            self._lowest = first
            self._add(first, first - 1, event.at, encode_body(SessionOpened(self._session)))
            return first + 1
        self._lowest = first if body.base is None else 0
        self._link = event.prev
        if body.base is not None and self._base_link not in {None, body.base.link}:
            self._changes.append("the base of this fork was repaired; its link was updated")
            self._link = self._base_link or ""
            opened = structs.replace(body, base=structs.replace(body.base, link=self._link))
            self._add(first, first - 1, event.at, encode_body(opened))
            return first + 1
        return first

    def _keep(self, read: _SalvagedEvent, number: int) -> None:
        event = read.event
        opening = not self._lines
        parent = event.parent if self._lowest <= event.parent < number or opening else number - 1
        if parent != event.parent:
            self._changes.append(f"event {number} named parent {event.parent}, which does not exist")
        body = body_bytes(read.line)
        if event.prev != self._link and not self._rechained:
            self._rechained = True
            self._changes.append(f"the chain was broken before event {number} and was computed again from there on")
        if event.prev == self._link and parent == event.parent and number == event.seq and read.line.endswith(b"\n"):
            self._lines.append(read.line)
            self._link = link_of(self._link, number, parent, event.at, event.digest or digest_of(body))
        else:
            self._add(number, parent, event.at, body, event.digest)

    def _add(self, number: int, parent: int, at: int, body: bytes, digest: str = "") -> None:
        self._lines.append(encode_line(number, parent, at, self._link, body, digest=digest))
        self._link = link_of(self._link, number, parent, at, digest or digest_of(body))


class RepairReport(Value, frozen=True):
    """The path of the copy of the damaged log (empty if the log was not rewritten), and the changes."""

    copy: str
    changes: tuple[str, ...] = ()


def repair(store: SessionStore, session: str) -> RepairReport:
    """Repair a log under its lock; the damaged file stays as a copy.

    Raises `Locked` while a writer holds the session, `NewerFormat` if the log was written by a newer version.
    """
    first = _repair_once(store, session)
    # The opening of a fork, which names its base, may be where it belongs only now.
    second = _repair_once(store, session) if first.copy else RepairReport("")
    return RepairReport(first.copy, (*first.changes, *second.changes))


def _repair_once(store: SessionStore, session: str) -> RepairReport:
    with closing(store.open(session)) as lines:
        changes = [f"the torn end of {lines.torn} bytes was set aside"] if lines.torn else []
    with closing(store.open(session, write=True)) as lines:
        rebuilt = rebuild_log(lines.read(0, lines.size), session, _base_link(store, session))
        changes += _drop_checkpoint(lines, changed=bool(rebuilt.changes))
        copy = lines.rewrite(b"".join(rebuilt.lines)) if rebuilt.changes else ""
        return RepairReport(copy, (*changes, *rebuilt.changes))


def _drop_checkpoint(lines: LogFile, *, changed: bool) -> list[str]:
    """Drop the checkpoint of a log that will be rewritten, or a checkpoint that does not match the log; return the changes."""
    try:
        load_checkpoint(lines)
    except BadLog:
        lines.save_checkpoint(b"")
        return ["the checkpoint did not match the log and was dropped"]
    checkpoint = stored_checkpoint(lines)
    is_ahead = checkpoint is not None and checkpoint.offset > lines.size
    if changed or is_ahead:
        lines.save_checkpoint(b"")
    return ["the checkpoint of lines that are gone was dropped"] if is_ahead else []


def _base_link(store: SessionStore, session: str) -> str | None:
    """Return the hash link that a fork continues, as its base has it now; `None` if it is no fork or the base cannot be read."""
    lines = store.open(session)
    try:
        reader = open_reader(store, session, lines, check=False)
    except PalimpsestError:
        lines.close()
        return None
    with closing(reader):
        return None if reader.base is None else reader.base.link(reader.first - 1)
