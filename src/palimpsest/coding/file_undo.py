"""File undo: changes of each turn, plans that bring files to another state, and the rewind of files and conversation."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from palimpsest.agent.confined_files import Entry, EntryChanged, EntryKind, make_missing_folders, place_entry, remove_empty_folders
from palimpsest.agent.turn_files import SNAPSHOT, recordable
from palimpsest.core.errors import BadInput, PalimpsestError, StoreError
from palimpsest.core.events import Event, Failed, FilesSnapshotted, RestoreStarted, Rewound, TurnStarted
from palimpsest.core.log import Log
from palimpsest.core.undo import rewind
from palimpsest.stores.shadow_git import LARGE, SavedFile, Shadow, blob_id
from palimpsest.stores.snapshots import (
    LIMITS,
    NO_PATCH,
    ChangedFile,
    Patch,
    SnapshotFiles,
    SnapshotLimits,
    changed_files,
    line_counts,
    merge_files,
    parents_of,
    patch_between,
    read_snapshot,
    take_snapshot,
    write_snapshot,
)


class FileSpan(NamedTuple):
    """What changed in one folder from event `first` to event `last`; `after` is empty if there is no later snapshot.

    It is not `certain` if the turn was cut off before its second snapshot, because the user may have changed files until the next one.
    """

    root: str
    before: str
    after: str
    first: int
    last: int
    certain: bool = True


class FileMove(NamedTuple):
    """The spans to take back, newest first, and those to make again, oldest first; `unsaved` are turns that could not be kept."""

    undone: tuple[FileSpan, ...]
    redone: tuple[FileSpan, ...]
    unsaved: tuple[int, ...]

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of the spans."""
        return tuple(dict.fromkeys(span.root for span in (*self.undone, *self.redone)))


def file_spans(events: Iterable[Event]) -> tuple[FileSpan, ...]:
    """The spans among the events of a path, in order."""
    found: list[FileSpan] = []
    open_: dict[str, tuple[int, str]] = {}
    last = 0
    for event in events:
        body, last = event.body, event.seq
        if not isinstance(body, FilesSnapshotted) or not body.moment:
            continue
        started = open_.pop(body.root, None)
        if started is not None:
            first, before = started
            found.append(FileSpan(body.root, before, body.snapshot, first, event.seq, certain=body.moment == "after"))
        if body.moment == "before":
            open_[body.root] = (event.seq, body.snapshot)
    found += [FileSpan(root, before, "", first, last, certain=False) for root, (first, before) in open_.items()]
    return tuple(sorted(found, key=lambda span: span.first))


def file_move(log: Log, to: int) -> FileMove:
    """The spans between the present place of the conversation and event `to`. Raises `BadInput` if it lies inside of one."""
    here, there = log.path, log.reader.path(to)
    events = tuple(event for event in log.events() if isinstance(event.body, FilesSnapshotted | Failed) or event.seq == here.tip)
    spans = file_spans(events)
    inside = next((span for span in spans if span.first in there and span.last not in there), None)
    if inside is not None:
        ends = f" or to {inside.last}" if inside.certain else ""
        raise BadInput(
            f"event {to} is in the middle of a turn that changed files; go back to event {inside.first - 1}{ends}", where=log.session
        )
    undone = tuple(span for span in reversed(spans) if span.first not in there)
    redone = tuple(span for span in file_spans(log.events(there)) if span.first not in here)
    failed = (event.seq for event in events if isinstance(event.body, Failed) and event.body.what == SNAPSHOT)
    unsaved = (*(seq for seq in failed if seq not in there), *(span.first for span in redone if not span.after))
    return FileMove(undone, tuple(span for span in redone if span.after), unsaved)


def unfinished_restores(log: Log) -> tuple[RestoreStarted, ...]:
    """The restores that a crash cut off: those at the end of the log without a rewind or a turn behind them."""
    found: list[RestoreStarted] = []
    for event in reversed(tuple(log.events())):
        if isinstance(event.body, RestoreStarted):
            found.append(event.body)
        elif isinstance(event.body, Rewound | TurnStarted):
            break
    return tuple(reversed(found))


