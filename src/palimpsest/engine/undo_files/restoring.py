"""Brings files and conversation to another event together: plans, records what is planned, writes, and records the rewind."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput, PalimpsestError, StoreError
from palimpsest.core.events import Event, RestoreStarted
from palimpsest.core.log.log import Log
from palimpsest.core.log.undo import rewind
from palimpsest.engine.undo_files.planning import FileConflict, FilePlan, FileStep, PlannedFile, plan_files
from palimpsest.engine.undo_files.spans import FileMove, file_move, last_restores, unfinished_restores
from palimpsest.engine.undo_files.turn_snapshots import recordable
from palimpsest.stores.snapshots.contents import SnapshotFiles, line_counts, merge_files, read_snapshot, write_snapshot
from palimpsest.stores.snapshots.shadow import LARGE, SavedFile, Shadow, blob_id
from palimpsest.stores.snapshots.taking import LIMITS, SnapshotLimits, take_snapshot
from palimpsest.tools.files.placing import Entry, EntryChanged, EntryKind, make_missing_folders, place_entry, remove_empty_folders

MOST_NAMED: Final = 200
_KINDS: Final[dict[str, EntryKind]] = {"100644": "file", "100755": "program", "120000": "link", LARGE: "large"}
_MODES: Final = {kind: mode for mode, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """The plan of one folder, and the snapshot of its state when it was planned."""

    shadow: Shadow
    before: str
    plan: FilePlan

    def planned_snapshot(self) -> str:
        """The id of the snapshot of the planned state, which is kept for a while."""
        wanted = {file.path: file.wanted for file in self.plan.files}
        return write_snapshot(self.shadow, self.before, wanted, made=self.plan.made, removed=self.plan.empty)

    def line_counts(self) -> dict[str, tuple[int, int] | None]:
        """By file, the lines that it gains and loses; `None` for binary files."""
        with self.shadow.locked():
            return line_counts(self.shadow, self.before, self.planned_snapshot())


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind with files would do; `unsaved` are events of turns whose files could not be kept.

    `finishes` is true if it goes on with a rewind that a crash cut off.
    """

    to: int
    folders: tuple[FolderPlan, ...]
    unsaved: tuple[int, ...] = ()
    finishes: bool = False

    @property
    def files(self) -> tuple[PlannedFile, ...]:
        """The files of all folders that would be written or deleted."""
        return tuple(file for folder in self.folders for file in folder.plan.files)

    @property
    def conflicts(self) -> tuple[FileConflict, ...]:
        """The files of all folders that would be left as they are."""
        return tuple(conflict for folder in self.folders for conflict in folder.plan.conflicts)


