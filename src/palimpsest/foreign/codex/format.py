"""The transcript format of Codex CLI: reads rollouts of every version, also while they grow."""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Titled
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.files import ROLLOUT_SUFFIXES, CopiedLines, find_rollout, rollout_lines, rollout_start, thread_name
from palimpsest.foreign.codex.opening import NAME
from palimpsest.foreign.codex.rollout import RolloutReader
from palimpsest.foreign.codex.writer import rollout_name, write_codex
from palimpsest.foreign.reading.files import changed, decoded, files_below, raw_of, reason, state_of
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.foreign.reading.transcript import (
    LIVE,
    LineMark,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    mark_on,
)
from palimpsest.wire.json_reading import Json, is_json, number, shorten, table_at, text

__all__ = ["CodexFormat", "rollout_name", "write_codex"]

# A file that was modified within the last moment, or whose last line is young, is taken to grow: an unfinished reply at its end can
# wait.
_MOMENT_SECONDS = 0.15
_YOUNG_MS = 5_000
_MAX_BASES = 16
_LINE_NUMBER = re.compile(r"\d*")


class _PositionState(msgspec.Struct, frozen=True):
    """Byte offsets at which earlier reads yielded an unfinished event, so that reading again does the same there."""

    cuts: tuple[int, ...] = ()


class CodexFormat:
    """Codex CLI."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folders of current and of archived sessions."""
        root = Path(environment.get("CODEX_HOME") or home / ".codex")
        return (root / "sessions", root / "archived_sessions")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The rollouts in a file or below a folder. A second file of the same thread is a session of its own."""
        sessions: set[str] = set()
        for found in files_below(path, ROLLOUT_SUFFIXES):
            source = found if isinstance(found, ReadProblem) else _source(found)
            if isinstance(source, TranscriptSource):
                if source.session in sessions:
                    stem = Path(source.path).name.partition(".jsonl")[0].removeprefix("rollout-")
                    source = TranscriptSource(NAME, source.path, stem, source.changed, source.parent)
                sessions.add(source.session)
            if source is not None:
                yield source

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a rollout. Lines before the position are parsed again, but yield nothing."""
        yield from _RolloutPass(source, blobs, position).outputs()


def _source(path: Path) -> TranscriptSource | ReadProblem | None:
    try:
        start = rollout_start(path)
        if start is not None:
            live = LIVE if _is_fresh(path) else ""
            return TranscriptSource(NAME, str(path), start.thread, changed(path) + live, start.parent, start.origin)
        if not path.name.startswith("rollout-"):
            return None
        if _is_fresh(path):
            # Its first line is not written yet.
            return None
        return ReadProblem(str(path), "this is not a rollout" if path.stat().st_size else "the file is empty")
    except OSError as error:
        return ReadProblem(str(path), reason(error))
    except BadInput as error:
        return ReadProblem(str(path), str(error))
    except Exception as error:  # noqa: BLE001 - each unpacker has its own error for a damaged file
        return ReadProblem(str(path), f"it cannot be unpacked: {error}")


def _is_fresh(path: Path) -> bool:
    # A file from the future, after a clock was set back, does not count as fresh.
    return 0 <= time.time() - path.stat().st_mtime < _MOMENT_SECONDS


