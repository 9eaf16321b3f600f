"""Finds logs of this program, and copies them from another home with the same ids and bytes after their chain was verified."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from palimpsest.core.errors import BadInput, BadLog, NewerFormat, PalimpsestError
from palimpsest.core.events import ChildOpened, Event, SessionOpened
from palimpsest.core.format.codec import decode_chunk, decode_line
from palimpsest.core.format.reading import open_reader
from palimpsest.core.log.verify import verify
from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.foreign.reading.files import changed, head_of, sources_below, whole_lines
from palimpsest.foreign.reading.importing import Imported, ImportTally
from palimpsest.foreign.reading.transcript import ReadProblem, TranscriptSource

NAME = "palimpsest"
SUFFIX = ".jsonl"
_LINE_START = b'{"seq":'
_ADDRESS = lazy_pattern(r"[0-9a-f]{64}")
# A log whose last line is being written, which lacks a blob or whose file was renamed is taken as it is; with another fault it is not.
_HARMLESS = frozenset({"torn", "blob", "name"})


@dataclass(frozen=True)
class OwnLogs:
    """Finds logs of this program, whichever program their sessions began in. It is asked before all formats.

    With `related`, a single file brings its base and its sub-agents along.
    """

    related: bool = False
    name = NAME

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The logs in a file or below a folder; those that are related are in the same folder."""
        for found in sources_below(path, (SUFFIX,), _in_file):
            yield found
            if self.related and isinstance(found, TranscriptSource) and not path.is_dir():
                yield from _related(Path(found.path), {found.session})


def bases_first(sources: Iterable[TranscriptSource]) -> list[TranscriptSource]:
    """Logs of this program in an order in which each fork follows its base."""
    listed = list(sources)
    bases = {source.session: source.parent for source in listed}

    def depth(source: TranscriptSource) -> int:
        chain = [source.session]
        while (base := bases.get(chain[-1], "")) and base not in chain:
            chain.append(base)
        return len(chain)

    return sorted(listed, key=depth)


def copy_log(source: SessionStore, name: str, kept: Blobs, store: SessionStore, blobs: Blobs) -> Imported:
    """Copy the log `name` of another store, with the blobs that it names, or only the lines that are new.

    A log that is here already gets the lines that follow in the other one. Raises `BadInput` if the other log is damaged, if both have
    been continued since, or if the base of a fork is not here; `Locked` if the log here has a writer.
    """
    report = verify(source, name, kept)
    fault = next((finding for finding in report.findings if finding.kind not in _HARMLESS), None)
    if fault is not None and fault.kind == "base":
        raise BadInput("it is a fork whose base is not beside it; import both together", where=fault.where)
    if fault is not None:
        raise BadInput(f"the log is damaged: {fault.message}; `pal verify` can repair it where it is", where=fault.where)
    with closing(source.open(name)) as lines:
        opened = open_reader(source, name, lines).opened
        if not isinstance(opened.body, SessionOpened):
            raise BadInput("the log does not open a session", where=lines.name)
        session = opened.body.session
        _check_base(opened.body, store, lines.name)
        start = _shared_bytes(lines, session, store)
        tally, problems = ImportTally(), list[ReadProblem]()
        tip = opened.seq - 1
        target: LogFile | None = None
        try:
            for offset, chunk in lines.chunks():
                events = decode_chunk(chunk, lines.name, offset)
                tip = max(tip, events[-1].seq) if events else tip
                new = chunk[max(0, start - offset) :]
                if not new:
                    continue
                problems += _copy_blobs(new, kept, blobs, lines.name)
                target = _append(target, store, session, new, new=not start)
                for event in _events_in(new, events):
                    tally.add(event.body)
        finally:
            if target is not None:
                target.sync()
                target.close()
    return Imported(session, tally.counts(len(problems)), tuple(problems), None, tip)


def _append(target: LogFile | None, store: SessionStore, session: str, lines: bytes, *, new: bool) -> LogFile:
    if target is None and new:
        return store.create(session, lines)
    target = store.open(session, write=True) if target is None else target
    target.append(lines)
    return target


def _opened(store: SessionStore, session: str) -> LogFile | None:
    """The log of a session; None if there is none."""
    try:
        return store.open(session)
    except BadInput:
        return None


def _events_in(new: bytes, events: list[Event]) -> list[Event]:
    """The events of the last lines of a chunk."""
    count = sum(1 for line in new.split(b"\n") if line.strip())
    return events[len(events) - count :]


def _check_base(opened: SessionOpened, store: SessionStore, where: str) -> None:
    """Raise `BadInput` if the base of a fork is not here as the fork knows it."""
    base = opened.base
    if base is None:
        return
    link = ""
    lines = _opened(store, base.session)
    if lines is not None:
        with closing(open_reader(store, base.session, lines)) as reader:
            link = reader.link(base.seq)
    if link != base.link:
        raise BadInput(f"it is a fork of session {base.session}, which is not here up to event {base.seq}; import that too", where=where)


def _shared_bytes(lines: LogFile, session: str, store: SessionStore) -> int:
    """How many bytes of a log are here already. Raises `BadInput` if the log here has other lines."""
    log_here = _opened(store, session)
    if log_here is None:
        return 0
    with closing(log_here) as here:
        for offset, chunk in here.chunks():
            if lines.read(offset, len(chunk)) != chunk[: max(0, lines.size - offset)]:
                raise BadInput(
                    f"session {session} of this home has other events from byte {offset:,} on, so both were continued; "
                    f"`pal delete {session}` removes the one here",
                    where=lines.name,
                )
        return min(here.size, lines.size)


def _copy_blobs(lines: bytes, kept: Blobs, blobs: Blobs, where: str) -> Iterator[ReadProblem]:
    """Copy every blob that some lines name and the other store has. A blob whose bytes do not have its address is a problem."""
    for address in dict.fromkeys(_ADDRESS.findall(lines.decode("utf-8", "replace"))):
        if address in blobs or address not in kept:
            continue
        try:
            data = kept.get(address)
        except PalimpsestError:
            data = b""
        if sha256(data).hexdigest() == address:
            blobs.put(data)
        else:
            yield ReadProblem(where, f"blob {address} is damaged and was not copied")


def _in_file(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    first = next(whole_lines(path), None) if head_of(path, len(_LINE_START)) == _LINE_START else None
    try:
        opened = None if first is None else decode_line(first.data, str(path)).body
    except NewerFormat as error:
        yield ReadProblem(str(path), error.message)
        return
    except BadLog:
        return
    if isinstance(opened, SessionOpened):
        base = "" if opened.base is None else opened.base.session
        yield TranscriptSource(NAME, str(path), opened.session, changed(path), base)


def _related(path: Path, found: set[str]) -> Iterator[TranscriptSource | ReadProblem]:
    """The logs that a log needs: its base and its sub-agents, and theirs."""
    for session in _named_sessions(path):
        if session in found:
            continue
        found.add(session)
        beside = path.with_name(f"{session}{SUFFIX}")
        if beside.is_file() and beside.parent == path.parent:
            for source in _in_file(beside):
                yield source
                yield from _related(beside, found)


def _named_sessions(path: Path) -> Iterator[str]:
    for line in whole_lines(path):
        if line.number > 1 and b'"child_opened"' not in line.data:
            continue
        try:
            body = decode_line(line.data, str(path)).body
        except BadLog:
            continue
        if isinstance(body, ChildOpened):
            yield body.session
        elif isinstance(body, SessionOpened) and body.base is not None:
            yield body.base.session
