"""Notes about code that may no longer hold: a cited file has other bytes now, or the commit in which they were is gone."""

from collections.abc import Callable
from typing import Final, TypeAlias

from palimpsest.core.items import Value
from palimpsest.memory.note import Note

DIGEST_CHARACTERS: Final = 12
# What a stale note loses of its score: more than importance, use and age can give, less than a matching word.
STALE_LOSS: Final = 1.0
Digest: TypeAlias = Callable[[str], str]
"""Returns the beginning of the SHA-256 of a file's bytes as they are now, by its path in the project; empty if there is no such file."""
HasCommit: TypeAlias = Callable[[str], bool]
"""Returns whether the repository of the project has a commit."""


class CitedFile(Value, frozen=True):
    """A file that a note is about: what the note says was true of these bytes. `commit` is empty if it was not known."""

    path: str
    digest: str
    commit: str = ""

    @property
    def text(self) -> str:
        """The file as the field `files` of a note names it."""
        return f"{self.path}@{self.digest}" + (f"@{self.commit}" if self.commit else "")


def cited_files(note: Note) -> tuple[CitedFile, ...]:
    """Return the files that a note cites; what is no `path@digest@commit` is left out. A path may contain `@`."""
    found = []
    for each in note.files:
        parts = each.split("@")
        last = (
            len(parts) - 1
            if len(parts) > 1 and _is_digest(parts[-1]) and not (len(parts) > 2 and _is_digest(parts[-2]))
            else len(parts) - 2
        )
        if last >= 1 and _is_digest(parts[last]):
            found.append(CitedFile("@".join(parts[:last]), parts[last], "@".join(parts[last + 1 :])))
    return tuple(found)


def changed_paths(note: Note, digest: Digest, has_commit: HasCommit) -> tuple[str, ...]:
    """Return the paths of cited files that have other bytes now, that are gone, or whose commit is gone."""
    return tuple(
        cited.path
        for cited in cited_files(note)
        if digest(cited.path) != cited.digest or (bool(cited.commit) and not has_commit(cited.commit))
    )


def _is_digest(text: str) -> bool:
    return len(text) == DIGEST_CHARACTERS and all(letter in "0123456789abcdef" for letter in text)
