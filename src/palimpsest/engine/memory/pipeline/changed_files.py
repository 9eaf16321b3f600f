"""Which notes speak about files whose bytes have changed since the note was written."""

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.memory.note import Note

# Bytes of a file that is compared; larger ones count as unchanged, because reading them takes too long.
_LARGEST: Final = 8 * 1024 * 1024
_DIGEST_LENGTH: Final = 12
_MOST_ROOTS: Final = 5


def notes_with_changed_files(notes: Iterable[Note], roots: tuple[str, ...]) -> frozenset[str]:
    """Return the names of notes that cite a file (`path@digest@commit`) which has other bytes now, or is gone.

    Paths are those below the first root that exists; without one nothing is known, and no note counts as changed.
    """
    root = next((Path(each) for each in roots[:_MOST_ROOTS] if Path(each).is_absolute() and Path(each).is_dir()), None)
    if root is None:
        return frozenset()
    digests: dict[str, str] = {}
    found = set[str]()
    for note in notes:
        for cited in note.files:
            path, _, rest = cited.partition("@")
            digest = rest.partition("@")[0]
            if path not in digests:
                digests[path] = _digest(root / path, root)
            if digest and digests[path] != digest and digests[path] != "?":
                found.add(note.name)
    return frozenset(found)


def _digest(path: Path, root: Path) -> str:
    """The digest of a file as a note cites it; empty if it is gone, `?` if it may not be read or is too large."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        return "?"
    try:
        if not real.is_file():
            return ""
        return "?" if real.stat().st_size > _LARGEST else sha256(real.read_bytes()).hexdigest()[:_DIGEST_LENGTH]
    except OSError:
        return "?"
