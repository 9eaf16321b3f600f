"""Finds the sessions of other programs below some paths, and says in one line what is in the way of each that it cannot read."""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from palimpsest.core.items import Value
from palimpsest.foreign.reading.transcript import Format, ReadProblem, TranscriptSource

# Files of these names are transcripts as a rule, so one that is no JSON is worth a line; data of somebody else is not.
_TRANSCRIPTS = (".jsonl", ".jsonl.zst", ".traj")
_HEAD = 64 * 1024
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class FoundSources(Value, frozen=True):
    """Sessions in the order of their paths, and what was passed over."""

    sources: tuple[TranscriptSource, ...] = ()
    skipped: tuple[ReadProblem, ...] = ()


def find_sources(formats: Sequence[Format], paths: Iterable[Path]) -> FoundSources:
    """All sessions of these formats in files and below folders; the same file is taken once, by the first format that knows it."""
    search = _Search(formats)
    for path in paths:
        search.look(path)
    return search.result()


class _Search:
    """What was found so far."""

    def __init__(self, formats: Sequence[Format]) -> None:
        self._formats = formats
        self._sources: dict[tuple[str, str], TranscriptSource] = {}
        self._claimed: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._folders: set[str] = set()
        self._unknown: list[str] = []

    def look(self, path: Path) -> None:
        """Look at a path that somebody named; links to folders below it are followed once."""
        roots = [str(path)]
        given = True
        while roots:
            root = roots.pop(0)
            why = _obstacle(root)
            if why:
                self._problems.setdefault(root, why)
            elif not Path(root).is_dir():
                self._unknown.append(root)
                self._ask(root)
            elif given or os.path.realpath(root) not in self._folders:
                roots += self._walk(root)
                self._ask(root)
            else:
                self._problems.setdefault(root, f"a link that leads back to {os.path.realpath(root)}")
            given = False

    def _ask(self, path: str) -> None:
        for form in self._formats:
            for found in _guarded(form, Path(path)):
                if isinstance(found, ReadProblem):
                    self._problems.setdefault(found.where, found.why)
                    continue
                real = os.path.realpath(found.path)
                if self._claimed.setdefault(real, form.name) == form.name:
                    self._sources.setdefault((real, found.session), structs.replace(found, format=form.name))

    def _walk(self, root: str) -> list[str]:
        """Go through all folders below; the links to other folders are returned, to be looked at afterwards."""
        links: list[str] = []
        folders = [root]
        while folders:
            folder = folders.pop()
            self._folders.add(os.path.realpath(folder))
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._problems.setdefault(folder, _refused(error))
                continue
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_symlink() and Path(entry.path).is_dir():
                    links.append(entry.path)
                else:
                    self._weigh_up(entry)
        return links

    def _weigh_up(self, entry: os.DirEntry[str]) -> None:
        """A file: whether something is in the way of reading it; reading it is the business of a format."""
        plain = entry.is_file(follow_symlinks=False)
        why = "" if plain and not entry.name.endswith(_TRANSCRIPTS) else _obstacle(entry.path)
        if why:
            self._problems.setdefault(entry.path, why)
        elif entry.name.endswith(_TRANSCRIPTS) and not _is_data(entry.path):
            self._unknown.append(entry.path)

    def result(self) -> FoundSources:
        """Everything in the order of paths; a file that one format knows is no problem because another does not."""
        for path in self._unknown:
            if not self._knows(path):
                self._problems.setdefault(path, "no session of a program that is known")
        problems = sorted((where, why) for where, why in self._problems.items() if os.path.realpath(where) not in self._claimed)
        sources = sorted(self._sources.values(), key=lambda source: (source.path, source.session))
        return FoundSources(tuple(sources), tuple(ReadProblem(where, why) for where, why in problems))

    def _knows(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real in self._claimed or any(str(folder) in self._claimed for folder in Path(real).parents)


def _guarded(form: Format, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    """What a format finds; one that stumbles is one line, and the others go on."""
    try:
        yield from form.sources(path)
    except OSError as error:
        yield ReadProblem(str(error.filename or path), _refused(error))
    except Exception as error:  # noqa: BLE001 - what nobody foresaw in one file must not keep the others out
        yield ReadProblem(str(path), f"{form.name} stumbled over it: {type(error).__name__}: {error}")


def _obstacle(path: str) -> str:
    """Why a path cannot be read, if it cannot."""
    try:
        facts = Path(path).stat()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return "a link that leads nowhere" if Path(path).is_symlink() else "it does not exist"
        return _refused(error)
    kind = stat.S_IFMT(facts.st_mode)
    if kind in _SPECIAL:
        return f"{_SPECIAL[kind]}, not a file"
    if not os.access(path, os.R_OK):
        return "permission denied"
    return "it is empty" if kind == stat.S_IFREG and not facts.st_size else ""


def _is_data(path: str) -> bool:
    """Whether a file begins with a whole JSON object."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD).lstrip()
    except OSError:
        return False
    first = head.partition(b"\n")[0]
    try:
        return first.startswith(b"{") and (len(head) == _HEAD == len(first) or isinstance(msgspec.json.decode(first), dict))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A document may be spread over lines, and is then told by its end.
        return first == b"{" and head.rstrip().endswith(b"}")


def _refused(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
