"""The digest of a transcript: evidence and messages of the user up to a byte, kept in the home, so that a hook reads only what is new."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Body, Event, ModelReplied, TaskChanged, ToolReturned, UserSaid
from palimpsest.core.items import Text, Value
from palimpsest.core.situation import Evidence
from palimpsest.foreign.reading.transcript import ReadEvent, TranscriptSource
from palimpsest.stores.files import FileStateSlot, write_private

if TYPE_CHECKING:
    from palimpsest.foreign.reading.transcript import Format

# Bytes of a transcript that one step reads; a longer line is left out.
STEP_BYTES: Final = 16 * 1024 * 1024
# Bytes that a hook reads at most while its agent waits, about 0.15 s of work.
HOOK_BYTES: Final = 3 * 1024 * 1024
# Characters of the user's messages that are kept, of one and of all; the newest stay.
MESSAGE_CHARS: Final = 4_000
ALL_CHARS: Final = 24_000
_FINGERPRINT_BYTES: Final = 512
_FOLDER: Final = "hooks"
_WATCHED: Final = (UserSaid, ModelReplied, ToolReturned, TaskChanged)


class Said(Struct, frozen=True):
    """A message of the user, cut to its beginning if it is long, and its time in milliseconds since 1970."""

    at: int
    text: str


class Digest(Struct, frozen=True):
    """What the first `offset` bytes of a transcript prove, apart from `skipped` bytes that were not read.

    `fingerprint` is of the bytes before `offset`: a file that was replaced has others there. `events` counts the events so far.
    """

    v: int = 1
    offset: int = 0
    fingerprint: str = ""
    events: int = 0
    skipped: int = 0
    evidence: Evidence = Evidence()
    messages: tuple[Said, ...] = ()


def digest_slot(home: Path, transcript: Path) -> FileStateSlot:
    """Return where the digest of a transcript is kept; it can be deleted without loss."""
    return FileStateSlot(home / _FOLDER / f"{sha256(os.fsencode(transcript)).hexdigest()[:32]}.json")


def kept_digest(slot: FileStateSlot, transcript: Path) -> Digest:
    """Return the digest that was kept of a transcript; an empty one if there is none, or the file is another one now."""
    data = slot.load()
    try:
        found = Digest() if data is None else msgspec.json.decode(data, type=Digest)
    except (msgspec.DecodeError, UnicodeError):
        return Digest()
    return found if found.v == Digest().v and found.fingerprint == _fingerprint(transcript, found.offset) else Digest()


def refresh(slot: FileStateSlot, transcript: Path) -> Digest:
    """Read all that is new in a transcript, step by step, keep the digest and return it. Raises `OSError` if it cannot be read."""
    digest = kept_digest(slot, transcript)
    while (read := advanced(digest, transcript, STEP_BYTES)) is not digest:
        digest = read
        slot.save(msgspec.json.encode(digest))
    return digest


def newest(slot: FileStateSlot, transcript: Path) -> Digest:
    """Return the kept digest with what is new in the transcript, at most its last 3 MiB; nothing is kept. Raises `OSError`."""
    digest = kept_digest(slot, transcript)
    size = transcript.stat().st_size
    if size - digest.offset > HOOK_BYTES:
        start = _line_start(transcript, size - HOOK_BYTES)
        digest = replace(digest, offset=start, skipped=digest.skipped + start - digest.offset)
    return advanced(digest, transcript, HOOK_BYTES)


def advanced(digest: Digest, transcript: Path, most: int) -> Digest:
    """Return the digest after the next lines of a transcript, at most `most` bytes; the same value if there is no further line."""
    data, stop = _lines(transcript, digest.offset, most)
    if stop == digest.offset:
        return digest
    found = _with_events(digest, _events(transcript, data, digest.offset))
    skipped = digest.skipped + stop - digest.offset - len(data)
    return replace(found, offset=stop, fingerprint=_fingerprint(transcript, stop), skipped=skipped)


def session_digest(database: Path, session: str, before: str = "") -> Digest:
    """Return what a session in the database of OpenCode proves before one of its messages, by its id; all of it if there is none such."""
    from palimpsest.foreign.opencode.format import OpencodeFormat

    read: list[tuple[int, Body | None]] = []
    places: dict[str, int] = {}
    for each in OpencodeFormat().read(TranscriptSource("opencode", str(database), session), _NoBlobs()):
        if isinstance(each, ReadEvent):
            if before and each.key.startswith(before):
                break
            _take(read, places, each)
    return _with_events(Digest(), ((at, body) for at, body in read if body is not None))


def _with_events(digest: Digest, events: Iterable[tuple[int, Body]]) -> Digest:
    """Return the digest after some more events, each with its time in milliseconds since 1970."""
    projection = EvidenceProjection()
    projection.start_from(digest.evidence)
    messages, seq = list(digest.messages), digest.events
    for seq, (at, body) in enumerate(events, digest.events + 1):
        projection.take(Event(seq, seq - 1, at, "", body))
        if isinstance(body, UserSaid):
            messages.append(Said(at, "\n".join(part.text for part in body.parts if isinstance(part, Text))[:MESSAGE_CHARS]))
    return replace(digest, events=seq, evidence=projection.value(), messages=_newest(messages))


def _newest(messages: list[Said]) -> tuple[Said, ...]:
    room, kept = ALL_CHARS, 0
    for message in reversed(messages):
        room -= len(message.text)
        if room < 0:
            break
        kept += 1
    return tuple(messages[len(messages) - kept :])


def _lines(path: Path, start: int, most: int) -> tuple[bytes, int]:
    """Return whole lines from a byte on and where they end; no bytes for a line that is longer than `most`, which is passed over."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(most)
        end = data.rfind(b"\n") + 1
        if end or len(data) < most:
            return data[:end], start + end
        stop = start + len(data)
        while chunk := file.read(most):
            place = chunk.find(b"\n") + 1
            if place:
                return b"", stop + place
            stop += len(chunk)
    return b"", start


