"""Reads snapshots, writes the snapshot of a planned state, and merges three versions of a file."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import StoreError
from palimpsest.stores.files import read_regular, store_error, write_private
from palimpsest.stores.snapshots.git import ShadowGit, find_git
from palimpsest.stores.snapshots.shadow import FOLDER, LARGE, SavedFile, Shadow
from palimpsest.stores.snapshots.taking import FILES, REST, LeftOut, pack_snapshot, parse_left_out

_TEXT_MODES: Final = frozenset({"100644", "100755"})
# Bytes at the beginning of a file in which a zero byte marks it as binary, as git does.
_SAMPLE: Final = 8_000


class SnapshotFiles(Struct, frozen=True):
    """The files of a snapshot by path, and what was left out of it."""

    files: Mapping[str, SavedFile]
    left_out: tuple[LeftOut, ...]
    folders: frozenset[str]
    """Folders that exist, with or without files, without a slash at the end; those below one that was left out are not known."""
    _unknown: frozenset[str]

    def is_unknown(self, path: str) -> bool:
        """Whether a path, or a folder above it, was left out, so that the snapshot does not say what was there."""
        return path in self._unknown or any(parent in self._unknown for parent in parents_of(path))


def parents_of(path: str) -> tuple[str, ...]:
    """The folders above a path, nearest first."""
    found: list[str] = []
    while "/" in path:
        path = path.rpartition("/")[0]
        found.append(path)
    return tuple(found)


def read_snapshot(shadow: Shadow, snapshot: str) -> SnapshotFiles:
    """The files of a snapshot. Raises `StoreError` if it is missing or damaged."""
    _refuse_special_objects(shadow.folder / "objects")
    [rest] = shadow.contents((f"{snapshot}:{REST}",))
    left_out = parse_left_out(rest)
    files: dict[str, SavedFile] = {}
    for record in shadow.git.run("ls-tree", "-r", "-z", f"{snapshot}:{FILES}").split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        mode, _, oid = facts.decode().split(" ")
        files[os.fsdecode(path)] = SavedFile(mode, oid)
    files |= {each.path: SavedFile(LARGE, each.fact) for each in left_out if each.reason == "large"}
    folders = {parent for path in (*files, *(each.path.rstrip("/") for each in left_out)) for parent in parents_of(path)}
    folders |= {each.path.rstrip("/") for each in left_out if each.path.endswith("/")}
    # A folder without files has no unknown content, but folders below it are not listed.
    unknown = frozenset(each.path.rstrip("/") for each in left_out if each.reason in ("unreadable", "nested", "ignored"))
    return SnapshotFiles(files, left_out, frozenset(folders), unknown)


def _refuse_special_objects(objects: Path) -> None:
    """Raise `StoreError` if something else stands where an object should be: git would wait for a pipe or a device for ever."""
    try:
        with os.scandir(objects) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        special = None
        for folder in folders:
            with os.scandir(folder) as entries:
                special = special or next((entry.path for entry in entries if not entry.is_file()), None)
    except OSError as error:
        raise store_error(error, objects, "read") from error
    if special is not None:
        raise StoreError("this is no file, so that the snapshot cannot be read", where=special)


def damaged_snapshots(home: Path) -> Iterator[tuple[str, str]]:
    """Yield each project folder whose snapshots are not whole, and why; every content that a session needs is read."""
    for folder in sorted((home.resolve() / FOLDER).glob("*.git")):
        try:
            root = os.fsdecode(read_regular(folder / "root")).rstrip("\n")
        except OSError:
            root = str(folder)
        if problem := _problem(folder):
            yield root, problem


def _problem(folder: Path) -> str:
    """Why the snapshots of a repository are not whole; empty if they are."""
    program = find_git(folder)
    if program is None:
        return "they cannot be checked, because there is no git"
    try:
        _refuse_special_objects(folder / "objects")
        # Without an index: it may name contents that no session needs.
        ShadowGit(program, folder).run("fsck", "--full", "--no-dangling", "--no-reflogs", index=folder / "index-none")
    except StoreError as error:
        return f"{error.message} ({error.where})"
    return ""


def write_snapshot(
    shadow: Shadow,
    base: str,
    changes: Mapping[str, SavedFile | None],
    *,
    made: frozenset[str] = frozenset(),
    removed: frozenset[str] = frozenset(),
) -> str:
    """Keep the snapshot that differs from another one by some files and folders, and return its id; `None` stands for a deleted file.

    The caller holds the repository.
    """
    left_out = {each.path: each for each in read_snapshot(shadow, base).left_out if each.path not in changes}
    deleted = {parent for path, wanted in changes.items() if wanted is None for parent in parents_of(path)}
    # Without its last file git does not know a folder any more.
    left_out |= {f"{folder}/": LeftOut("folder", f"{folder}/") for folder in made | deleted if f"{folder}/" not in left_out}
    index = shadow.folder / "index-planned"
    index.unlink(missing_ok=True)
    try:
        shadow.git.run("read-tree", f"{base}:{FILES}", index=index)
        # Deletions come first, because a file may take the place of a folder.
        ordered = sorted(changes.items(), key=lambda change: change[1] is not None)
        data = b"".join(_index_line(path, wanted) for path, wanted in ordered)
        shadow.git.run("update-index", "-z", "--add", "--replace", "--index-info", index=index, data=data)
        files = shadow.git.run("write-tree", index=index).decode().strip()
    finally:
        index.unlink(missing_ok=True)
    return pack_snapshot(shadow, files, sorted(each for path, each in left_out.items() if path.rstrip("/") not in removed))


def line_counts(shadow: Shadow, before: str, after: str) -> dict[str, tuple[int, int] | None]:
    """By file, the lines that one snapshot has more and less than another; `None` for binary files."""
    flags = ("-r", "-z", "--numstat", "--no-renames")
    found: dict[str, tuple[int, int] | None] = {}
    for record in shadow.git.run("diff-tree", *flags, f"{before}:{FILES}", f"{after}:{FILES}").split(b"\0")[:-1]:
        added, removed, path = record.split(b"\t", 2)
        found[os.fsdecode(path)] = None if added == b"-" else (int(added), int(removed))
    return found


def _index_line(path: str, wanted: SavedFile | None) -> bytes:
    mode, oid = ("0", "0" * 40) if wanted is None else wanted
    return f"{mode} {oid}\t".encode() + os.fsencode(path) + b"\0"


def merge_files(shadow: Shadow, base: SavedFile, ours: SavedFile, theirs: SavedFile) -> SavedFile | None:
    """Apply the change from `base` to `theirs` to our version of a text, and keep the result; `None` if that is not clean.

    Raises `StoreError` if a version is missing.
    """
    if not {base.mode, ours.mode, theirs.mode} <= _TEXT_MODES:
        return None
    mode = theirs.mode if ours.mode == base.mode else ours.mode
    if base.oid in (ours.oid, theirs.oid) or ours.oid == theirs.oid:
        return SavedFile(mode, theirs.oid if base.oid == ours.oid else ours.oid)
    versions = tuple(shadow.contents((ours.oid, base.oid, theirs.oid)))
    if any(b"\0" in data[:_SAMPLE] for data in versions):
        return None
    with tempfile.TemporaryDirectory(prefix="merge-", dir=shadow.folder) as folder:
        paths = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for path, data in zip(paths, versions, strict=True):
            write_private(path, data, sync=False)
        # The exit code counts the conflicts.
        with suppress(StoreError):
            merged = shadow.git.run("merge-file", "-p", "-q", *map(str, paths))
            return SavedFile(mode, shadow.add_object("blob", merged))
    return None
