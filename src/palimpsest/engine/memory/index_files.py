"""The databases of recall in a home: one for each scope of notes and one for past sessions, and the removal of what was forgotten."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.stored.revision import erase
from palimpsest.memory.recall.stored.snapshot import decode_index, encode_index
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.memory.sessions.units import event_id
from palimpsest.memory.showing.note_units import IndexedNote
from palimpsest.stores.notes.folder import RECALL_FILE

if TYPE_CHECKING:
    from palimpsest.stores.notes.recall_index import RecallFile, Stored

ENTRIES: Final = " entries"
"""What the name of the entries of an index ends with, behind the name of the index."""
_entries = msgspec.msgpack.Decoder(dict[str, IndexedNote])
_units = msgspec.msgpack.Decoder(RecallUnit)
encode_entries = msgspec.msgpack.Encoder().encode


def decode_entries(data: bytes) -> dict[str, IndexedNote]:
    """Return the entries of an index of notes. Raises `msgspec.DecodeError` if they are none."""
    return _entries.decode(data)


def opened(path: Path) -> "closing[RecallFile]":
    """Return a context in which a database of recall is open. Raises `StoreError` if it cannot be opened."""
    from palimpsest.stores.notes.recall_index import RecallFile  # sqlite3 is slow to load, and a start needs none

    return closing(RecallFile(path))


def sessions_file(index_file: Path) -> Path:
    """Return the database over past sessions of the home that the database of a scope is in."""
    return index_file.parent.parent / RECALL_FILE


def read_index(stored: "Stored") -> RecallIndex:
    """Return an index from its snapshot and the units that were added since. Raises `BadInput` if the snapshot cannot be used."""
    index = RecallIndex() if stored.snapshot is None else decode_index(stored.snapshot)
    for data in stored.tail:
        try:
            unit = _units.decode(data)
        except msgspec.DecodeError as error:
            raise BadInput(f"a unit of the index is damaged: {error}", where="memory") from error
        # Two processes that read a log at the same time both add its units.
        if unit.id not in index.numbers:
            index.add(unit)
    return index


def forget_notes(index_file: Path, scope: str, names: Sequence[str], evidence: Iterable[str]) -> None:
    """Remove notes, and the events that they came from, from the databases, so that no byte of them stays there."""
    if index_file.exists():
        with opened(index_file) as stored:
            _erase_notes(stored, scope, tuple(names))
            stored.remove_usage(scope, names)
            stored.drop_vectors(scope)
            stored.purge()
    erase_evidence(sessions_file(index_file), evidence)


def erase_evidence(file: Path, evidence: Iterable[str]) -> None:
    """Remove the units of events, given as `session:seq`, from the database over past sessions."""
    by_session: dict[str, set[str]] = {}
    for each in evidence:
        by_session.setdefault(each.rpartition(":")[0], set()).add(each)
    if not by_session or not file.exists():
        return
    with opened(file) as stored:
        rows = stored.logs()
        parts = {rows[session].part for session in by_session if session in rows}
        gone = frozenset().union(*by_session.values())
        for part in parts:
            try:
                index = read_index(stored.stored(part))
            except BadInput:
                stored.drop((part,))
                continue
            quoting = {unit.session for unit in index.units if not gone.isdisjoint(unit.sources)}
            erase(index, [each for each in index.numbers if event_id(each) in gone or event_id(each).rpartition(":")[0] in quoting])
            stored.save({part: encode_index(index)})
            # A vector is of a unit with the one before it.
            stored.drop_vectors(part)
            # Units of other events that state what these say are made again, without it, when the log is read next.
            stored.forget_logs(quoting)
        stored.purge()


def _erase_notes(stored: "RecallFile", part: str, names: tuple[str, ...]) -> None:
    data, entries = stored.snapshot(part), stored.snapshot(part + ENTRIES)
    if data is None:
        return
    try:
        index, known = decode_index(data), decode_entries(entries or b"")
    except (BadInput, msgspec.DecodeError):
        index, known = RecallIndex(), {}
    erase(index, names)
    kept = {name: entry for name, entry in known.items() if name not in names}
    stored.save({part: encode_index(index), part + ENTRIES: encode_entries(kept)})
