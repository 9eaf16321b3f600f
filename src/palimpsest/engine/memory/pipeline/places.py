"""The stores that the pipeline works on: claims and spending of a home, and the notes and summaries of each scope."""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.engine.memory.notebook import Notebook
from palimpsest.memory.changes import Memory, Tombstone
from palimpsest.memory.note import Note
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.files import read_regular
from palimpsest.stores.home import AnyHome, Home
from palimpsest.stores.notes.claims import ClaimRules, JobClaims
from palimpsest.stores.notes.folder import TOMBSTONES, NoteFolder
from palimpsest.stores.notes.jobs_database import JobsDatabase
from palimpsest.stores.notes.rollouts import RolloutFiles, RolloutRows
from palimpsest.stores.notes.scopes import USER_SCOPE, project_scope, scope_folder
from palimpsest.stores.notes.spending import DaySpending

_ID_LENGTH: Final = 12
_stones = msgspec.json.Decoder(Tombstone)


class PipelinePlaces:
    """Everything of a home that the pipeline reads and writes. Raises `BadInput` for a home in memory, which keeps nothing."""

    def __init__(self, home: AnyHome, config: MemoryConfig) -> None:
        if not isinstance(home, Home):
            raise BadInput("a home in memory has no notes; set PAL_HOME to a folder", where="memory")
        self.home = home
        self.config = config
        self.folder = home.folder / "memory"
        database = JobsDatabase(self.folder)
        rules = ClaimRules(int(config.lease_seconds * 1_000), int(config.retry_seconds * 1_000), config.retries)
        self.claims = JobClaims(database, home.clock, rules)
        self.rows = RolloutRows(database)
        self.spending = DaySpending(self.folder)
        self._scopes: dict[str, str] = {}

    def scope_of(self, cwd: str) -> str:
        """Return the scope of the project in which a session worked. Sessions of other machines have scopes of their own."""
        if cwd not in self._scopes:
            # A path of another system, or none, must not be read as one below the folder in which this process happens to run.
            known = Path(cwd).is_absolute() and "\0" not in cwd
            self._scopes[cwd] = project_scope(Path(cwd)) if known else f"project-{sha256(os.fsencode(cwd)).hexdigest()[:_ID_LENGTH]}"
        return self._scopes[cwd]

    def scopes(self) -> tuple[str, ...]:
        """Return the scopes that have a folder, or summaries that should be in one."""
        found = {row.scope for row in self.rows.all()}
        if self.folder.is_dir():
            found |= {entry.name for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False) and _is_scope(entry.name)}
        return tuple(sorted(found))

    def scope_folder(self, scope: str) -> Path:
        """Return the folder of a scope."""
        return scope_folder(self.home.folder, scope)

    def note_folder(self, scope: str) -> NoteFolder:
        """Return the notes of a scope as files."""
        return NoteFolder(self.scope_folder(scope), scope, self.home.clock)

    def notebook(self, scope: str) -> Notebook:
        """Return the notes of a scope."""
        return Notebook(self.note_folder(scope), self.home.clock)

    def tombstones(self, scope: str) -> tuple[Tombstone, ...]:
        """Return what was forgotten in a scope. The file is replaced as a whole, so that no lock is needed to read it."""
        place = self.scope_folder(scope) / TOMBSTONES
        try:
            return tuple(_stones.decode(line) for line in read_regular(place).split(b"\n") if line)
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"cannot read what was forgotten: {error}", where=str(place)) from error

    def memory_now(self, scope: str, notes: Mapping[str, Note]) -> Memory:
        """Return what changes of these notes are judged by, without taking the scope: for a look at what would change."""
        place = self.scope_folder(scope) / ".key"
        return Memory(notes, self.tombstones(scope), place.read_bytes() if place.is_file() else b"", "consolidate")

    def all_tombstones(self) -> tuple[Tombstone, ...]:
        """Return what was forgotten in all scopes of the home, those of teams among them: an event may be the source of several notes."""
        return tuple(stone for place in sorted(self.folder.glob(f"*/{TOMBSTONES}")) for stone in self.tombstones(place.parent.name))

    def forgotten_events(self) -> frozenset[str]:
        """Return the ids of events whose notes were forgotten, in any scope of the home."""
        return frozenset(each for stone in self.all_tombstones() for each in stone.evidence)

    def rollouts(self, scope: str) -> RolloutFiles:
        """Return the summaries of a scope as files."""
        return RolloutFiles(self.scope_folder(scope))


def _is_scope(name: str) -> bool:
    return name == USER_SCOPE or name.startswith("project-")
