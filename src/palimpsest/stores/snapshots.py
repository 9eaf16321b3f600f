"""Snapshots of a project folder: takes, reads and writes them, merges three versions of a file, and shows differences."""

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.files import read_regular, store_error, store_errors, write_private
from palimpsest.stores.shadow_git import FOLDER, LARGE, SavedFile, Shadow, ShadowGit, find_git

LARGEST_BYTES: Final = 10 * 1024 * 1024
MOST_FILES: Final = 200_000
MOST_BYTES: Final = 4 * 1024 * 1024 * 1024
Reason: TypeAlias = Literal["large", "unreadable", "nested", "ignored", "folder"]
"""Why an entry is no file of a snapshot: too large, a repository of its own, and so on; `folder` is one without files."""
FILES, REST = "files", "rest"
"""The entries of a snapshot: the tree of the files, and the list of what was left out."""
_LARGEST_EXCLUDE: Final = 1_000_000
_LARGEST_LINK: Final = 4_096
# New contents from which on they are written into one pack: a file for each would take three times as long.
_PACKED_ABOVE: Final = 200


class LeftOut(NamedTuple):
    """An entry that is not in a snapshot; a folder ends with a slash. `fact` compares large files: size and time of change."""

    reason: Reason
    path: str
    fact: str = ""


class SnapshotLimits(NamedTuple):
    """What a snapshot takes at most: bytes of one file, number of files, and bytes of new contents."""

    largest: int = LARGEST_BYTES
    files: int = MOST_FILES
    total: int = MOST_BYTES


LIMITS: Final = SnapshotLimits()


class TakenSnapshot(NamedTuple):
    """A snapshot that was taken: its id, what was left out, and how many milliseconds it took."""

    id: str
    left_out: tuple[LeftOut, ...]
    took_ms: int


class _ScannedTree(NamedTuple):
    """The folder whose ignore rules hold, and the project below it, as a prefix that ends with a slash or is empty."""

    top: Path
    prefix: str
    index_file: Path

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that limit a listing to the project."""
        return ("--", self.prefix.rstrip("/")) if self.prefix else ()


def take_snapshot(shadow: Shadow, limits: SnapshotLimits = LIMITS) -> TakenSnapshot:
    """Keep the present state of a project folder. Only what changed since the last snapshot is read.

    Raises `StoreError` if git fails, `BadInput` if the folder has too many files or is gone, `Locked`.
    """
    started = monotonic()
    if not shadow.root.is_dir():
        raise BadInput("the project folder does not exist", where=str(shadow.root))
    with shadow.locked():
        tree = _work_tree(shadow)
        try:
            left_out = _update(shadow, tree, limits)
        except StoreError:
            if shadow.git.is_stopped:
                raise
            # A file may have gone while it was read, or a power cut have damaged the index, which can be made again.
            tree.index_file.unlink(missing_ok=True)
            left_out = _update(shadow, tree, limits)
        snapshot = pack_snapshot(shadow, _written(shadow, tree), left_out)
    return TakenSnapshot(snapshot, left_out, int((monotonic() - started) * 1000))


def pack_snapshot(shadow: Shadow, files: str, left_out: Iterable[LeftOut]) -> str:
    """Join the tree of the files and the list of what was left out into one object, and return its id."""
    records = b"".join(os.fsencode(f"{each.reason} {each.fact} {each.path}") + b"\0" for each in left_out)
    rest = shadow.add_object("blob", records)
    named = ((b"40000", FILES, files), (b"100644", REST, rest))
    entries = b"".join(b"%b %b\0%b" % (mode, name.encode(), bytes.fromhex(oid)) for mode, name, oid in named)
    return shadow.add_object("tree", entries)


def parse_left_out(data: bytes) -> tuple[LeftOut, ...]:
    """The list of what was left out, from the bytes in a snapshot."""
    found: list[LeftOut] = []
    for record in data.split(b"\0")[:-1]:
        reason, fact, path = os.fsdecode(record).split(" ", 2)
        found += [LeftOut(known, path, fact) for known in get_args(Reason) if known == reason]
    return tuple(found)


def _work_tree(shadow: Shadow) -> _ScannedTree:
    """The repository that holds the project, for its ignore rules; the project itself if there is none, or if it ignores the project."""
    root = shadow.root
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    _write_excludes(shadow, top)
    if top != root and _is_ignored(shadow, top):
        top = root
        _write_excludes(shadow, top)
    prefix = "" if top == root else f"{root.relative_to(top)}/"
    return _ScannedTree(top, prefix, shadow.folder / ("index-below" if prefix else "index"))


def _is_ignored(shadow: Shadow, top: Path) -> bool:
    """Whether the rules of a repository ignore the whole project. An index that does not exist shows what they say about new files."""
    tree = _ScannedTree(top, f"{shadow.root.relative_to(top)}/", shadow.folder / "index-none")
    return any(path.endswith("/") and tree.prefix.startswith(path) for path, _ in _listed(shadow, tree, "-o", "-i", "--directory"))


def _write_excludes(shadow: Shadow, top: Path) -> None:
    """Keep the ignore rules that lie beside the user's repository, and one for our home if it lies in the project."""
    lines = _bounded(_settings_folder(top / ".git") / "info" / "exclude", _LARGEST_EXCLUDE)
    if shadow.home.is_relative_to(top):
        name = os.fsencode(shadow.home.relative_to(top))
        escaped = b"".join(b"\\" + bytes((byte,)) if byte in b"\\*?[ !#" else bytes((byte,)) for byte in name)
        lines += b"\n/" + escaped + b"/\n"
    place = shadow.folder / "info" / "exclude"
    if _bounded(place, _LARGEST_EXCLUDE * 2) != lines:
        with store_errors(place, "write"):
            write_private(place, lines, sync=False)