class _RolloutPass:
    """One pass over one rollout."""

    def __init__(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None) -> None:
        self._path = Path(source.path)
        self._thread = source.session
        self._is_live = source.changed.endswith(LIVE)
        self._rollout = RolloutReader(blobs)
        self._read_before = position.offset if position is not None else 0
        self._partial_offsets = (state_of(position, _PositionState) or _PositionState()).cuts
        self._problems: list[ReadProblem] = []
        self._copied_lines: CopiedLines | None = None
        # Marks of exported lines, by line number; the key of an event begins with the number of its first line.
        self._marks: dict[str, LineMark] = {}

    def outputs(self) -> Iterator[ReadOutput]:
        """The events and problems of the rollout, and the position."""
        rollout, stop, first = self._rollout, 0, True
        for line_number, stop, data in rollout_lines(self._path):
            self._take_line(line_number, data, first=first)
            first = first and not data.strip()
            flush = stop in self._partial_offsets
            outputs = rollout.buffer.pop(flush=flush)
            if stop > self._read_before:
                yield from self._with_marks(outputs)
                yield from self._problems
            self._problems = []
        if stop < self._read_before:
            # The file is shorter than before, so it was replaced. It is read from the start; known events are skipped by their keys.
            yield from _RolloutPass(TranscriptSource(NAME, str(self._path), self._thread), rollout.buffer.blobs, None).outputs()
            return
        may_grow = rollout.may_continue and (self._is_live or 0 <= time.time() * 1000 - rollout.buffer.at < _YOUNG_MS)
        if not may_grow:
            outputs = rollout.buffer.pop(flush=True)
            if outputs:
                self._partial_offsets = (*self._partial_offsets, stop)
            yield from self._with_marks(outputs)
        if rollout.buffer.opening is None:
            yield from self._title()
        yield ReadPosition(stop, raw_of(_PositionState(self._partial_offsets)))

    def _with_marks(self, events: list[ReadEvent]) -> list[ReadEvent]:
        if not self._marks:
            return events
        numbers = (_LINE_NUMBER.findall(event.key)[0] for event in events)
        return [structs.replace(event, mark=self._marks.get(number)) for event, number in zip(events, numbers, strict=True)]

    def _take_line(self, line_number: int, data: bytes, *, first: bool) -> None:
        line = data.removeprefix(b"\xef\xbb\xbf").strip() if first else data.strip()
        if not line:
            return
        line, table = _parsed(line)
        if table is None:
            self._problems.append(ReadProblem(f"{self._path}:{line_number + 1}", f"this is not a JSON object: {shorten(line[:400], 60)!r}"))
            return
        mark = mark_on(table)
        if mark is not None:
            self._marks[str(line_number)] = mark
        if self._copied_lines is not None:
            self._rollout.copied = self._copied_lines.is_copy(table)
            self._copied_lines = self._copied_lines if self._rollout.copied else None
        self._rollout.read_line(line_number, line, table)
        if first:
            self._copied_lines = CopiedLines(table_at(table, "payload"), self._path)
            self._read_base(table)

    def _read_base(self, table: Json) -> None:
        """Read the rollout that a fork by reference continues."""
        meta = table_at(table, "payload")
        if not table_at(meta, "history_base"):
            return
        try:
            for path, end in reversed(self._bases(meta)):
                self._read_lines(path, end)
        except (OSError, BadInput) as error:
            self._problems.append(ReadProblem(f"{self._path}:1", f"the rollout that it continues cannot be read: {error}"))
        self._rollout.buffer.close()
        self._rollout.buffer.base = ""

    def _bases(self, meta: Json) -> list[tuple[Path, int]]:
        """The rollouts that this one continues, nearest first, with the ordinal at which each was left."""
        found: list[tuple[Path, int]] = []
        while (history := table_at(meta, "history_base")) and len(found) < _MAX_BASES:
            thread = text(history, "thread_id")
            path = find_rollout(thread, self._path)
            if path is None or path == self._path:
                self._problems.append(
                    ReadProblem(f"{self._path}:1", f"the rollout of {thread}, which this one continues, is not beside it")
                )
                break
            found.append((path, number(history, "end_ordinal_exclusive") or number(meta, "forked_from_ordinal_exclusive")))
            start = rollout_start(path)
            meta = start.meta if start is not None else {}
        return found

    def _read_lines(self, path: Path, end: int) -> None:
        self._rollout.buffer.base = f"{path.name}:"
        for line_number, _, data in rollout_lines(path):
            line, table = _parsed(data.strip())
            if table is None:
                continue
            ordinal = table.get("ordinal")
            if (ordinal if isinstance(ordinal, int) else line_number) >= end:
                break
            if line_number:
                self._rollout.read_line(line_number, line, table)
        self._rollout.buffer.close()

    def _title(self) -> Iterator[ReadEvent]:
        name = thread_name(self._thread, self._path)
        if name is not None:
            at = milliseconds(name.updated_at) or self._rollout.buffer.at
            yield ReadEvent(Titled(name.thread_name, by=NAME), at, f"name:{name.updated_at}:{name.thread_name}")


def _parsed(line: bytes) -> tuple[bytes, Json | None]:
    """A line as valid JSON bytes, and the object on it; None if it is no object."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decoded(line)
        line = msgspec.json.encode(value) if is_json(value) else line
    return line, value if is_json(value) else None