def last_restores(log: Log) -> tuple[int, tuple[RestoreStarted, ...]]:
    """The place of the conversation before the newest rewind with files of this path, and the restores of that rewind.

    Raises `BadInput` if there is none.
    """
    newest = next((event for event in reversed(tuple(log.events())) if isinstance(event.body, Rewound) and event.body.files), None)
    if newest is None:
        raise BadInput("no rewind with files is on this branch, so there is none to take back", where=log.session)
    found: list[RestoreStarted] = []
    seq = newest.seq - 1
    while isinstance(body := log.event(seq).body, RestoreStarted):
        found.append(body)
        seq -= 1
    return seq, tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class TurnChange:
    """What a turn changed in one folder, from event `first` to event `last`; turns count from 1. `problem` says why it is not known.

    It is not `certain` if the turn was cut off: then it has what changed until the next snapshot, by whomever.
    """

    turn: int
    first: int
    last: int
    root: str = ""
    certain: bool = True
    files: tuple[ChangedFile, ...] = ()
    patch: Patch = NO_PATCH
    problem: str = ""


def turn_changes(log: Log, home: Path, turn: int | None = None, *, with_patch: bool = True) -> tuple[TurnChange, ...]:
    """Return what each turn of the current branch changed, oldest first; turns without snapshots are not among them.

    `turn` selects one, from 1, or from the end if it is negative. Raises `BadInput` if there is no such turn.
    """
    events = [event for event in log.events() if isinstance(event.body, TurnStarted | FilesSnapshotted | Failed)]
    starts = [event.seq for event in events if isinstance(event.body, TurnStarted)]
    wanted = _chosen(turn, len(starts), log.session)
    spans = file_spans(event for event in events if isinstance(event.body, FilesSnapshotted))
    found = [_change(span, _number(starts, span.first), home, with_patch=with_patch) for span in _of_turn(spans, starts, wanted)]
    found += [change for change in _failures(events, starts) if wanted is None or change.turn == wanted]
    return tuple(sorted(found, key=lambda change: change.first))


def _chosen(turn: int | None, count: int, session: str) -> int | None:
    number = turn if turn is None or turn > 0 else count + 1 + turn
    if number is not None and not 0 < number <= count:
        raise BadInput(f"there is no turn {turn}; this session has {count}", where=session)
    return number


def _number(starts: list[int], seq: int) -> int:
    return sum(start <= seq for start in starts)


def _of_turn(spans: tuple[FileSpan, ...], starts: list[int], wanted: int | None) -> Iterator[FileSpan]:
    return (span for span in spans if wanted is None or _number(starts, span.first) == wanted)


def _change(span: FileSpan, turn: int, home: Path, *, with_patch: bool) -> TurnChange:
    known = TurnChange(turn, span.first, span.last, span.root, span.certain)
    if not span.after:
        return replace(known, problem="the turn was cut off before its second snapshot")
    try:
        shadow = Shadow(home, Path(span.root))
        if not shadow.folder.is_dir():
            return replace(known, problem="its snapshots have been deleted")
        files = changed_files(shadow, span.before, span.after)
        patch = patch_between(shadow, span.before, span.after) if with_patch else NO_PATCH
    except PalimpsestError as error:
        return replace(known, problem=error.message)
    return replace(known, files=files, patch=patch)


def _failures(events: list[Event], starts: list[int]) -> Iterator[TurnChange]:
    for event in events:
        if isinstance(event.body, Failed) and event.body.what == SNAPSHOT:
            yield TurnChange(_number(starts, event.seq), event.seq, event.seq, problem=event.body.message)


Merge: TypeAlias = Callable[[SavedFile, SavedFile, SavedFile], SavedFile | None]
"""Applies the change from the first to the third version to the second; `None` if that is not clean."""


class FileStep(NamedTuple):
    """One change to make: what lies between two snapshots. It is not `certain` if the user may have made part of it."""

    source: SnapshotFiles
    target: SnapshotFiles
    certain: bool = True


class PlannedFile(NamedTuple):
    """A file to write, or to delete if `wanted` is `None`; `merged` if changes of the user are kept in it."""

    path: str
    present: SavedFile | None
    wanted: SavedFile | None
    merged: bool = False