def _settings_folder(entry: Path) -> Path:
    """The folder with the settings of a repository; `.git` is a file in further work trees and in submodules."""
    if entry.is_dir():
        return entry
    named = _bounded(entry, _LARGEST_LINK).removeprefix(b"gitdir: ").rstrip(b"\n")
    folder = entry.parent / os.fsdecode(named or b".git")
    return folder / os.fsdecode(_bounded(folder / "commondir", _LARGEST_LINK).rstrip(b"\n") or b".")


def _bounded(path: Path, most: int) -> bytes:
    """The content of a regular file; empty if there is none, or it is larger."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""
    return data if len(data) <= most else b""


def _update(shadow: Shadow, tree: _ScannedTree, limits: SnapshotLimits) -> tuple[LeftOut, ...]:
    """Bring the index up to date, and return what was left out."""
    listed = dict(_listed(shadow, tree, "-t", "-m", "-d", "-o"))
    if len(listed) > limits.files:
        raise BadInput(f"the folder has more than {limits.files:,} files for a snapshot", where=str(shadow.root))
    listed |= dict.fromkeys(_tracked_but_ignored(shadow, tree), "?")
    added: list[str] = []
    removed: list[str] = []
    left_out: list[LeftOut] = []
    total = 0
    for path, tag in listed.items():
        if path.endswith("/"):
            left_out.append(LeftOut("nested", path))
            continue
        found, size = _judged(tree.top, path, limits.largest)
        total += size
        if found is not None:
            left_out.append(found)
            removed += [path] if tag != "?" else []
        else:
            added.append(path)
    if total > limits.total:
        raise BadInput(f"the folder has more than {limits.total:,} bytes of new files for a snapshot", where=str(shadow.root))
    if removed:
        data = b"".join(b"0 %b\t%b\0" % (b"0" * 40, os.fsencode(path)) for path in removed)
        shadow.git.run("update-index", "-z", "--index-info", tree=tree.top, index=tree.index_file, data=data)
    if added:
        settings = ("core.bigFileThreshold=1", "core.compression=1") if len(added) > _PACKED_ABOVE else ()
        data = b"".join(os.fsencode(path) + b"\0" for path in added)
        update = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        shadow.git.run(*update, tree=tree.top, index=tree.index_file, data=data, settings=settings)
    left_out += _rest(shadow, tree, {each.path for each in left_out})
    return tuple(sorted(each._replace(path=each.path.removeprefix(tree.prefix)) for each in left_out))


def _listed(shadow: Shadow, tree: _ScannedTree, *flags: str) -> Iterator[tuple[str, str]]:
    """Yield paths of a listing with their tags: `?` for those that are not in the index, and another letter for those that changed."""
    output = shadow.git.run("ls-files", "-z", "--exclude-standard", *flags, *tree.words, tree=tree.top, index=tree.index_file)
    for record in output.split(b"\0")[:-1]:
        tag, _, path = os.fsdecode(record).partition(" ") if "-t" in flags else ("", "", os.fsdecode(record))
        yield path, tag


def _tracked_but_ignored(shadow: Shadow, tree: _ScannedTree) -> tuple[str, ...]:
    """Files that the user's repository tracks although its rules ignore them. Its index is only read; an unreadable one names none."""
    entry = tree.top / ".git"
    folder = entry if entry.is_dir() else tree.top / os.fsdecode(_bounded(entry, _LARGEST_LINK).removeprefix(b"gitdir: ").rstrip(b"\n"))
    index = folder / "index"
    if not index.is_file():
        return ()
    flags = ("ls-files", "-z", "-c", "-i", "--exclude-standard")
    try:
        output = shadow.git.run(*flags, *tree.words, tree=tree.top, index=index)
    except StoreError:
        return ()
    return tuple(path for record in set(output.split(b"\0")[:-1]) if os.path.lexists(tree.top / (path := os.fsdecode(record))))


def _judged(top: Path, path: str, largest: int) -> tuple[LeftOut | None, int]:
    """Why a file is left out, and the bytes that are read otherwise. One that has gone is not left out: git takes it from the index."""
    place = top / path
    try:
        facts = place.lstat()
    except OSError:
        return None, 0
    if stat.S_ISREG(facts.st_mode):
        if facts.st_size > largest:
            return LeftOut("large", path, f"{facts.st_size}-{facts.st_mtime_ns}"), 0
        return (None, facts.st_size) if os.access(place, os.R_OK) else (LeftOut("unreadable", path), 0)
    return None, 0