class FileRewinding:
    """Plans and makes rewinds with files in a session whose log is open for writing. `home` is the folder of the snapshots."""

    def __init__(self, log: Log, home: Path, limits: SnapshotLimits = LIMITS) -> None:
        self._log = log
        self._home = home
        self._limits = limits

    def plan(self, to: int, *, unsure: bool = False) -> RewindPlan:
        """Plan the way to event `to`. With `unsure`, what changed after a turn that was cut off is taken back too.

        A rewind that a crash cut off is finished. Raises `BadInput` if it led elsewhere, and `StoreError`.
        """
        started = unfinished_restores(self._log)
        if started and started[0].to != to:
            other = started[0].to
            raise BadInput(f"a rewind to event {other} was cut off; first repeat `pal rewind ID {other} --files`", where=self._log.session)
        if started:
            return self._between(to, ((each.root, each.before, each.after) for each in started), finishes=True)
        return self._along(to, file_move(self._log, to), unsure=unsure)

    def plan_undo(self) -> RewindPlan:
        """Plan the way back to the state before the newest rewind with files. Raises `BadInput` if there is none."""
        to, restores = last_restores(self._log)
        return self._between(to, ((each.root, each.after, each.before) for each in restores))

    def carry_out(self, plan: RewindPlan, *, partial: bool = False, why: str = "") -> Event:
        """Write the files and record the rewind. What is planned is recorded before, so that repeating it after a crash finishes it.

        Raises `BadInput` if there are conflicts and not `partial`, when nothing is changed, and `StoreError` if a file cannot be written.
        """
        self._write(plan, partial=partial)
        event = rewind(self._log, plan.to, files=True, why=why)
        self._log.sync()
        return event

    def _write(self, plan: RewindPlan, *, partial: bool) -> None:
        if plan.conflicts and not partial:
            names = ", ".join(recordable(conflict.path) for conflict in plan.conflicts[:5])
            more = f" and {len(plan.conflicts) - 5} more" if len(plan.conflicts) > 5 else ""
            raise BadInput(f"nothing was changed, because of {names}{more}; --partial restores the other files", where=self._log.session)
        if not plan.finishes:
            for folder in plan.folders:
                self._log.append(self._started(plan, folder))
            self._log.sync()
        for folder in plan.folders:
            with folder.shadow.locked():
                _restore(folder, self._limits)

    def _started(self, plan: RewindPlan, folder: FolderPlan) -> RestoreStarted:
        shadow, files = folder.shadow, folder.plan.files
        with shadow.locked():
            after = folder.planned_snapshot()
            shadow.keep(self._log.session, folder.before)
            shadow.keep(self._log.session, after)
        return RestoreStarted(
            recordable(str(shadow.root)),
            folder.before,
            after,
            plan.to,
            tuple(recordable(file.path) for file in files[:MOST_NAMED]),
            tuple(recordable(conflict.path) for conflict in folder.plan.conflicts[:MOST_NAMED]),
        )

    def _along(self, to: int, move: FileMove, *, unsure: bool) -> RewindPlan:
        folders: list[FolderPlan] = []
        for root in move.roots:
            shadow = Shadow(self._home, Path(root))
            with shadow.locked():
                now = take_snapshot(shadow, self._limits).id
                read = lru_cache(maxsize=16)(lambda snapshot, shadow=shadow: read_snapshot(shadow, snapshot))
                back = (FileStep(read(span.after or now), read(span.before), span.certain) for span in move.undone if span.root == root)
                again = (FileStep(read(span.before), read(span.after), span.certain) for span in move.redone if span.root == root)
                folders.append(FolderPlan(shadow, now, _planned(shadow, read(now), (*back, *again), unsure=unsure)))
        return RewindPlan(to, tuple(folders), move.unsaved)

    def _between(self, to: int, states: Iterable[tuple[str, str, str]], *, finishes: bool = False) -> RewindPlan:
        """Plan the way of each folder from one snapshot to another."""
        folders: list[FolderPlan] = []
        for root, source, target in states:
            shadow = Shadow(self._home, Path(root))
            with shadow.locked():
                now = take_snapshot(shadow, self._limits).id
                step = FileStep(read_snapshot(shadow, source), read_snapshot(shadow, target))
                folders.append(FolderPlan(shadow, now, _planned(shadow, read_snapshot(shadow, now), (step,))))
        return RewindPlan(to, tuple(folders), finishes=finishes)


def _planned(shadow: Shadow, present: SnapshotFiles, steps: Iterable[FileStep], *, unsure: bool = False) -> FilePlan:
    return plan_files(present, steps, lambda base, ours, theirs: merge_files(shadow, base, ours, theirs), unsure=unsure)


def _restore(folder: FolderPlan, limits: SnapshotLimits) -> None:
    """Write the files of a plan: deletions first, since a file may take the place of a folder. Raises `StoreError`, `EntryChanged`."""
    shadow, plan = folder.shadow, folder.plan
    written = [file for file in plan.files if file.wanted is not None]
    for file in reversed(plan.files):
        if file.wanted is None:
            _place(shadow.root, file, None, limits)
    remove_empty_folders(shadow.root, plan.empty)
    contents = shadow.contents(tuple(file.wanted.oid for file in written if file.wanted is not None))
    for file, data in zip(written, contents, strict=True):
        if file.wanted is not None:
            _place(shadow.root, file, Entry(_KINDS[file.wanted.mode], data), limits)
    make_missing_folders(shadow.root, plan.made)


def _place(root: Path, file: PlannedFile, wanted: Entry | None, limits: SnapshotLimits) -> None:
    name = recordable(file.path)
    try:
        place_entry(root, file.path, wanted, lambda entry: _saved(entry) == file.present, limits.largest)
    except EntryChanged as error:
        raise StoreError(f"{error.message}; repeat the command, which goes on from here", where=name) from error
    except OSError as error:
        raise StoreError(f"it cannot be written: {error.strerror or error}; repeat the command when that is mended", where=name) from error
    except PalimpsestError as error:
        raise StoreError(error.message, where=name) from error


def _saved(entry: Entry | None) -> SavedFile | None:
    if entry is None:
        return None
    return SavedFile(_MODES[entry.kind], entry.data.decode() if entry.kind == "large" else blob_id(entry.data))
