"""OpenCode's sessions, from its database, its exports, or the tree of files that it kept before."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from palimpsest.core.ports import Blobs
from palimpsest.foreign.opencode import database, files
from palimpsest.foreign.opencode.rows import Session
from palimpsest.foreign.opencode.telling import tell
from palimpsest.foreign.reading.transcript import ReadOutput, ReadPosition, ReadProblem, TranscriptSource

# Folders of other people's packages, with files by the thousand and no session.
_NEVER = frozenset({"node_modules", ".git"})
_FILES = (".json", ".jsonl", ".db", ".sqlite")


class OpencodeFormat:
    """Reads what OpenCode keeps; three shapes of the same rows give the same facts."""

    name = "opencode"

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder for data of programs, by the environment or by custom."""
        folders = [environment.get("XDG_DATA_HOME", ""), str(home / ".local" / "share")]
        return tuple(dict.fromkeys(Path(folder) / "opencode" for folder in folders if folder))

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder."""
        try:
            if path.is_dir():
                yield from _below(path)
            elif path.is_file():
                yield from _in_file(path)
        except OSError as error:
            yield ReadProblem(str(path), f"it cannot be read: {error.strerror or error}")

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The facts of a session; after a mark only what is new or has changed since."""
        try:
            session, bad = _session(Path(source.path), source.session)
        except (OSError, ValueError, RecursionError, sqlite3.Error) as error:
            yield ReadProblem(source.path, f"the session {source.session} cannot be read: {error}")
            return
        yield from bad
        if session is None:
            yield ReadProblem(source.path, f"there is no session {source.session} any more")
            return
        yield from tell(session, blobs, position)


def _session(path: Path, session: str) -> tuple[Session | None, list[ReadProblem]]:
    storage = files.tree_of(path)
    if storage is not None:
        return files.read_tree(path, storage)
    if database.is_database(path):
        return database.read_session(path, session)
    return files.read_session(path, session)


def _in_file(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if database.is_database(path):
        yield from database.sources_in(path)
    elif files.may_be_export(path):
        yield from files.sources_in(path)
    elif (storage := files.tree_of(path)) is not None:
        yield from (each for each in files.sessions_in_tree(storage) if isinstance(each, ReadProblem) or each.path == str(path))


def _below(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    refused: list[OSError] = []
    for name, folders, names in os.walk(path, onerror=refused.append):
        folder = Path(name)
        storage = folder if folder.name == "storage" else folder / "storage"
        # A folder of the program holds much else: snapshots, logs, caches; its sessions are in these two places only.
        own = [folder / each for each in sorted(names) if each.startswith("opencode") and each.endswith(".db")]
        if own or os.path.isdir(storage / "session"):  # noqa: PTH112  # what may not be looked at is passed over here
            folders.clear()
            yield from _once(chain(*map(_tried, own), files.sessions_in_tree(storage)))
            continue
        folders[:] = sorted(set(folders) - _NEVER)
        for each in sorted(names):
            if each.endswith(_FILES):
                yield from _tried(folder / each)
    yield from (ReadProblem(str(error.filename), f"it cannot be read: {error.strerror or error}") for error in refused)


def _tried(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    try:
        if path.is_file():
            yield from _in_file(path)
    except OSError as error:
        yield ReadProblem(str(path), f"it cannot be read: {error.strerror or error}")


def _once(found: Iterator[TranscriptSource | ReadProblem]) -> Iterator[TranscriptSource | ReadProblem]:
    """The program leaves the files behind when it moves to the database: what was there first counts."""
    seen: set[str] = set()
    for each in found:
        if isinstance(each, ReadProblem):
            yield each
        elif each.session not in seen:
            seen.add(each.session)
            yield each
