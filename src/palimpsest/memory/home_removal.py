"""The removal of forgotten notes from the rest of a home: summaries of other scopes, and the database of jobs."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias

import msgspec

from palimpsest.core.errors import StoreError
from palimpsest.core.items import Value
from palimpsest.memory.erasing import Rewrite, remove_old_history, rewrite_generated
from palimpsest.memory.store import is_scope_name
from palimpsest.memory.work_store import FOLDER, JobsDatabase
from palimpsest.stores.database import is_damaged

ScopeCleaning: TypeAlias = Callable[[Path], Rewrite]
"""Returns how the generated files of a scope, given by its folder, are rewritten."""
# Scopes of a home that are looked at.
_MOST_SCOPES: Final = 10_000


class RemovedSessions(Value, frozen=True):
    """What a removal takes from the database of jobs.

    `sessions` are those of the events that the notes came from; `is_trace` says, given a scope and the name of a file without its suffix,
    whether the name repeats what is forgotten.
    """

    sessions: frozenset[str]
    is_trace: Callable[[str, str], bool]


class HomeRemoval:
    """Removes notes from the folder `memory` of a home, beside the scope `own`, which removes them itself. Every step can be done again.

    Other scopes are not held, because two removals could then wait for each other: each file is replaced in one step, and a process that
    writes a summary looks afterwards whether something was forgotten meanwhile.
    """

    def __init__(self, memory: Path, own: Path) -> None:
        self._memory = memory
        self._own = own

    def clean_scopes(self, cleaning: ScopeCleaning) -> None:
        """Rewrite the generated files of the other scopes. Raises `StoreError` if a file cannot be replaced."""
        for folder in self._others():
            rewrite_generated(folder, cleaning(folder))
            remove_old_history(folder)

    def clean_jobs(self, removed: RemovedSessions) -> None:
        """Remove what the database of jobs says: rows of summaries, counted facts, messages of failures, and names of files.

        The sessions are read once more by the next run, without the forgotten events. A database that cannot be read is deleted.
        """
        database = JobsDatabase(self._memory)
        if not database.exists:
            return
        try:
            with database.transaction() as rows:
                _clean(rows, removed)
            database.compact()
        except StoreError as error:
            if not isinstance(error.__cause__, sqlite3.Error) or not is_damaged(error.__cause__):
                raise
            database.delete()

    def _others(self) -> Iterator[Path]:
        """Yield the folders of the other scopes that have generated files; links are not followed."""
        try:
            entries = sorted(self._memory.iterdir())[:_MOST_SCOPES]
        except OSError:
            return
        for entry in entries:
            if entry != self._own and is_scope_name(entry.name) and not entry.is_symlink() and entry.is_dir():
                yield entry


def _clean(rows: sqlite3.Connection, removed: RemovedSessions) -> None:
    known = rows.execute("SELECT session, scope, stem FROM rollouts").fetchall()
    gone = {session for session, scope, stem in known if removed.is_trace(scope, stem)} | removed.sessions
    keys = [(session,) for session in sorted(gone)]
    for table in ("rollouts", "facts"):
        rows.executemany(f"DELETE FROM {table} WHERE session = ?", keys)  # noqa: S608 - fixed names
    rows.executemany("DELETE FROM stage1_outputs WHERE thread_id = ?", keys)
    rows.executemany("DELETE FROM jobs WHERE kind = 'memory_stage1' AND key LIKE '%/' || ? AND status != 'running'", keys)
    # The handbook is made again without them.
    again = "UPDATE jobs SET watermark = max(watermark, success_watermark) + 1, baseline = '' WHERE kind = 'memory_consolidate_global'"
    rows.execute(again)
    rows.executemany("DELETE FROM jobs WHERE kind = 'session' AND key = ? AND status != 'running'", keys)
    # A message may quote what could not be read.
    rows.execute("UPDATE jobs SET error = '' WHERE error != ''")
    stems = frozenset(stem for session, _, stem in known if session not in gone)
    for key, baseline in rows.execute("SELECT key, baseline FROM jobs WHERE kind = 'scope' AND baseline != ''").fetchall():
        rows.execute("UPDATE jobs SET baseline = ? WHERE kind = 'scope' AND key = ?", (_without_traces(key, baseline, removed, stems), key))


def _without_traces(scope: str, baseline: str, removed: RemovedSessions, stems: frozenset[str]) -> str:
    """Return the digests of files without those of summaries that are gone, and of names that repeat what is forgotten.

    `stems` are those of the summaries that are left. Empty if the digests cannot be read.
    """
    try:
        digests = msgspec.json.decode(baseline, type=dict[str, str])
    except msgspec.DecodeError:
        return ""

    def is_kept(path: PurePosixPath) -> bool:
        return (path.parts[0] != FOLDER or path.stem in stems) and not removed.is_trace(scope, path.stem)

    kept = {path: digest for path, digest in digests.items() if is_kept(PurePosixPath(path))}
    return baseline if kept == digests else msgspec.json.encode(kept).decode()