def _line_start(path: Path, start: int) -> int:
    """Return the first byte after a line end from `start` on; the size of the file if there is none."""
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(HOOK_BYTES):
            place = chunk.find(b"\n") + 1
            if place:
                return start + place
            start += len(chunk)
    return start


def _fingerprint(path: Path, offset: int) -> str:
    if not offset:
        return ""
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset - _FINGERPRINT_BYTES))
            data = file.read(min(offset, _FINGERPRINT_BYTES))
    except OSError:
        return "unreadable"
    return sha256(data).hexdigest()[:16]


def _events(path: Path, data: bytes, start: int) -> Iterator[tuple[int, Body]]:
    """Yield the events of some lines that evidence rests on.

    Those that the user has taken back are left out if the lines begin with the file; the tree of later lines is not known whole, and a
    message too many is better than one that is missing.
    """
    with path.open("rb") as file:
        head = file.readline(STEP_BYTES)
    is_codex = b'"payload"' in head
    # The lines are read as a file of their own by the reader of their format; a rollout needs its first line.
    first = head if is_codex and start else b""
    with tempfile.TemporaryDirectory(prefix="pal-hook-") as folder:
        copy = Path(folder) / path.name
        write_private(copy, first + data, sync=False)
        read: list[tuple[int, Body | None]] = []
        places: dict[str, int] = {}
        try:
            for each in _format(is_codex=is_codex).read(TranscriptSource("", str(copy), path.stem), _NoBlobs()):
                if isinstance(each, ReadEvent):
                    _take(read, {} if start else places, each)
        except PalimpsestError:
            # What was read before the damage counts.
            pass
    yield from ((at, body) for at, body in read if body is not None)


def _take(read: list[tuple[int, Body | None]], places: dict[str, int], event: ReadEvent) -> None:
    if event.after and event.after in places:
        del read[places[event.after] + 1 :]
    if event.key:
        places[event.key] = len(read)
    body = event.body if isinstance(event.body, Value) and isinstance(event.body, _WATCHED) else None
    read.append((event.at, body))


def _format(*, is_codex: bool) -> "Format":
    if is_codex:
        from palimpsest.foreign.codex.format import CodexFormat  # one of the two is needed

        return CodexFormat()
    from palimpsest.foreign.claude.format import ClaudeFormat

    return ClaudeFormat()


class _NoBlobs:
    """Takes images and documents and keeps none: evidence does not show them."""

    def put(self, data: bytes) -> str:
        """Return the address that the bytes would have."""
        return f"sha256-{sha256(data).hexdigest()}"

    def get(self, address: str) -> bytes:
        """Return nothing."""
        return b""

    def __contains__(self, address: str) -> bool:
        return False
