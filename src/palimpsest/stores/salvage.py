"""Repairs a damaged log: what can be read is saved, a copy is kept, and what is missing is named."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from msgspec import structs

from palimpsest.core.errors import BadLog, MissingBase, NewerFormat, PalimpsestError
from palimpsest.core.events import Body, Event, Failed, SessionOpened
from palimpsest.core.format.checkpoint import load_checkpoint
from palimpsest.core.format.codec import GENESIS, body_bytes, decode_line, digest_of, encode_body, encode_line, link_of
from palimpsest.core.format.reading import open_reader
from palimpsest.core.items import Value
from palimpsest.core.ports import LogFile, SessionStore

# A lone number that is so far from the one before it is taken for a damaged one.
_FAR = 64
_START = re.compile(rb'\{"seq":(\d{1,12}),')


@dataclass(frozen=True)
class Salvage:
    """The lines of the mended log, and what had to be changed; no change means that the log was whole."""

    lines: tuple[bytes, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """A readable event, the bytes it was read from, and where they began."""

    offset: int
    line: bytes
    event: Event


def salvage(data: bytes, session: str, base_link: str | None = None) -> Salvage:
    """Every readable event under its number where that can be believed; numbers that are missing get a line that says so."""
    changes: list[str] = []
    lost: set[int] = set()
    found = list(_readable(data, changes, lost))
    placed = _place(found, changes)
    last = max(placed, default=-1)
    while last + 1 in lost:
        last += 1
    return _Chain(session, base_link, changes).write(placed, last)


def _readable(data: bytes, changes: list[str], lost: set[int]) -> Iterator[_Found]:
    offset = 0
    for line in data.splitlines(keepends=True):
        if not line.strip():
            changes.append(f"byte {offset}: an empty line was left out")
        else:
            yield from _read_line(line, offset, changes, lost)
        offset += len(line)


def _read_line(line: bytes, offset: int, changes: list[str], lost: set[int]) -> Iterator[_Found]:
    try:
        yield _Found(offset, line, decode_line(line, "", offset))
    except NewerFormat:
        raise
    except BadLog as error:
        starts = [match.start() for match in _START.finditer(line)]
        whole = [piece for start, stop in pairwise([*starts, len(line)]) for piece in _piece(line[start:stop], offset + start)]
        what = f"; {len(whole)} whole event(s) inside it were kept" if whole else ""
        changes.append(f"byte {offset}: {error.message}{what}")
        lost.update(int(match[1]) for match in _START.finditer(line))
        yield from whole


def _piece(data: bytes, offset: int) -> Iterator[_Found]:
    """An event that stands here whole; a lost newline glues two lines together."""
    try:
        yield _Found(offset, data, decode_line(data, "", offset))
    except BadLog:
        return


def _place(found: list[_Found], changes: list[str]) -> dict[int, _Found]:
    """Which event stands under which number: most stand in order, and the others go where there is room for them."""
    order = _believed([each.event.seq for each in found])
    placed = {found[index].event.seq: found[index] for index in order}
    if not placed:
        return {}
    first, last = min(placed), max(placed)
    for index in sorted(set(range(len(found))) - set(order)):
        each = found[index]
        number: int | None = each.event.seq
        if number in placed or not first - _FAR <= each.event.seq <= last:
            number = _gap_around(each.offset, placed)
        if number is None:
            changes.append(f"byte {each.offset}: event {each.event.seq} stood a second time and was left out")
            continue
        changes.append(f"byte {each.offset}: event {each.event.seq} stood out of order and is event {number}")
        placed[number] = each
    return placed


def _believed(numbers: list[int]) -> list[int]:
    """The places of numbers that can be believed: in order, and no lone one far from the others."""
    order = _in_order(numbers)
    kept: list[int] = []
    for place, following in zip_longest(order, order[1:]):
        far = bool(kept) and numbers[place] - numbers[kept[-1]] > _FAR
        lone = following is None or numbers[following] != numbers[place] + 1
        if not (far and lone):
            kept.append(place)
    return kept


def _in_order(numbers: list[int]) -> list[int]:
    """The places of the longest run of growing numbers; what is not in it was moved, repeated or changed."""
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


def _gap_around(offset: int, placed: dict[int, _Found]) -> int | None:
    """A free number between the neighbours of a line, or the next one at the end."""
    below = max((number for number, each in placed.items() if each.offset < offset), default=None)
    above = min((number for number, each in placed.items() if each.offset > offset), default=None)
    if below is None:
        return None
    if above is None:
        return below + 1
    return next((number for number in range(below + 1, above) if number not in placed), None)


class _Chain:
    """The mended lines, one after the other; a readable line stays byte for byte while the chain before it is the old one."""

    def __init__(self, session: str, base_link: str | None, changes: list[str]) -> None:
        self._session = session
        self._base_link = base_link
        self._changes = changes
        self._link = GENESIS
        self._rechained = False
        self._lowest = 0
        self._lines: list[bytes] = []

    def write(self, placed: dict[int, _Found], last: int) -> Salvage:
        if not placed:
            self._changes.append("nothing in it could be read; a new, empty session stands in its place")
            self._add(0, -1, 0, encode_body(SessionOpened(self._session)))
            return Salvage(tuple(self._lines), tuple(self._changes))
        first = self._open(placed)
        for number in range(first, last + 1):
            each = placed.get(number)
            if each is None:
                self._changes.append(f"event {number} was missing; a line that says so stands in its place")
                self._add(number, number - 1, 0, encode_body(Failed("read", "missing", f"event {number} could not be read")))
            else:
                self._keep(each, number)
        return Salvage(tuple(self._lines), tuple(self._changes))

    def _open(self, placed: dict[int, _Found]) -> int:
        """The opening, made anew if it is damaged or if the base of a fork was repaired; returns the next number."""
        first = min(placed)
        event = placed[first].event
        body: Body = event.body
        if not isinstance(body, SessionOpened):
            first = max(first - 1, 0)
            self._changes.append("the opening of the session was missing; a new one stands in its place")
            self._lowest = first
            self._add(first, first - 1, event.at, encode_body(SessionOpened(self._session)))
            return first + 1
        self._lowest = first if body.base is None else 0
        self._link = event.prev
        if body.base is not None and self._base_link not in {None, body.base.link}:
            self._changes.append("the base of this fork was repaired and is named anew")
            self._link = self._base_link or ""
            opened = structs.replace(body, base=structs.replace(body.base, link=self._link))
            self._add(first, first - 1, event.at, encode_body(opened))
            return first + 1
        return first

    def _keep(self, each: _Found, number: int) -> None:
        event = each.event
        opening = not self._lines
        parent = event.parent if self._lowest <= event.parent < number or opening else number - 1
        if parent != event.parent:
            self._changes.append(f"event {number} named parent {event.parent}, which is not there")
        body = body_bytes(each.line)
        if event.prev != self._link and not self._rechained:
            self._rechained = True
            self._changes.append(f"the chain was broken before event {number} and continues anew from there")
        if event.prev == self._link and parent == event.parent and number == event.seq and each.line.endswith(b"\n"):
            self._lines.append(each.line)
            self._link = link_of(self._link, number, parent, event.at, event.digest or digest_of(body))
        else:
            self._add(number, parent, event.at, body, event.digest)

    def _add(self, number: int, parent: int, at: int, body: bytes, digest: str = "") -> None:
        self._lines.append(encode_line(number, parent, at, self._link, body, digest=digest))
        self._link = link_of(self._link, number, parent, at, digest or digest_of(body))


class Repair(Value, frozen=True):
    """Where the damaged log was kept (empty if only a torn end was set aside, or nothing), and what was done."""

    copy: str
    changes: tuple[str, ...] = ()


def repair(store: SessionStore, session: str) -> Repair:
    """Make a log readable again; its lock is held meanwhile, and the damaged lines are kept."""
    torn = _torn(store, session)
    lines = store.open(session, write=True)
    try:
        changes = [f"the torn end of {torn} bytes was set aside"] if torn else []
        found = salvage(lines.read(0, lines.size), session, _base_link(store, session))
        changes += _dropped_checkpoint(lines, changed=bool(found.changes))
        copy = lines.rewrite(b"".join(found.lines)) if found.changes else ""
        return Repair(copy, (*changes, *found.changes))
    finally:
        lines.close()


def _dropped_checkpoint(lines: LogFile, *, changed: bool) -> list[str]:
    """Drop the checkpoint of a log that is about to be rewritten, or whose last line is not the one that it was made after."""
    try:
        load_checkpoint(lines)
    except BadLog:
        lines.save_checkpoint(b"")
        return ["the checkpoint, which was made after another last line, was dropped"]
    if changed:
        lines.save_checkpoint(b"")
    return []


def _torn(store: SessionStore, session: str) -> int:
    lines = store.open(session)
    try:
        return lines.torn
    finally:
        lines.close()


def _base_link(store: SessionStore, session: str) -> str | None:
    """The chain that a fork continues, as its base has it now; none if it is no fork or the base cannot be read."""
    lines = store.open(session)
    try:
        reader = open_reader(store, session, lines, check=False)
    except (PalimpsestError, MissingBase):
        lines.close()
        return None
    try:
        return None if reader.base is None else reader.base.link(reader.first - 1)
    finally:
        reader.close()
