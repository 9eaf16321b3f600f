"""Takes a snapshot of a project folder: the files that git would add, and the names of what was left out."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.files import store_errors, write_private
from palimpsest.stores.snapshots.shadow import Shadow

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