def _rest(shadow: Shadow, tree: _ScannedTree, known: set[str]) -> Iterator[LeftOut]:
    """Yield ignored entries and folders without files. Folders that are left out whole are named once."""
    for path, _ in _listed(shadow, tree, "-o", "-i", "--directory"):
        if path not in known and path != tree.prefix:
            yield LeftOut("ignored", path)
            known.add(path)
    for path, _ in _listed(shadow, tree, "-o", "--directory"):
        if path.endswith("/") and path not in known and path != tree.prefix:
            yield LeftOut("folder", path)


def _written(shadow: Shadow, tree: _ScannedTree) -> str:
    """The id of the tree of the project's files."""
    prefix = (f"--prefix={tree.prefix}",) if tree.prefix else ()
    try:
        return shadow.git.run("write-tree", *prefix, tree=tree.top, index=tree.index_file).decode().strip()
    except StoreError:
        if not prefix or shadow.git.run("ls-files", "-z", *tree.words, tree=tree.top, index=tree.index_file):
            raise
        # There is no such folder in the index, because the project has no files.
        return shadow.add_object("tree", b"")


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


MOST_PATCH_BYTES: Final = 1024 * 1024
_SECTION: Final = b"diff --git "
_ESCAPES: Final = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_FLAGS: Final = ("-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")


class ChangedFile(NamedTuple):
    """A file that differs: `action` is `created`, `deleted` or `changed`; the lines are `None` for binary files and those left out."""

    path: str
    action: str
    added: int | None = None
    removed: int | None = None


class Patch(NamedTuple):
    """A unified diff in the form of git, of whole files; `left_out` counts the files for which there was no room."""

    data: bytes = b""
    left_out: int = 0


NO_PATCH: Final = Patch()


def changed_files(shadow: Shadow, before: str, after: str) -> tuple[ChangedFile, ...]:
    """Return the files that differ between two snapshots, by path. Raises `StoreError` if one of them is missing or damaged.

    Files that were left out of one of them, such as ignored ones, are not known to differ. Those too large to be kept are compared by
    their size and time.
    """
    source, target = read_snapshot(shadow, before), read_snapshot(shadow, after)
    counts = line_counts(shadow, before, after)
    found: list[ChangedFile] = []
    for path in sorted(_differing(source, target) - _unknown(source, target)):
        action = "created" if path not in source.files else "deleted" if path not in target.files else "changed"
        found.append(ChangedFile(path, action, *(counts.get(path) or (None, None))))
    return tuple(found)


def _differing(source: SnapshotFiles, target: SnapshotFiles) -> set[str]:
    return {path for path in source.files.keys() | target.files.keys() if source.files.get(path) != target.files.get(path)}


def _unknown(source: SnapshotFiles, target: SnapshotFiles) -> set[str]:
    """Files that only one of the snapshots has, because they were left out of the other."""
    pairs = ((source, target), (target, source))
    return {path for here, there in pairs for path in here.files if path not in there.files and there.is_unknown(path)}


def patch_between(shadow: Shadow, before: str, after: str, most_bytes: int = MOST_PATCH_BYTES) -> Patch:
    """Return the difference of two snapshots as a diff; binary files are only named. Raises `StoreError` if one is missing or damaged.

    Files come in the order of their paths, and from the first that does not fit on they are left out.
    """
    if most_bytes < 0:
        raise BadInput(f"the size of a diff cannot be {most_bytes} bytes")
    # To git a file that was left out of the second snapshot is a deleted one.
    skipped = {_section_of(path) for path in _unknown(read_snapshot(shadow, before), read_snapshot(shadow, after))}
    is_skipped, kept, section, left_out = False, bytearray(), bytearray(), 0
    with shadow.git.stream("diff-tree", *_FLAGS, f"{before}:{FILES}", f"{after}:{FILES}") as output:
        for line in output:
            if line.startswith(_SECTION):
                # No line of a content begins so, because each has a sign before it.
                is_skipped = line in skipped
                kept += section
                section.clear()
                left_out += 1 if left_out and not is_skipped else 0
            if left_out or is_skipped:
                continue
            section += line
            if len(kept) + len(section) > most_bytes:
                left_out = 1
                section.clear()
    return Patch(bytes(kept + section), left_out)


def _section_of(path: str) -> bytes:
    """The first line of the section of a file."""
    return _SECTION + b"%b %b\n" % (_quoted(b"a/" + os.fsencode(path)), _quoted(b"b/" + os.fsencode(path)))


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: with escapes and in quotation marks if it has control characters, quotation marks or backslashes."""
    written = b"".join(_ESCAPES.get(byte) or (b"\\%03o" % byte if byte < 0x20 or byte == 0x7F else bytes((byte,))) for byte in name)
    return name if written == name else b'"' + written + b'"'
