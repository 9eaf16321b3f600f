"""Plans how files get from their present state to an earlier or later one, without touching what the turns did not change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from palimpsest.stores.snapshots.contents import SnapshotFiles, parents_of
from palimpsest.stores.snapshots.shadow import SavedFile

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