class FileConflict(NamedTuple):
    """A file that cannot be brought back without losing something, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is to be done in one folder: files to write, files that are left as they are, and folders to remove if empty or to make."""

    files: tuple[PlannedFile, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    empty: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Planning:
    """The state of a plan while steps are applied in order: the versions that differ from the present ones, and conflicts by path."""

    present: SnapshotFiles
    merge: Merge
    unsure: bool
    versions: dict[str, SavedFile | None] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    conflicts: dict[str, str] = field(default_factory=dict)

    def version(self, path: str) -> SavedFile | None:
        return self.versions[path] if path in self.versions else self.present.files.get(path)


def plan_files(present: SnapshotFiles, steps: Iterable[FileStep], merge: Merge, *, unsure: bool = False) -> FilePlan:
    """Plan the steps, in order, from the present state. Without `unsure`, what the user may have changed is a conflict.

    A file is written only if it is as the step left it, or if the changes of the user merge cleanly.
    """
    planning = _Planning(present, merge, unsure)
    empty: set[str] = set()
    made: set[str] = set()
    for step in steps:
        for path in sorted(_changed(step)):
            if path not in planning.conflicts:
                why = _apply(planning, step, path)
                if why:
                    planning.conflicts[path] = why
        gone, new = step.source.folders - step.target.folders, step.target.folders - step.source.folders
        known = {folder for folder in gone if not step.target.is_unknown(folder)}
        empty, made = (empty | known) - new, (made | new) - gone
    _check_places(planning)
    files = tuple(
        PlannedFile(path, present.files.get(path), wanted, path in planning.merged)
        for path, wanted in sorted(planning.versions.items())
        if path not in planning.conflicts and wanted != present.files.get(path)
    )
    conflicts = tuple(FileConflict(path, why) for path, why in sorted(planning.conflicts.items()))
    return FilePlan(files, conflicts, frozenset(empty), frozenset(made - present.folders))


def _changed(step: FileStep) -> set[str]:
    source, target = step.source.files, step.target.files
    return {path for path in source.keys() | target.keys() if source.get(path) != target.get(path)}


def _apply(planning: _Planning, step: FileStep, path: str) -> str:
    """Apply one step to one file. Returns why it cannot be done; empty if it can, or nothing is to be done."""
    source, target, now = step.source.files.get(path), step.target.files.get(path), planning.version(path)
    if target is None and step.target.is_unknown(path):
        # It was there and was left out of the snapshot, so it is not known what the turn made of it.
        return ""
    if now == target:
        return ""
    if not step.certain and not planning.unsure:
        return "a turn was cut off, so it is not known whether it or you changed this"
    if target is not None and not target.is_kept:
        return "its content was too large for the snapshot"
    if now is None and planning.present.is_unknown(path):
        return "it is ignored or cannot be read now, so it is not known whether you changed it"
    if now == source:
        planning.versions[path] = target
        return ""
    found = planning.merge(source, now, target) if source is not None and target is not None and now is not None else None
    if found is None:
        return "you changed it since" if now is not None else "you deleted it since"
    planning.versions[path] = found
    planning.merged.add(path)
    return ""


def _check_places(planning: _Planning) -> None:
    """Add a conflict for each file that would need the place of something that stays."""
    changed = {path for path, wanted in planning.versions.items() if wanted is not None and path not in planning.conflicts}
    if not changed:
        return
    while True:
        staying = {path for path in planning.present.files if path not in planning.versions or path in planning.conflicts}
        staying |= {path for path in changed if path not in planning.conflicts}
        staying |= {each.path.rstrip("/") for each in planning.present.left_out if each.reason not in ("folder", "large")}
        folders = {parent for path in staying for parent in parents_of(path)}
        blocked = {path for path in changed if path in folders or any(parent in staying for parent in parents_of(path))}
        blocked -= planning.conflicts.keys()
        if not blocked:
            return
        planning.conflicts |= dict.fromkeys(blocked, "something else is in its place")


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
        self._write_back(plan, partial=partial)
        event = rewind(self._log, plan.to, files=True, why=why)
        self._log.sync()
        return event

    def _write_back(self, plan: RewindPlan, *, partial: bool) -> None:
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
