"""Finds the sessions of other programs below some paths, and reports each path that cannot be read in one line."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from palimpsest.core.items import Value
from palimpsest.foreign.reading.opening import open_regular
from palimpsest.foreign.reading.transcript import ReadProblem, SourceFinder, TranscriptSource
from palimpsest.foreign.reading.walking import FolderWalk, current_walk, shared_walk

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
    formats: Sequence[SourceFinder], paths: Iterable[Path], *, explain: bool = False, walk: FolderWalk | None = None
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

    def __init__(self, formats: Sequence[SourceFinder], *, explain: bool) -> None:
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
        """Let every format search a path."""
        for form in self._formats:
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


def _guarded(form: SourceFinder, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
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
