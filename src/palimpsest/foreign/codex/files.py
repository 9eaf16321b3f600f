"""The files of a Codex home: rollouts, plain or compressed, the lines that a fork copied, and the names of threads."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from palimpsest.foreign.codex.opening import envelope, parent_of
from palimpsest.foreign.reading.files import decoded
from palimpsest.foreign.reading.opening import BoundedPieces, ByteReader, UnpackingReader, open_regular, open_zstd, read_regular
from palimpsest.foreign.reading.transcript import ExportOrigin, first_origin
from palimpsest.wire.json_reading import Json, is_json, table_at, text

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LINE_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record"})
# Bytes that are read to recognise a rollout: its first line has the base instructions.
_CHUNK_BYTES = 1 << 20
ROLLOUT_SUFFIXES = (".jsonl", ".jsonl.zst")
_FOLDERS = ("sessions", "archived_sessions")


class RolloutStart(NamedTuple):
    """The start of a rollout: its thread, the thread that opened it, the payload of its first line, and what it was exported from."""

    thread: str
    parent: str
    meta: Json
    origin: ExportOrigin | None = None


class RolloutLine(NamedTuple):
    """A complete line: its number from 0, the byte offset where it stops (before its newline), and its bytes."""

    number: int
    stop: int
    data: bytes


def open_rollout(path: Path) -> ByteReader:
    """A reader of the unpacked bytes, within the limits of reading. Raises `BadInput` if a package for unpacking is missing."""
    packed = open_regular(path)
    return UnpackingReader(open_zstd(packed), packed, path) if path.suffix == ".zst" else packed


def rollout_lines(path: Path) -> Iterator[RolloutLine]:
    """The complete lines; a last one without a newline only if it is valid JSON."""
    file = open_rollout(path)
    try:
        # A line may span many chunks, so its pieces are joined once.
        pieces = BoundedPieces()
        number = start = 0
        while chunk := file.read(_CHUNK_BYTES):
            first, *complete = chunk.split(b"\n")
            pieces.add(first)
            if not complete:
                continue
            last = complete.pop()
            lines = [(pieces.joined(), pieces.length), *((data, len(data)) for data in complete)]
            if isinstance(file, UnpackingReader):
                file.check_lines(number + len(lines))
            pieces = BoundedPieces()
            pieces.add(last)
            for data, length in lines:
                yield RolloutLine(number, start + length, data)
                start += length + 1
                number += 1
        rest = pieces.joined()
        if rest.strip() and decoded(rest) is not None:
            yield RolloutLine(number, start + pieces.length, rest)
    finally:
        file.close()


def rollout_start(path: Path) -> RolloutStart | None:
    """The start of a file; None if its first line is not one of a rollout."""
    file = open_rollout(path)
    try:
        head = file.read(_CHUNK_BYTES)
    finally:
        file.close()
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 20)[:20]:
        table = decoded(line) if line.lstrip().startswith(b"{") else None
        if not is_json(table):
            continue
        kind, payload = envelope(table)
        if kind == "session_meta":
            return RolloutStart(text(payload, "id") or thread_in_name(path), parent_of(payload), payload, first_origin(head))
        if kind in _LINE_TYPES and ("payload" in table or kind == "response_item"):
            return RolloutStart(thread_in_name(path), "", {})
        return None
    return None


def thread_in_name(path: Path) -> str:
    """The thread id in a file name; the name without its suffix if it has none."""
    found = _UUID.findall(path.name)
    return found[-1] if found else path.name.removesuffix(".zst").removesuffix(".jsonl")


def codex_home(path: Path) -> Path | None:
    """The Codex home of a rollout; None if it is in none."""
    return next((folder.parent for folder in path.absolute().parents if folder.name in _FOLDERS), None)


def find_rollout(thread: str, beside: Path) -> Path | None:
    """The rollout of a thread in the home, or else in the folder, of another rollout."""
    if not _UUID.fullmatch(thread):
        return None
    home = codex_home(beside)
    folders = [home / name for name in _FOLDERS] if home is not None else [beside.absolute().parent]
    found = (path for folder in folders for path in sorted(folder.rglob(f"*{thread}.jsonl*")) if path.name.endswith(ROLLOUT_SUFFIXES))
    return next(found, None)


class CopiedLines:
    """Detects the lines at the start of a fork that copy another rollout; only their times differ.

    A fork whose other rollout is missing has no copies, because their usage is counted nowhere else.
    """

    def __init__(self, meta: Json, path: Path) -> None:
        thread = "" if table_at(meta, "history_base") else text(meta, "forked_from_id")
        other = find_rollout(thread, path) if thread else None
        self._lines = iter(()) if other is None or other == path else _envelopes(other)

    def is_copy(self, table: Json) -> bool:
        """Whether the next line is a copy; not to be called after the first one that is not."""
        kind, payload = envelope(table)
        their_kind, their_payload = next(self._lines, ("", {}))
        is_same = text(payload, "id") == text(their_payload, "id") if kind == "session_meta" else payload == their_payload
        return bool(kind) and kind == their_kind and is_same


def _envelopes(path: Path) -> Iterator[tuple[str, Json]]:
    try:
        for line in rollout_lines(path):
            table = decoded(line.data)
            if is_json(table):
                yield envelope(table)
    except Exception:  # noqa: BLE001 - each unpacker has its own error for a damaged file, and its own import reports it
        return


class _ThreadName(msgspec.Struct):
    id: str
    thread_name: str
    updated_at: str = ""


def thread_name(thread: str, beside: Path) -> _ThreadName | None:
    """The newest name of a thread in the index of its home."""
    home = codex_home(beside)
    if home is None:
        return None
    try:
        data = read_regular(home / "session_index.jsonl")
    except OSError:
        return None
    newest: _ThreadName | None = None
    for line in data.splitlines():
        if thread.encode() not in line:
            continue
        try:
            entry = msgspec.json.decode(line, type=_ThreadName)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if entry.id == thread and entry.thread_name:
            newest = entry
    return newest
