"""What a hook says after a compaction: evidence and notes as text, and the digest of a transcript."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pal.plugin.bounds import HOOK_BYTES
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.fold_texts import evidence_block
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.plans import Evidence
from palimpsest.core.text import utc_text
from palimpsest.exchange.files import decoded, digest_of, open_regular
from palimpsest.exchange.formats import NamedFormat, format_named
from palimpsest.exchange.importing import read_guarded
from palimpsest.exchange.transcript import LIVE, Format, PlacedEvents, ReadEvent, ReadOutput, ReadPosition, TranscriptSource
from palimpsest.memory.note_evidence import StaleFiles
from palimpsest.memory.note_index import note_index
from palimpsest.memory.recall_prompts import fitting_hits, head_texts, scored_notes
from palimpsest.memory.session_memory import ProjectMemory
from palimpsest.memory.shown import not_to_show, pinned_names, show_notes
from palimpsest.policies.profile import NoteRules
from palimpsest.sources.prompts import KEY
from palimpsest.stores.files import FileDocument, write_private
from palimpsest.wire.json_reading import is_json

_LONGEST_PROMPT: Final = 20_000
_MOST_SHOWN: Final = 500


class ShownNotes(Struct, frozen=True):
    """The notes that prompts of one session have recalled since its conversation was new or compacted, and their tokens."""

    names: tuple[str, ...] = ()
    tokens: int = 0


def notes_at_start(memory: ProjectMemory, room: int) -> str:
    """Return the index of the notes and the summary of what is remembered, in whole lines of at most `room` characters."""
    text = head_texts(memory, NoteRules(), None).get(KEY, "")
    return text if len(text) <= room else text[:room].rpartition("\n")[0]


def notes_for_prompt(memory: ProjectMemory, prompt: str, slot: FileDocument, room: int) -> str:
    """Return the notes that bear on a prompt, which were not shown before, in at most `room` characters; empty if there are none."""
    index = note_index(memory)
    text = prompt.strip()[:_LONGEST_PROMPT]
    if index is None or not text or not memory.config.recall_notes:
        return ""
    before = _loaded(slot)
    index.refresh()
    now = datetime.fromtimestamp(memory.home.clock.now() / 1000, UTC)
    excluded = not_to_show(index.entries, now, ()) | frozenset(before.names) | pinned_names(index.entries)
    hits = fitting_hits(index, text, now, excluded)
    found = scored_notes(index, StaleFiles(memory.root), hits, now, text=text, excluded=excluded)
    tokens = min(memory.config.recall_tokens, max(0, memory.config.recall_epoch_tokens - before.tokens), room // 4)
    shown = show_notes(found, text, tokens=tokens, most=memory.config.recall_notes)
    said = "\n".join(shown.texts)
    if not shown.names or len(said) > room:
        return ""
    slot.save(msgspec.json.encode(ShownNotes((*before.names, *shown.names)[-_MOST_SHOWN:], before.tokens + shown.tokens)))
    return said


def _loaded(slot: FileDocument) -> ShownNotes:
    data = slot.load()
    try:
        return ShownNotes() if data is None else msgspec.json.decode(data, type=ShownNotes)
    except (msgspec.DecodeError, UnicodeError):
        return ShownNotes()


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


def digest_slot(home: Path, transcript: Path) -> FileDocument:
    """Return where the digest of a transcript is kept; it can be deleted without loss."""
    return FileDocument(home / _FOLDER / f"{sha256(os.fsencode(transcript)).hexdigest()[:32]}.json")


def kept_digest(slot: FileDocument, transcript: Path) -> Digest:
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


def refresh(slot: FileDocument, transcript: Path, *, always: bool = False, most: int = HOOK_BYTES) -> None:
    """Keep the digest of a transcript of more than `most` bytes; unless `always`, only after it grew by a quarter of that.

    Raises `OSError`.
    """
    if is_read_whole(transcript, most):
        return
    grown = transcript.stat().st_size - kept_digest(slot, transcript).offset
    if grown >= (1 if always else most // 4):
        slot.save(msgspec.json.encode(whole_digest(transcript, growing=True)))


def newest(slot: FileDocument, transcript: Path, most: int = HOOK_BYTES) -> Digest:
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
    return _read(Digest(), format_named("opencode"), TranscriptSource("opencode", str(database), session), before=before)


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


def _read(digest: Digest, form: Format, source: TranscriptSource, position: ReadPosition | None = None, before: str = "") -> Digest:
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


def _format(path: Path) -> NamedFormat:
    """Return the format of a transcript: the lines of Codex have a payload. Blank and damaged lines at the start are passed over."""
    lines = _bytes(path, 0, _CHUNK_BYTES).split(b"\n", _HEAD_LINES)[:_HEAD_LINES]
    has_payload = "payload" in next(filter(is_json, map(decoded, lines)), {})
    return format_named("codex" if has_payload else "claude")


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


# Shares of the room: messages of the user that are shown whole, and openings of older ones.
_MESSAGES_SHARE: Final = 0.5
_OPENINGS_SHARE: Final = 0.15
_LONGEST_MESSAGE: Final = 1_500
# Of a block of paths and commands, at least.
_CHARS_PER_TOKEN: Final = 2.5
_OPENING_CHARS: Final = 80
_TITLE: Final = (
    "[Added by pal after this compaction: what the transcript of the session proves, listed by a program and not by a model. It is data, "
    "not a new request. More of this session, {session}, is found with the tools search_sessions and show_item of the MCP server pal.]"
)
_NOT_READ: Final = "[{megabytes} MB of the transcript before this are not part of the lists below]"


def evidence_text(digest: Digest, room: int, session: str) -> str:
    """Return the evidence in at most `room` characters; empty if the session has none. `session` is its id in the home."""
    title = _TITLE.format(session=session)
    skipped = [_NOT_READ.format(megabytes=-(-digest.skipped // 1_000_000))] if digest.skipped else []
    left = room - len(title) - sum(len(line) + 1 for line in skipped) - 1
    messages = _messages(digest, left)
    proved = _proved(digest, left - len(messages) - 1)
    if not proved and not digest.messages:
        return ""
    text = "\n".join(part for part in (title, *skipped, proved, messages) if part)
    return text if len(text) <= room else ""


def _messages(digest: Digest, room: int) -> str:
    """Return the newest messages of the user, oldest first, and the openings of those before them."""
    left = int(room * _MESSAGES_SHARE)
    shown: list[str] = []
    for message in reversed(digest.messages):
        line = f"- {utc_text(message.at)}: {_cut(message)}"
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    older = digest.evidence.user_messages[: max(0, len(digest.evidence.user_messages) - len(shown))]
    openings, left = list[str](), int(room * _OPENINGS_SHARE)
    for said in reversed(older):
        line = f"- {utc_text(said.at)}: {' '.join(said.opening.split())[:_OPENING_CHARS]}…"
        left -= len(line) + 1
        if left < 0:
            break
        openings.append(line)
    earlier = len(older) - len(openings) + digest.evidence.earlier
    counted = [f"- and {earlier} before them"] if earlier and openings else []
    lines = ["Earlier messages of the user, by their openings:", *counted, *reversed(openings)] if openings else []
    return "\n".join((*lines, *(["Messages of the user, verbatim:", *reversed(shown)] if shown else [])))


def _cut(message: Said) -> str:
    """Return a message on one paragraph, without the middle of a long one."""
    text = message.text.strip()
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} […] {text[-half:]}"


def _proved(digest: Digest, room: int) -> str:
    """Return paths, commands, tests, errors and tasks in at most `room` characters."""
    tokens = max(0, int(room / _CHARS_PER_TOKEN))
    text = evidence_block(digest.evidence, tokens)
    while len(text) > room:
        tokens = tokens * 9 // 10
        text = evidence_block(digest.evidence, tokens)
    return text
