"""The digest of a transcript: evidence and messages of the user, read as an import reads them, and kept of long transcripts."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palimpsest.apps.plugin.hooks.bounds import HOOK_BYTES
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.situation import Evidence
from palimpsest.foreign.reading.files import decoded, digest_of
from palimpsest.foreign.reading.importing import read_guarded
from palimpsest.foreign.reading.opening import open_regular
from palimpsest.foreign.reading.transcript import LIVE, PlacedEvents, ReadEvent, ReadOutput, ReadPosition, TranscriptSource
from palimpsest.stores.files import FileStateSlot, write_private
from palimpsest.wire.json_reading import is_json

if TYPE_CHECKING:
    from palimpsest.foreign.reading.transcript import Format

# Bytes before the kept digest that are parsed again: the calls that new results answer are there.
CONTEXT_BYTES: Final = 256 * 1024
# Characters of the user's messages that are kept, of one and of all; the newest stay.
MESSAGE_CHARS: Final = 4_000
ALL_CHARS: Final = 24_000
_FINGERPRINT_BYTES: Final = 512
_FOLDER: Final = "hooks"
_CHUNK_BYTES: Final = 1024 * 1024
# Lines that are searched for the first one that tells the format.
_HEAD_LINES: Final = 40


class Said(Struct, frozen=True):
    """A message of the user, cut to its beginning if it is long, and its time in milliseconds since 1970."""

    at: int
    text: str


class Digest(Struct, frozen=True):
    """What the first `offset` bytes of a transcript prove, apart from `skipped` bytes that were not read.

    `fingerprint` is of the bytes before `offset`: a file that was replaced has others there. `events` counts the events so far. `reply`
    is the key of the last reply and the number of its items.
    """

    v: int = 2
    offset: int = 0
    fingerprint: str = ""
    events: int = 0
    skipped: int = 0
    evidence: Evidence = Evidence()
    messages: tuple[Said, ...] = ()
    reply: tuple[str, int] = ("", 0)


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


def is_read_whole(transcript: Path, most: int = HOOK_BYTES) -> bool:
    """Whether a hook reads all of a transcript, so that no digest of it is kept. Raises `OSError`."""
    return transcript.stat().st_size <= most


def refresh(slot: FileStateSlot, transcript: Path, *, always: bool = False, most: int = HOOK_BYTES) -> None:
    """Keep the digest of a transcript of more than `most` bytes; unless `always`, only after it grew by a quarter of that.

    Raises `OSError`.
    """
    if is_read_whole(transcript, most):
        return
    grown = transcript.stat().st_size - kept_digest(slot, transcript).offset
    if grown >= (1 if always else most // 4):
        slot.save(msgspec.json.encode(whole_digest(transcript, growing=True)))


def newest(slot: FileStateSlot, transcript: Path, most: int = HOOK_BYTES) -> Digest:
    """Return the digest of a transcript as it is now, of which at most `most` bytes are read; nothing is kept. Raises `OSError`."""
    if is_read_whole(transcript, most):
        return whole_digest(transcript)
    return _with_tail(kept_digest(slot, transcript), transcript, most)


def whole_digest(transcript: Path, *, growing: bool = False) -> Digest:
    """Return the digest of a whole transcript, without what the user has taken back.

    Of a file that is growing a reply that later lines may complete is left to them. Raises `OSError`.
    """
    form = _format(transcript)
    found = _read(Digest(), form, TranscriptSource(form.name, str(transcript), transcript.stem, LIVE if growing else ""))
    return replace(found, fingerprint=_fingerprint(transcript, found.offset))


def session_digest(database: Path, session: str, before: str = "") -> Digest:
    """Return what a session in the database of OpenCode proves before one of its messages, by its id; all of it if there is none such."""
    from palimpsest.foreign.opencode.format import OpencodeFormat

    return _read(Digest(), OpencodeFormat(), TranscriptSource("opencode", str(database), session), before=before)


def _with_tail(digest: Digest, transcript: Path, most: int) -> Digest:
    """Return a digest with the lines behind it, at most the last `most` bytes.

    The lines are read as a file of their own, with some that were read before. What the user takes back there stays in the digest if it
    was said before these lines; the next digest of the whole file leaves it out.
    """
    form = _format(transcript)
    size = transcript.stat().st_size
    if size - digest.offset > most:
        start = _line_start(transcript, size - most)
        digest = replace(digest, offset=start, skipped=digest.skipped + start - digest.offset, reply=("", 0))
    # A rollout needs its first line.
    first = _bytes(transcript, 0, _line_start(transcript, 0)) if form.name == "codex" and digest.offset else b""
    context = digest.offset - CONTEXT_BYTES
    begin = min(digest.offset, len(first) if context <= len(first) else _line_start(transcript, context))
    data = _bytes(transcript, begin, size)
    with tempfile.TemporaryDirectory(prefix="pal-hook-") as folder:
        copy = Path(folder) / transcript.name
        write_private(copy, first + data, sync=False)
        position = ReadPosition(digest.offset - begin + len(first))
        # Keys of Codex are the numbers of lines, which are others in the copy.
        known = replace(digest, reply=("", 0)) if form.name == "codex" else digest
        found = _read(known, form, TranscriptSource(form.name, str(copy), transcript.stem), position)
    return replace(found, offset=size)


def _read(digest: Digest, form: "Format", source: TranscriptSource, position: ReadPosition | None = None, before: str = "") -> Digest:
    """Return the digest after the events of a source; a second time if a branch was left, without the events on it."""
    found, parents = _pass(digest, read_guarded(form, source, _NO_BLOBS, position), before)
    left = _left(parents, digest.events)
    return _pass(digest, read_guarded(form, source, _NO_BLOBS, position), before, left)[0] if left else found


def _pass(digest: Digest, outputs: Iterable[ReadOutput], before: str, left: frozenset[int] = frozenset()) -> tuple[Digest, list[int]]:
    """Return the digest after what was read, up to a message, without the events in `left`; and the parents of all events."""
    projection = EvidenceProjection()
    projection.start_from(digest.evidence)
    messages, reply, parents = list(digest.messages), digest.reply, list[int]()
    offset = digest.offset
    placed = PlacedEvents(digest.events, digest.reply)
    for each in _readable(outputs):
        if isinstance(each, ReadPosition):
            offset = each.offset
        if not isinstance(each, ReadEvent):
            continue
        if before and each.key.startswith(before):
            break
        event = placed.place(each)
        if event is None:
            continue
        parents.append(event.parent)
        if event.seq in left:
            continue
        projection.take(event)
        match event.body:
            case UserSaid(parts=parts):
                messages.append(Said(event.at, "\n".join(part.text for part in parts if isinstance(part, Text))[:MESSAGE_CHARS]))
            case ModelReplied(parts=parts):
                reply = each.key, len(parts)
            case _:
                pass
    found = replace(digest, events=digest.events + len(parents), evidence=projection.value(), messages=_newest(messages), reply=reply)
    return replace(found, offset=offset), parents


def _readable(outputs: Iterable[ReadOutput]) -> Iterator[ReadOutput]:
    """Yield what can be read; what was read before damage counts."""
    with suppress(PalimpsestError):
        yield from outputs


def _left(parents: list[int], first: int) -> frozenset[int]:
    """Return the events that are not on the way to the newest one; event `first` + 1 has the first parent."""
    on_path: set[int] = set()
    seq = first + len(parents)
    while seq > first:
        on_path.add(seq)
        seq = parents[seq - first - 1]
    return frozenset(seq for seq in range(first + 1, first + len(parents) + 1) if seq not in on_path)


def _newest(messages: list[Said]) -> tuple[Said, ...]:
    room, kept = ALL_CHARS, 0
    for message in reversed(messages):
        room -= len(message.text)
        if room < 0:
            break
        kept += 1
    return tuple(messages[len(messages) - kept :])


def _bytes(path: Path, start: int, stop: int) -> bytes:
    with open_regular(path) as file:
        file.seek(start)
        return file.read(stop - start)


def _line_start(path: Path, start: int) -> int:
    """Return the first byte after a line end from `start` on; the size of the file if there is none."""
    with open_regular(path) as file:
        file.seek(start)
        while chunk := file.read(_CHUNK_BYTES):
            place = chunk.find(b"\n") + 1
            if place:
                return start + place
            start += len(chunk)
    return start


def _fingerprint(path: Path, offset: int) -> str:
    try:
        return digest_of(_bytes(path, max(0, offset - _FINGERPRINT_BYTES), offset)) if offset else ""
    except OSError:
        return "unreadable"


def _format(path: Path) -> "Format":
    """Return the format of a transcript: the lines of Codex have a payload. Blank and damaged lines at the start are passed over."""
    lines = _bytes(path, 0, _CHUNK_BYTES).split(b"\n", _HEAD_LINES)[:_HEAD_LINES]
    if "payload" in next(filter(is_json, map(decoded, lines)), {}):
        from palimpsest.foreign.codex.format import CodexFormat  # one of the two is needed

        return CodexFormat()
    from palimpsest.foreign.claude.format import ClaudeFormat

    return ClaudeFormat()


class _NoBlobs:
    """Takes images and documents and keeps none: evidence does not show them."""

    def put(self, data: bytes) -> str:
        """Return an address under which nothing is found."""
        return "sha256-0"

    def get(self, address: str) -> bytes:
        """Return nothing."""
        return b""

    def __contains__(self, address: str) -> bool:
        return False


_NO_BLOBS: Final = _NoBlobs()
