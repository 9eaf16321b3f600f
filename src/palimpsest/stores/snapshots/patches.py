"""What differs between two snapshots: the files with their lines, and a unified diff that is bounded in size."""

from typing import Final, NamedTuple

from palimpsest.core.errors import BadInput
from palimpsest.stores.snapshots.contents import SnapshotFiles, line_counts, read_snapshot
from palimpsest.stores.snapshots.shadow import Shadow
from palimpsest.stores.snapshots.taking import FILES

MOST_BYTES: Final = 1024 * 1024
_SECTION: Final = b"diff --git "
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
    paths = (path for path in source.files.keys() | target.files.keys() if source.files.get(path) != target.files.get(path))
    found: list[ChangedFile] = []
    for path in sorted(paths):
        if not _is_known(source, path) or not _is_known(target, path):
            continue
        action = "created" if path not in source.files else "deleted" if path not in target.files else "changed"
        found.append(ChangedFile(path, action, *(counts.get(path) or (None, None))))
    return tuple(found)


def _is_known(files: SnapshotFiles, path: str) -> bool:
    return path in files.files or not files.is_unknown(path)


def patch_between(shadow: Shadow, before: str, after: str, most_bytes: int = MOST_BYTES) -> Patch:
    """Return the difference of two snapshots as a diff; binary files are only named. Raises `StoreError` if one is missing or damaged.

    Files come in the order of their paths, and from the first that does not fit on they are left out.
    """
    if most_bytes < 0:
        raise BadInput(f"the size of a diff cannot be {most_bytes} bytes")
    kept, section, left_out = bytearray(), bytearray(), 0
    with shadow.git.stream("diff-tree", *_FLAGS, f"{before}:{FILES}", f"{after}:{FILES}") as output:
        for line in output:
            if line.startswith(_SECTION):
                # No line of a content begins so, because each has a sign before it.
                if not left_out:
                    kept += section
                section.clear()
                left_out += 1 if left_out else 0
            if left_out:
                continue
            section += line
            if len(kept) + len(section) > most_bytes:
                left_out = 1
                section.clear()
    return Patch(bytes(kept + section), left_out)
