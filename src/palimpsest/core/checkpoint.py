"""The sidecar of a log: enough of its projections that resuming costs the tail and not the history."""

from hashlib import sha256

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.codec import decode_line, link_of_line
from palimpsest.core.errors import BadLog
from palimpsest.core.events import NULL, CallStarted, EditUndone
from palimpsest.core.health import Health
from palimpsest.core.items import Cover
from palimpsest.core.ledger import Ledger
from palimpsest.core.ports import LogFile
from palimpsest.core.view import Fact, Reported, RunningNotes


class Stretch(Struct, frozen=True, array_like=True, gc=False):
    """Events `first` to `last` stand in the file at `offset`, `length` bytes long."""

    first: int
    last: int
    offset: int
    length: int


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """Projections as of an event; item contents are not copied, only where their events stand.

    `stretches` go by the session whose file they lie in, for a fork reads through others. `memo` is what a layer above wants to find
    again as of this event.
    """

    seq: int
    offset: int
    last_line: int
    link: str
    head: tuple[str, ...]
    items: tuple[str, ...]
    stretches: dict[str, tuple[Stretch, ...]]
    ledger: Ledger
    health: Health
    masks: dict[str, Cover] = {}
    facts: dict[str, Fact] = {}
    notes: RunningNotes | None = None
    pins: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    epoch: int = 0
    reported: Reported | None = None
    call: CallStarted | None = None
    model: str = ""
    mode: str = ""
    inbox: tuple[int, ...] = ()
    jumps: tuple[tuple[int, int], ...] = ()
    undone: tuple[tuple[int, EditUndone], ...] = ()
    memo: Raw = NULL
    v: int = 1


VERSION = 1
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes, its own digest first."""
    data = _encoder.encode(checkpoint)
    return sha256(data).hexdigest().encode() + b"\n" + data


def load_checkpoint(lines: LogFile) -> Checkpoint | None:
    """The checkpoint beside a log, if it is whole, of this version, and about this very log; a log is always enough without."""
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
    return checkpoint if checkpoint.v == VERSION and _matches(checkpoint, lines) else None


def _matches(checkpoint: Checkpoint, lines: LogFile) -> bool:
    """Whether the log has, at the place the checkpoint names, the event and the chain that it names."""
    if checkpoint.offset > lines.size:
        return False
    line = lines.read(checkpoint.last_line, checkpoint.offset - checkpoint.last_line)
    try:
        event = decode_line(line, lines.name)
    except BadLog:
        return False
    return event.seq == checkpoint.seq and line.endswith(b"\n") and link_of_line(line, event) == checkpoint.link
