"""The files of a Codex home: rollouts, plain or compressed, the names of threads, and who forked from whom."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.foreign.codex.meta import envelope, parent_of
from palimpsest.foreign.reading.files import decoded
from palimpsest.wire.json_reading import Json, is_json, text

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KINDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record"})
# A first line holds the base instructions; whoever needs more than this to know a file has no rollout.
_SNIFF = 1 << 20
_ZSTD = ("compression.zstd", "zstandard", "pyzstd", "backports.zstd")
_FOLDERS = ("sessions", "archived_sessions")


class Begun(NamedTuple):
    """How a rollout begins: its thread, the thread that opened it, and its first line."""

    thread: str
    parent: str
    meta: Json


class Line(NamedTuple):
    """A whole line: its number from 0, the byte where it ends (its newline comes after that), and its bytes."""

    number: int
    stop: int
    data: bytes


class _Opener(Protocol):
    def open(self, path: str, mode: str) -> object: ...


class _Bytes(Protocol):
    def read(self, size: int = -1) -> bytes: ...

    def close(self) -> None: ...


def is_rollout_name(name: str) -> bool:
    """Whether a file may be a rollout."""
    return name.endswith((".jsonl", ".jsonl.zst"))


def opened(path: Path) -> _Bytes:
    """The bytes of a rollout, unpacked; `BadInput` says what to install if nothing here can unpack it."""
    if path.suffix != ".zst":
        return path.open("rb")
    for name in _ZSTD:
        try:
            module = cast("_Opener", importlib.import_module(name))
        except ImportError:
            continue
        return cast("_Bytes", module.open(str(path), "rb"))
    raise BadInput("a compressed rollout needs Python 3.14 or the package `zstandard`; install it and import again")


def lines_of(path: Path) -> Iterator[Line]:
    """The lines that are whole: a last one without its newline only if nothing can be missing from it."""
    file = opened(path)
    try:
        # A line may be longer than any chunk: its pieces are put together once.
        pieces: list[bytes] = []
        number = start = 0
        while chunk := file.read(_SNIFF):
            first, *whole = chunk.split(b"\n")
            pieces.append(first)
            if not whole:
                continue
            whole.insert(0, b"".join(pieces))
            pieces = [whole.pop()]
            for data in whole:
                yield Line(number, start + len(data), data)
                start += len(data) + 1
                number += 1
        rest = b"".join(pieces)
        if rest.strip() and decoded(rest) is not None:
            yield Line(number, start + len(rest), rest)
    finally:
        file.close()


def begun(path: Path) -> Begun | None:
    """How a file begins, if it is a rollout; none of its first lines may be anything else."""
    file = opened(path)
    try:
        head = file.read(_SNIFF)
    finally:
        file.close()
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 20)[:20]:
        table = decoded(line) if line.lstrip().startswith(b"{") else None
        if not is_json(table):
            continue
        kind, payload = envelope(table)
        if kind == "session_meta":
            return Begun(text(payload, "id") or thread_in(path), parent_of(payload), payload)
        if kind in _KINDS and ("payload" in table or kind == "response_item"):
            return Begun(thread_in(path), "", {})
        return None
    return None


def thread_in(path: Path) -> str:
    """The thread that a file's name tells; the name itself if it tells none."""
    found = _UUID.findall(path.name)
    return found[-1] if found else path.name.removesuffix(".zst").removesuffix(".jsonl")


def home_of(path: Path) -> Path | None:
    """The Codex home that a rollout lies in."""
    return next((folder.parent for folder in path.absolute().parents if folder.name in _FOLDERS), None)


def rollout_of(thread: str, beside: Path) -> Path | None:
    """The rollout of a thread in the home of another one, or in its folder."""
    if not _UUID.fullmatch(thread):
        return None
    home = home_of(beside)
    folders = [home / name for name in _FOLDERS] if home is not None else [beside.absolute().parent]
    found = (path for folder in folders for path in sorted(folder.rglob(f"*{thread}.jsonl*")) if is_rollout_name(path.name))
    return next(found, None)


class _Named(msgspec.Struct):
    id: str
    thread_name: str
    updated_at: str = ""


def name_of(thread: str, beside: Path) -> _Named | None:
    """The newest name that the index of a home has for a thread."""
    home = home_of(beside)
    if home is None:
        return None
    try:
        data = (home / "session_index.jsonl").read_bytes()
    except OSError:
        return None
    newest: _Named | None = None
    for line in data.splitlines():
        if thread.encode() not in line:
            continue
        try:
            named = msgspec.json.decode(line, type=_Named)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if named.id == thread and named.thread_name:
            newest = named
    return newest
