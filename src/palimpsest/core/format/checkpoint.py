"""Checkpoints: snapshots of all projections beside a log, so that a resume reads only the newest lines."""

from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.errors import BadLog, PalimpsestError
from palimpsest.core.events import EditUndone
from palimpsest.core.format.codec import decode_line, link_of_line
from palimpsest.core.ports import LogFile

VERSION = 2


class Snapshot(Struct, frozen=True, array_like=True):
    """The state of one projection as JSON, and the version of its schema."""

    version: int
    data: Raw


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """The state of a log after event `seq`, whose line begins at byte `last_line` and ends at byte `offset`.

    `snapshots` are keyed by the names of the projections. `jumps` are pairs of an event and its parent, for each event whose parent is
    not the event before it.
    """

    seq: int
    offset: int
    last_line: int
    link: str
    snapshots: dict[str, Snapshot]
    jumps: tuple[tuple[int, int], ...] = ()
    undone: tuple[tuple[int, EditUndone], ...] = ()
    v: int = 1


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as bytes: its digest, a newline, and its JSON."""
    data = _encoder.encode(checkpoint)
    return sha256(data).hexdigest().encode() + b"\n" + data


def load_checkpoint(lines: LogFile) -> Checkpoint | None:
    """Return the checkpoint of a log, or `None` if it is missing, damaged, of another version or of another log.

    Raises `BadLog` if the line that it was made after was changed: nothing else protects the last line of a log.
    """
    checkpoint = stored_checkpoint(lines)
    return checkpoint if checkpoint is not None and _matches(checkpoint, lines) else None


def stored_checkpoint(lines: LogFile) -> Checkpoint | None:
    """Return the checkpoint beside a log, whether it matches the log or not; `None` if it is missing, damaged or of another version."""
    stored = lines.load_checkpoint()
    if stored is None:
        return None
    digest, _, data = stored.partition(b"\n")
    if sha256(data).hexdigest().encode() != digest:
        return None
    try:
        checkpoint = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return checkpoint if checkpoint.v == VERSION else None


def lost_end(lines: LogFile, last: int) -> str:
    """Return a sentence if the checkpoint is of a later event than the last one of the log; else empty. Only this shows such a loss."""
    checkpoint = stored_checkpoint(lines)
    if checkpoint is None or checkpoint.seq <= last or checkpoint.offset <= lines.size:
        return ""
    # A writer may have appended lines, and saved a checkpoint after them, since the log was opened.
    with suppress(PalimpsestError):
        lines.refresh()
    if checkpoint.offset <= lines.size:
        return ""
    return f"the log ends with event {last}, and its checkpoint is of event {checkpoint.seq}: lines were cut from its end"


def _matches(checkpoint: Checkpoint, lines: LogFile) -> bool:
    """Whether the log has the event and the link of the checkpoint at its offset. Raises `BadLog` if that line was changed."""
    start, stop = checkpoint.last_line, checkpoint.offset
    # A log that is shorter, or has its lines at other offsets, is an older copy or another log.
    if stop > lines.size + lines.torn or (start and lines.read(start - 1, 1) != b"\n"):
        return False
    if stop <= lines.size:
        line = lines.read(start, stop - start)
        event = decode_line(line, lines.name, start) if line.endswith(b"\n") else None
        if event is not None and event.seq != checkpoint.seq:
            return False
        if event is not None and link_of_line(line, event) == checkpoint.link:
            return True
    where = f"{lines.name}, byte {start}"
    raise BadLog(f"event {checkpoint.seq} is not the one that the checkpoint was made after: it was changed; see `pal verify`", where=where)
