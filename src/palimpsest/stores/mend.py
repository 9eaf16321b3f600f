"""Repairing a damaged log: a copy is kept, what can be read stays, what cannot is named by a line in its place."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from palimpsest.core.codec import GENESIS, body_bytes, decode_line, digest_of, encode_body, encode_line, link_of
from palimpsest.core.errors import BadLog, MissingBase, NewerFormat
from palimpsest.core.events import Body, Event, Failed, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.reading import open_reader
from palimpsest.stores.disk import refusal, sync_folder
from palimpsest.stores.jsonl import JsonlShelf


class Repair(Value, frozen=True):
    """Where the damaged file was kept (empty if nothing had to change), and what was done."""

    copy: str
    changes: tuple[str, ...] = ()


def repair(shelf: JsonlShelf, session: str) -> Repair:
    """Make a log readable again; its lock is held meanwhile, and the damaged file stays beside it."""
    lines = shelf.open(session, write=True)
    try:
        path = shelf.path_of(session)
        mending = _Mending(path, _base_link(shelf, session))
        fresh = path.with_suffix(".mending")
        try:
            with fresh.open("wb") as file:
                for line in mending.lines():
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if not mending.changes:
                fresh.unlink()
                return Repair("")
            copy = _free_name(path)
            os.link(path, copy)
            fresh.replace(path)
            path.with_suffix(".checkpoint").unlink(missing_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise refusal(error, path, "repair") from error
        return Repair(str(copy), tuple(mending.changes))
    finally:
        lines.close()


def _free_name(path: Path) -> Path:
    number = 1
    while (copy := path.with_suffix(f".damaged-{number}")).exists():
        number += 1
    return copy


def _base_link(shelf: JsonlShelf, session: str) -> str | None:
    """The chain that a fork continues, as its base has it now; none if it is no fork or the base is gone."""
    lines = shelf.open(session)
    try:
        reader = open_reader(shelf, lines, check=False)
    except (BadLog, MissingBase):
        return None
    finally:
        lines.close()
    return None if reader.base is None else reader.base.link(reader.first - 1)


class _Mending:
    """The lines of a mended log, one after another, and what had to be changed on the way."""

    def __init__(self, path: Path, base_link: str | None) -> None:
        self._path = path
        self._base_link = base_link
        self._expected = 0
        self._link = GENESIS
        self._rechained = False
        self.changes: list[str] = []

    def lines(self) -> Iterator[bytes]:
        offset = 0
        with self._path.open("rb") as file:
            for line in file:
                yield from self._mend(line, offset)
                offset += len(line)

    def _mend(self, line: bytes, offset: int) -> Iterator[bytes]:
        if not line.strip():
            self.changes.append(f"byte {offset}: an empty line was left out")
            return
        try:
            event = decode_line(line, str(self._path), offset)
        except NewerFormat:
            raise
        except BadLog as error:
            self.changes.append(f"byte {offset}: {error.message}; a line that says so stands in its place")
            yield self._write(Failed("read", "damaged", f"a line of {len(line)} bytes could not be read"))
            return
        if offset == 0:
            yield self._open(line, event)
            return
        if event.seq < self._expected:
            self.changes.append(f"byte {offset}: event {event.seq} stood a second time and was left out")
            return
        while self._expected < event.seq:
            self.changes.append(f"byte {offset}: event {self._expected} was missing; a line that says so stands in its place")
            yield self._write(Failed("read", "missing", f"event {self._expected} was not in the file"))
        yield self._keep(line, event, offset)

    def _open(self, line: bytes, event: Event) -> bytes:
        self._expected = event.seq
        self._link = event.prev
        body = event.body
        base = body.base if isinstance(body, SessionOpened) else None
        if isinstance(body, SessionOpened) and base is not None and self._base_link not in {None, base.link}:
            self.changes.append(f"byte 0: the base was repaired; event {event.seq} names it anew")
            self._link = self._base_link or ""
            opened = structs.replace(body, base=structs.replace(base, link=self._link))
            return self._write(opened, event.at)
        return self._keep(line, event, 0)

    def _keep(self, line: bytes, event: Event, offset: int) -> bytes:
        """A readable line stays byte for byte, unless its place in the chain changed."""
        digest = event.digest or digest_of(body_bytes(line))
        lost = not -1 <= event.parent < event.seq
        parent = event.seq - 1 if lost else event.parent
        same = event.prev == self._link and not lost and line.endswith(b"\n")
        if lost:
            self.changes.append(f"byte {offset}: event {event.seq} named parent {event.parent}, which is not there")
        elif event.prev != self._link and not self._rechained:
            self._rechained = True
            self.changes.append(f"byte {offset}: the chain was broken before event {event.seq} and continues anew from there")
        kept = line if same else encode_line(event.seq, parent, event.at, self._link, body_bytes(line), digest=event.digest)
        self._link = link_of(self._link, event.seq, parent, event.at, digest)
        self._expected = event.seq + 1
        return kept

    def _write(self, body: Body, at: int = 0) -> bytes:
        data = encode_body(body)
        seq = self._expected
        line = encode_line(seq, seq - 1, at, self._link, data)
        self._link = link_of(self._link, seq, seq - 1, at, digest_of(data))
        self._expected = seq + 1
        return line
