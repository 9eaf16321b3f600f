"""The transcript format of OpenCode: reads its database, its exports, and the file tree of older versions."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode.database import database_sources, read_database_session
from palimpsest.foreign.opencode.files import export_sources, may_be_export, read_exported_session, read_tree, sessions_in_tree, tree_of
from palimpsest.foreign.opencode.incremental import read_events
from palimpsest.foreign.opencode.rows import OpencodeSession
from palimpsest.foreign.reading.database import is_database
from palimpsest.foreign.reading.files import reason
from palimpsest.foreign.reading.transcript import ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.foreign.reading.walking import current_walk

# Folders with thousands of files and no session.
_SKIPPED_FOLDERS = frozenset({"node_modules", ".git"})
# What the program keeps beside its database; `storage` is read as a whole.
_PROGRAM_FOLDERS = frozenset({"storage", "snapshot", "log", "bin", "repos", "tool-output"})
_SUFFIXES = (".json", ".jsonl", ".db", ".sqlite")


class OpencodeFormat:
    """OpenCode. Its three storage forms have the same rows and yield the same events."""

    name = "opencode"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The data folder by `XDG_DATA_HOME`, and the default one."""
        folders = [environment.get("XDG_DATA_HOME", ""), str(home / ".local" / "share")]
        return tuple(dict.fromkeys(Path(folder) / "opencode" for folder in folders if folder))

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder."""
        try:
            if path.is_dir():
                yield from _sources_below(path)
            elif path.is_file():
                yield from _sources_in_file(path)
        except OSError as error:
            yield ReadProblem(str(path), reason(error))

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session; after a position only what is new or has changed since."""
        try:
            session, problems = _session(Path(source.path), source.session)
        except (OSError, ValueError, RecursionError, sqlite3.Error) as error:
            yield ReadProblem(source.path, f"the session {source.session} cannot be read: {error}")
            return
        yield from problems
        if session is None:
            yield ReadProblem(source.path, f"there is no session {source.session} any more")
            return
        yield from read_events(session, blobs, position)


def _session(path: Path, session: str) -> tuple[OpencodeSession | None, list[ReadProblem]]:
    storage = tree_of(path)
    if storage is not None:
        return read_tree(path, storage)
    if is_database(path):
        return read_database_session(path, session)
    return read_exported_session(path, session)


def _sources_in_file(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if is_database(path):
        yield from database_sources(path)
    elif may_be_export(path):
        yield from export_sources(path)
    elif (storage := tree_of(path)) is not None:
        yield from (each for each in sessions_in_tree(storage) if isinstance(each, ReadProblem) or each.path == str(path))


def _sources_below(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    for found in current_walk().folders(str(path)):
        if isinstance(found, ReadProblem):
            yield found
            continue
        name, folders, listing = found
        folder, names = Path(name), sorted((*listing.files, *listing.others))
        storage = folder if folder.name == "storage" else folder / "storage"
        databases = [each for each in names if each.startswith("opencode") and each.endswith(".db")]
        others = [each for each in names if each.endswith(_SUFFIXES) and each not in databases]
        of_databases, of_others = (chain.from_iterable(_guarded(folder / each) for each in some) for some in (databases, others))
        if databases or os.path.isdir(storage / "session"):  # noqa: PTH112  # Path.is_dir would raise for a folder without permission
            folders[:] = [] if storage == folder else [each for each in folders if each not in _PROGRAM_FOLDERS]
            yield from _without_duplicates(chain(of_databases, sessions_in_tree(storage), of_others))
        else:
            yield from of_others
        folders[:] = [each for each in folders if each not in _SKIPPED_FOLDERS]


def _guarded(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    try:
        if path.is_file():
            yield from _sources_in_file(path)
    except OSError as error:
        yield ReadProblem(str(path), reason(error))


def _without_duplicates(found: Iterator[TranscriptSource | ReadProblem]) -> Iterator[TranscriptSource | ReadProblem]:
    """Each session once. The program leaves the file tree behind when it moves to the database, so the first one counts."""
    session_ids: set[str] = set()
    for each in found:
        if isinstance(each, ReadProblem):
            yield each
        elif each.session not in session_ids:
            session_ids.add(each.session)
            yield each
