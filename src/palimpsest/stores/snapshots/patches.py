"""What differs between two snapshots: the files with their lines, and a unified diff that is bounded in size."""

import os
from typing import Final, NamedTuple

from palimpsest.core.errors import BadInput
from palimpsest.stores.snapshots.contents import SnapshotFiles, line_counts, read_snapshot
from palimpsest.stores.snapshots.shadow import Shadow
from palimpsest.stores.snapshots.taking import FILES

MOST_BYTES: Final = 1024 * 1024
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


def patch_between(shadow: Shadow, before: str, after: str, most_bytes: int = MOST_BYTES) -> Patch:
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
