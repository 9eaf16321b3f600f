"""Whether files that notes cite have changed since, with a cache by time and size, so that a prompt reads only what is new."""

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import StoreError
from palimpsest.memory.note import Note
from palimpsest.memory.weighing.staleness import DIGEST_CHARACTERS, changed_paths, cited_files
from palimpsest.stores.snapshots.repository import borrowed_git

# Bytes; a larger file counts as changed, since a note cannot be checked against it in time.
LARGEST_FILE: Final = 4 * 1024 * 1024
_SECONDS: Final = 5.0


class StaleFiles:
    """The files of one project as notes cite them. Paths outside of the project, and links that lead there, count as changed."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._digests: dict[str, tuple[tuple[int, ...], str]] = {}
        self._commits: dict[str, bool] = {}

    def changed(self, note: Note) -> tuple[str, ...]:
        """Return the paths of the files that a note cites and that have changed since, or whose commit is gone."""
        unknown = [cited.commit for cited in cited_files(note) if cited.commit and cited.commit not in self._commits]
        if unknown:
            self._look_up(unknown)
        return changed_paths(note, self.digest, lambda commit: self._commits.get(commit, True))

    def digest(self, path: str) -> str:
        """Return the beginning of the SHA-256 of a file of the project; empty if there is none that can be read."""
        try:
            place = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118 - `Path` is slower, and this runs for each recalled note
            if os.path.commonpath((place, self._root)) != self._root:
                return ""
            found = os.stat(place)  # noqa: PTH116 - as above
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
                return ""
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._digests.get(path)
            if known is None or known[0] != state:
                known = state, sha256(Path(place).read_bytes()).hexdigest()[:DIGEST_CHARACTERS]
                self._digests[path] = known
            return known[1]
        except (OSError, ValueError):
            return ""

    def _look_up(self, commits: list[str]) -> None:
        """Ask git once which commits there are; without git or a repository that can be read all count as there."""
        names = [each for each in dict.fromkeys(commits) if each.isalnum()]
        data = "".join(f"{each}\n" for each in names).encode()
        try:
            with borrowed_git(Path(self._root), seconds=_SECONDS) as git:
                output = b"" if git is None else git.run("cat-file", "--batch-check=%(objecttype)", data=data)
        except (OSError, StoreError):
            return
        lines = output.decode("ascii", "replace").splitlines()
        if len(lines) == len(names):
            self._commits.update((name, line == "commit") for name, line in zip(names, lines, strict=True))
