"""Sessions of Codex CLI: rollouts of every version, read as they are and while they grow."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Raw

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Titled
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.files import begun, is_rollout_name, lines_of, name_of, rollout_of
from palimpsest.foreign.codex.lineage import Copies
from palimpsest.foreign.codex.meta import NAME
from palimpsest.foreign.codex.rollout import Rollout
from palimpsest.foreign.codex.writer import rollout_name, write_codex
from palimpsest.foreign.reading.files import changed, decoded, files_below, reason
from palimpsest.foreign.reading.parts import milliseconds
from palimpsest.foreign.reading.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.json_reading import Json, is_json, number, shorten, table_at, text

__all__ = ["CodexFormat", "rollout_name", "write_codex"]

# A file that was written to a moment ago, or whose last line is this young, is taken to grow: an unfinished reply at its end can wait.
_MOMENT = 0.15
_YOUNG = 5_000
_LIVE = "-live"
_BASES = 16


class _State(msgspec.Struct, frozen=True):
    """Where earlier reads told an unfinished fact, so that reading again does the same there."""

    cuts: tuple[int, ...] = ()


class CodexFormat:
    """Codex's way of keeping sessions."""

    name = NAME

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The sessions of a home, and those put away."""
        root = Path(environment.get("CODEX_HOME") or home / ".codex")
        return (root / "sessions", root / "archived_sessions")

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The rollouts of a folder; a second file of the same thread is a session of its own."""
        known: set[str] = set()
        for found in files_below(path, is_rollout_name):
            source = found if isinstance(found, ReadProblem) else _source(found)
            if isinstance(source, TranscriptSource):
                if source.session in known:
                    stem = Path(source.path).name.partition(".jsonl")[0].removeprefix("rollout-")
                    source = TranscriptSource(NAME, source.path, stem, source.changed, source.parent)
                known.add(source.session)
            if source is not None:
                yield source

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The facts of a rollout; after a mark the lines before it are read once more, and told no more."""
        yield from _Reading(source, blobs, position).told()


def _source(path: Path) -> TranscriptSource | ReadProblem | None:
    try:
        start = begun(path)
        if start is not None:
            live = _LIVE if _is_fresh(path) else ""
            return TranscriptSource(NAME, str(path), start.thread, changed(path) + live, start.parent)
        if not path.name.startswith("rollout-"):
            return None
        if _is_fresh(path):
            # Its first line is still to come.
            return None
        return ReadProblem(str(path), "this is not a rollout" if path.stat().st_size else "the file is empty")
    except OSError as error:
        return ReadProblem(str(path), reason(error))
    except BadInput as error:
        return ReadProblem(str(path), str(error))
    except Exception as error:  # noqa: BLE001 - each unpacker has its own error for a damaged file
        return ReadProblem(str(path), f"it cannot be unpacked: {error}")


def _is_fresh(path: Path) -> bool:
    # A clock that was set back must not make a file young for ever.
    return 0 <= time.time() - path.stat().st_mtime < _MOMENT


class _Reading:
    """One read of one rollout."""

    def __init__(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None) -> None:
        self._path = Path(source.path)
        self._thread = source.session
        self._fresh = source.changed.endswith(_LIVE)
        self._rollout = Rollout(blobs)
        self._reached = position.offset if position is not None else 0
        self._cuts = _cuts_of(position)
        self._bad: list[ReadProblem] = []
        self._copies: Copies | None = None

    def told(self) -> Iterator[ReadOutput]:
        rollout, stop, first = self._rollout, 0, True
        for number_, stop, data in lines_of(self._path):
            self._take(number_, data, first=first)
            first = first and not data.strip()
            everything = stop in self._cuts
            told = rollout.telling.pop(everything=everything)
            if stop > self._reached:
                yield from told
                yield from self._bad
            self._bad = []
        if stop < self._reached:
            # The file is shorter than it was: another one stands in its place, and what is known of it is passed over by its keys.
            yield from _Reading(TranscriptSource(NAME, str(self._path), self._thread), rollout.telling.blobs, None).told()
            return
        growing = rollout.waits and (self._fresh or 0 <= time.time() * 1000 - rollout.telling.at < _YOUNG)
        if not growing:
            told = rollout.telling.pop(everything=True)
            if told:
                self._cuts = (*self._cuts, stop)
            yield from told
        if rollout.telling.opening is None:
            yield from self._title()
        yield ReadPosition(stop, Raw(msgspec.json.encode(_State(self._cuts))))

    def _take(self, number_: int, data: bytes, *, first: bool) -> None:
        line = data.removeprefix(b"\xef\xbb\xbf").strip() if first else data.strip()
        if not line:
            return
        line, table = _parsed(line)
        if table is None:
            self._bad.append(ReadProblem(f"{self._path}:{number_ + 1}", f"this is not a JSON object: {shorten(line[:400], 60)!r}"))
            return
        if self._copies is not None:
            self._rollout.copied = self._copies.takes(table)
            self._copies = self._copies if self._rollout.copied else None
        self._rollout.take(number_, line, table)
        if first:
            self._copies = Copies(table_at(table, "payload"), self._path)
            self._read_base(table)

    def _read_base(self, table: Json) -> None:
        """A fork by reference begins with the lines of another rollout."""
        meta = table_at(table, "payload")
        if not table_at(meta, "history_base"):
            return
        try:
            for path, end in reversed(self._bases(meta)):
                self._read_lines(path, end)
        except (OSError, BadInput) as error:
            self._bad.append(ReadProblem(f"{self._path}:1", f"the rollout it goes on from cannot be read: {error}"))
        self._rollout.telling.close()
        self._rollout.telling.base = ""

    def _bases(self, meta: Json) -> list[tuple[Path, int]]:
        """The rollouts below this one, nearest first, and the ordinal at which each was left."""
        found: list[tuple[Path, int]] = []
        while (history := table_at(meta, "history_base")) and len(found) < _BASES:
            thread = text(history, "thread_id")
            path = rollout_of(thread, self._path)
            if path is None or path == self._path:
                self._bad.append(ReadProblem(f"{self._path}:1", f"the rollout of {thread}, which this one goes on from, is not beside it"))
                break
            found.append((path, number(history, "end_ordinal_exclusive") or number(meta, "forked_from_ordinal_exclusive")))
            start = begun(path)
            meta = start.meta if start is not None else {}
        return found

    def _read_lines(self, path: Path, end: int) -> None:
        self._rollout.telling.base = f"{path.name}:"
        for number_, _, data in lines_of(path):
            line, table = _parsed(data.strip())
            if table is None:
                continue
            ordinal = table.get("ordinal")
            if (ordinal if isinstance(ordinal, int) else number_) >= end:
                break
            if number_:
                self._rollout.take(number_, line, table)
        self._rollout.telling.close()

    def _title(self) -> Iterator[ReadEvent]:
        named = name_of(self._thread, self._path)
        if named is not None:
            at = milliseconds(named.updated_at) or self._rollout.telling.at
            yield ReadEvent(Titled(named.thread_name, by=NAME), at, f"name:{named.updated_at}:{named.thread_name}")


def _parsed(line: bytes) -> tuple[bytes, Json | None]:
    """A line as JSON, and as bytes that are JSON by the letter."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decoded(line)
        line = msgspec.json.encode(value) if is_json(value) else line
    return line, value if is_json(value) else None


def _cuts_of(position: ReadPosition | None) -> tuple[int, ...]:
    if position is None:
        return ()
    try:
        return msgspec.json.decode(bytes(position.state), type=_State).cuts
    except msgspec.DecodeError:
        return ()
