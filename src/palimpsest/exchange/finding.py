"""Finds sessions of other programs below some paths, and finds, verifies and copies logs of this program."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import structs

from palimpsest.core.errors import BadInput, BadLog, NewerFormat, PalimpsestError
from palimpsest.core.events import ChildOpened, Event, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.lines import decode_chunk, decode_line
from palimpsest.core.ports import Blobs, LogFile, SessionStore
from palimpsest.core.reading import open_reader
from palimpsest.core.text import lazy_pattern
from palimpsest.core.verify import verify
from palimpsest.exchange.files import FolderWalk, changed, current_walk, head_of, open_regular, shared_walk, sources_below, whole_lines
from palimpsest.exchange.importing import Imported, ImportTally
from palimpsest.exchange.transcript import Format, ReadProblem, TranscriptSource

# Files with these suffixes are usually transcripts, so an unknown one is reported; other unknown files are not.
_TRANSCRIPTS = (".jsonl", ".jsonl.zst", ".traj")
# Further runs of an instance are numbered behind the suffix: `name.traj-2.json`.
_NUMBERED_RUN = re.compile(r"\.traj-[^/]*\.json")
EMPTY, COMPRESSED = "it is empty", "compressed data"
UNKNOWN = "not a session of a known program"
# gzip, zstd, xz, bzip2 and zip.
_COMPRESSED_STARTS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
_HEAD_BYTES = 64 * 1024
_SPECIAL_FILES = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class FoundSources(Value, frozen=True):
    """Sessions sorted by path, the paths that were skipped, and with `explain` all other files, each with what it is."""

    sources: tuple[TranscriptSource, ...] = ()
    skipped: tuple[ReadProblem, ...] = ()
    ignored: tuple[ReadProblem, ...] = ()


def find_sources(
    formats: "Sequence[Format | OwnLogs]", paths: Iterable[Path], *, explain: bool = False, walk: FolderWalk | None = None
) -> FoundSources:
    """All sessions of these formats in files and below folders. A file belongs to the first format that recognises it.

    With `explain` every other file is opened once more, to say what it is. `walk` reads the folders, by default within the usual limits.
    """
    search = _SourceSearch(formats, explain=explain)
    with shared_walk(walk or FolderWalk()):
        for path in paths:
            search.search(path)
    return search.result()


class _SourceSearch:
    """Sessions and problems found so far."""

    def __init__(self, formats: "Sequence[Format | OwnLogs]", *, explain: bool) -> None:
        self._formats = formats
        self._explain = explain
        self._sources: dict[tuple[str, str], TranscriptSource] = {}
        self._format_by_path: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._folders: set[str] = set()
        self._maybe_transcripts: list[str] = []
        self._other_files: list[str] = []

    def search(self, path: Path) -> None:
        """Search a path given by the user. Symbolic links to folders below it are followed, each folder once."""
        roots = [str(path)]
        is_root = True
        while roots:
            root = roots.pop(0)
            why = _obstacle(root)
            if why:
                self._problems.setdefault(root, why)
            elif not Path(root).is_dir():
                self._maybe_transcripts.append(root)
                self._search_with_formats(root)
            elif is_root or os.path.realpath(root) not in self._folders:
                roots += self._walk(root)
                self._search_with_formats(root)
            else:
                self._problems.setdefault(root, f"a link that leads back to {os.path.realpath(root)}")
            is_root = False

    def _search_with_formats(self, path: str) -> None:
        """Let every format search a path; once a format has recognised a file, the others are not even imported for it."""
        is_file = Path(path).is_file()
        for form in self._formats:
            if is_file and os.path.realpath(path) in self._format_by_path:
                return
            for found in _guarded(form, Path(path)):
                if isinstance(found, ReadProblem):
                    self._problems.setdefault(found.where, found.why)
                    continue
                real = os.path.realpath(found.path)
                if self._format_by_path.setdefault(real, form.name) == form.name:
                    self._sources.setdefault((real, found.session), structs.replace(found, format=form.name))

    def _walk(self, root: str) -> list[str]:
        """Check all files below a folder, and return its symbolic links to other folders."""
        links: list[str] = []
        real = os.path.realpath(root)
        for found in current_walk().folders(root):
            if isinstance(found, ReadProblem):
                self._problems.setdefault(found.where, found.why)
                continue
            folder, _, listing = found
            self._folders.add(os.path.normpath(real + folder[len(root) :]))
            links += [os.path.join(folder, name) for name in listing.links]  # noqa: PTH118 - texts, not paths
            plain = frozenset(listing.files)
            for name in sorted((*listing.files, *listing.others)):
                try:
                    self._check_file(folder, name, plain=name in plain)
                except Exception as error:  # noqa: BLE001 - one file must not stop the search of a folder
                    self._problems.setdefault(os.path.join(folder, name), f"{type(error).__name__}: {error}")  # noqa: PTH118 - as above
        return links

    def _check_file(self, folder: str, name: str, *, plain: bool) -> None:
        """Report a file that cannot be read, and note one that looks like a transcript; recognising it is up to the formats."""
        path = os.path.join(folder, name)  # noqa: PTH118 - as above
        is_run = _NUMBERED_RUN.search(name) is not None
        why = "" if plain and not name.endswith(_TRANSCRIPTS) else _obstacle(path)
        if why:
            self._problems.setdefault(path, why)
        elif is_run or (name.endswith(_TRANSCRIPTS) and not _is_data(path)):
            self._maybe_transcripts.append(path)
        elif self._explain:
            self._other_files.append(path)

    def result(self) -> FoundSources:
        """Everything found, sorted by path. Problems of a file that any format recognised are dropped."""
        for path in self._maybe_transcripts:
            if not self._is_claimed(path):
                self._problems.setdefault(path, UNKNOWN)
        problems = sorted((where, why) for where, why in self._problems.items() if os.path.realpath(where) not in self._format_by_path)
        sources = sorted(self._sources.values(), key=lambda source: (source.path, source.session))
        ignored = [path for path in sorted(self._other_files) if path not in self._problems and not self._is_claimed(path)]
        return FoundSources(
            tuple(sources),
            tuple(ReadProblem(where, why) for where, why in problems),
            tuple(ReadProblem(path, content_of(path)) for path in ignored),
        )

    def _is_claimed(self, path: str) -> bool:
        """Whether a format found a session in the file, or in a folder above it."""
        real = os.path.realpath(path)
        return real in self._format_by_path or any(str(folder) in self._format_by_path for folder in Path(real).parents)


def _guarded(form: "Format | OwnLogs", path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """What a format finds in a path; an exception becomes one problem, and the other formats continue."""
    try:
        yield from form.sources(path)
    except OSError as error:
        yield ReadProblem(str(error.filename or path), _error_text(error))
    except Exception as error:  # noqa: BLE001 - one unreadable file must not hide the others
        yield ReadProblem(str(path), f"{form.name} failed on it: {type(error).__name__}: {error}")


def _obstacle(path: str) -> str:
    """Why a path cannot be read; empty if it can."""
    try:
        status = Path(path).stat()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return "a link that leads nowhere" if Path(path).is_symlink() else "it does not exist"
        return _error_text(error)
    kind = stat.S_IFMT(status.st_mode)
    if kind in _SPECIAL_FILES:
        return f"{_SPECIAL_FILES[kind]}, not a file"
    if not os.access(path, os.R_OK):
        return "permission denied"
    return EMPTY if kind == stat.S_IFREG and not status.st_size else ""


def _is_data(path: str) -> bool:
    """Whether a file starts with a complete JSON object."""
    try:
        with open_regular(Path(path)) as file:
            head = file.read(_HEAD_BYTES).lstrip()
    except OSError:
        return False
    first = head.partition(b"\n")[0]
    try:
        return first.startswith(b"{") and (len(head) == _HEAD_BYTES == len(first) or isinstance(msgspec.json.decode(first), dict))
    except RecursionError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        # An indented document spans many lines; its last character shows that it is complete.
        return first == b"{" and head.rstrip().endswith(b"}")


def content_of(path: str) -> str:
    """What a file contains, as far as its first bytes tell."""
    why = _obstacle(path)
    if why:
        return why
    try:
        with open_regular(Path(path)) as file:
            head = file.read(_HEAD_BYTES).lstrip()
    except OSError as error:
        return _error_text(error)
    if head.startswith(b"SQLite format 3\x00"):
        return "a database without sessions of a known program"
    if head.startswith(_COMPRESSED_STARTS):
        return COMPRESSED
    if b"\x00" in head:
        return "binary data"
    return f"{'JSON' if head.startswith((b'{', b'[')) else 'text'} of no known program"


def _error_text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


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
                target = _append_new_lines(target, store, session, new, new=not start)
                for event in _events_in(new, events):
                    tally.add(event.body)
        finally:
            if target is not None:
                target.sync()
                target.close()
    return Imported(session, tally.counts(len(problems)), tuple(problems), None, tip)


def _append_new_lines(target: LogFile | None, store: SessionStore, session: str, lines: bytes, *, new: bool) -> LogFile:
    if target is None and new:
        return store.create(session, lines)
    target = store.open(session, write=True) if target is None else target
    target.append(lines)
    return target


def _log_or_none(store: SessionStore, session: str) -> LogFile | None:
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
    lines = _log_or_none(store, base.session)
    if lines is not None:
        with closing(open_reader(store, base.session, lines)) as reader:
            link = reader.link(base.seq)
    if link != base.link:
        raise BadInput(f"it is a fork of session {base.session}, which is not here up to event {base.seq}; import that too", where=where)


def _shared_bytes(lines: LogFile, session: str, store: SessionStore) -> int:
    """How many bytes of a log are here already. Raises `BadInput` if the log here has other lines."""
    log_here = _log_or_none(store, session)
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
