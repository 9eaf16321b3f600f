"""The index over all notes that a session may see: read from its snapshots, kept true to the files, and saved when they changed."""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.memory.index_text import NewerNotes
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Notebook
from palimpsest.memory.recall_index import RecallIndex, absorb, decode_index, encode_index, erase, erased_share, term_character
from palimpsest.memory.recall_ranking import read_query
from palimpsest.memory.recall_store import ENTRIES, decode_entries, encode_entries, opened
from palimpsest.memory.shown import IndexedNote, compared_note, entry_of, unit_of

if TYPE_CHECKING:
    from palimpsest.memory.recall_ranking import Similar
    from palimpsest.memory.recall_store import NoteUse
    from palimpsest.memory.session_memory import ProjectMemory
    from palimpsest.memory.vectors import Embedder, UnitVectors


# Below this number of notes reading the files is as fast as opening a database.
_FEW: Final = 20
# An index of which so much was erased is built again.
_MOST_ERASED: Final = 0.5
# A thread that prepares the first prompt and the prompt itself make one index.
_making: Final = Lock()


class ScopeIndex:
    """The index of the notes of one scope, and the entries by which changed files are found. `part` is its name in the database."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.file = notebook.index_file
        self.part = notebook.scope
        self.index = RecallIndex()
        self.entries: dict[str, IndexedNote] = {}
        self.is_saved = True
        self._is_loaded = False

    def refresh(self, stamps: Mapping[str, str]) -> tuple[str, ...]:
        """Bring the index up to date with the files of these stamps, and return the names of the notes that changed."""
        if not self._is_loaded:
            self._is_loaded = True
            if len(stamps) > _FEW and self.file.exists():
                self._load()
        changed = [name for name, stamp in stamps.items() if name not in self.entries or self.entries[name].stamp != stamp]
        gone = [name for name in self.entries if name not in stamps]
        if not changed and not gone:
            return ()
        erase(self.index, (*changed, *gone))
        for name in gone:
            del self.entries[name]
        for name in changed:
            self._take(name, stamps[name])
        if erased_share(self.index) > _MOST_ERASED:
            self.index = RecallIndex(unit for unit in self.index.units if unit.id)
        self.is_saved = False
        return (*changed, *gone)

    def _take(self, name: str, stamp: str) -> None:
        note = self.notebook.note(name)
        entry = IndexedNote(stamp, "quarantined", 0) if note is None else entry_of(note, stamp)
        self.entries[name] = entry
        if note is not None and entry.unit:
            self.index.add(unit_of(note))

    def _load(self) -> None:
        with opened(self.file) as stored:
            data, entries = stored.snapshot(self.part), stored.snapshot(self.part + ENTRIES)
        if data is None or entries is None:
            return
        try:
            self.index, self.entries = decode_index(data), decode_entries(entries)
        except (BadInput, msgspec.DecodeError):
            # Damaged, or of another version: the files are read instead.
            self.index, self.entries = RecallIndex(), {}

    def save(self) -> None:
        """Save a snapshot if the index changed; few notes need none."""
        if self.is_saved:
            return
        self.is_saved = True
        if len(self.entries) > _FEW or self.file.exists():
            with opened(self.file) as stored:
                stored.save({self.part: encode_index(self.index), self.part + ENTRIES: encode_entries(self.entries)}, purge=True)


def note_index(memory: "ProjectMemory") -> "NoteIndex | None":
    """Return the index over the notes of a session, which is made when there is a first note; `None` before that."""
    with _making:
        made = next((each for each in memory.made if isinstance(each, NoteIndex)), None)
        if made is None and memory.has_notes():
            made = NoteIndex(memory.memories.notebooks, _embedding_of(memory))
            memory.made.append(made)
        return made


def _embedding_of(memory: "ProjectMemory") -> "Embedder | None":
    if not memory.config.recall_embeddings:
        return None
    from palimpsest.memory.vectors import embedding_of  # few sessions want them

    return embedding_of(memory)


class NoteIndex:
    """One index over the notes of several notebooks: those of the user, the project and its team. Threads use it one at a time.

    A note of an earlier notebook holds against one of the same name in a later one. `embedding` makes vectors of the notes, if they are
    wanted.
    """

    def __init__(self, notebooks: Iterable[Notebook], embedding: "Embedder | None" = None) -> None:
        self.scopes = [ScopeIndex(each) for each in notebooks]
        self._embedding = embedding
        self._makers: list[UnitVectors] = []
        self._vectors: dict[str, bytes] | None = None
        self._joined: RecallIndex | None = None
        self._lock = Lock()
        self.entries: dict[str, IndexedNote] = {}
        self._newer: NewerNotes | None = None
        self._usage: dict[str, NoteUse] | None = None

    def refresh(self) -> RecallIndex:
        """Return the index of all notes as their files are now. Raises `StoreError` if a folder cannot be read."""
        with self._lock:
            changed = [scope.refresh(scope.notebook.stamps()) for scope in self.scopes]
            if self._joined is None or any(changed):
                self._join()
            return self._joined if self._joined is not None else RecallIndex()

    def newer(self) -> NewerNotes:
        """Return which notes are older than others about the same, as `refresh` has read them; it is found out when first asked for."""
        with self._lock:
            if self._newer is None:
                index = self._joined if self._joined is not None else RecallIndex()
                texts = ((name, index.sequences[number]) for name, number in index.numbers.items())
                self._newer = NewerNotes(compared_note(name, self.entries[name], text) for name, text in texts)
            return self._newer

    def asked(self, query: str) -> frozenset[str]:
        """Return the words of a query as `newer` compares them."""
        return frozenset(map(term_character, read_query(self.refresh(), query).terms))

    def similar(self, index: RecallIndex, query: str) -> "Similar | None":
        """Return the similarity of a query to the units of the index of all notes, as `refresh` returned it; `None` without embeddings."""
        if self._embedding is None:
            return None
        from palimpsest.memory.vectors import (
            UnitVectors,  # few sessions want them
            query_similarity,
        )

        with self._lock:
            self._makers = self._makers or [UnitVectors(self._embedding, scope.file, scope.part) for scope in self.scopes]
            if self._vectors is None:
                made = [maker.refresh(scope.index) for maker, scope in zip(self._makers, self.scopes, strict=True)]
                self._vectors = {name: vector for found in reversed(made) for name, vector in found.items()}
            return query_similarity(self._embedding, index, query, self._vectors)

    def _join(self) -> None:
        self._vectors = self._newer = None
        by_size = sorted(self.scopes, key=lambda scope: -len(scope.index))
        if len(by_size[0].index) == sum(len(scope.index) for scope in by_size):
            self._joined = by_size[0].index
        else:
            # The snapshot is the cheapest copy.
            self._joined = decode_index(encode_index(by_size[0].index))
            for scope in by_size[1:]:
                self._absorb(self._joined, scope)
        self.entries = {name: entry for scope in reversed(self.scopes) for name, entry in scope.entries.items()}

    def _absorb(self, joined: RecallIndex, scope: ScopeIndex) -> None:
        taken = [name for name in scope.index.numbers if name in joined.numbers]
        if not taken:
            absorb(joined, scope.index)
            return
        holding = {name: self._scope_of(name) for name in taken}
        erase(joined, [name for name, holder in holding.items() if holder is scope])
        for unit in scope.index.units:
            if unit.id and unit.id not in joined.numbers:
                joined.add(unit)

    def note(self, name: str) -> Note | None:
        """Return a note as its file states it now; `None` if it is gone."""
        found = self.located(name)
        return None if found is None else found[1]

    def text(self, name: str) -> str:
        """Return the file of a note as it is now, without secrets; empty if it is gone."""
        scope = self._scope_of(name)
        return "" if scope is None else scope.notebook.text(name)

    def located(self, name: str) -> tuple[str, Note] | None:
        """Return a note as its file states it now, behind the scope that it belongs to; `None` if it is gone."""
        scope = self._scope_of(name)
        note = None if scope is None else scope.notebook.note(name)
        return None if scope is None or note is None else (scope.part, note)

    def _scope_of(self, name: str) -> ScopeIndex | None:
        return next((scope for scope in self.scopes if name in scope.entries), None)

    def save(self) -> None:
        """Save what changed. A database that cannot be written costs time later, so nothing is raised."""
        with self._lock:
            for scope in self.scopes:
                try:
                    scope.save()
                except PalimpsestError:
                    continue

    def uses(self, name: str) -> int:
        """Return how often a note was cited: what its file states, and what was counted since, as far as this process knows."""
        if self._usage is None:
            self._usage = self.usage()
        entry, counted = self.entries.get(name), self._usage.get(name)
        return (0 if entry is None else entry.uses) + (0 if counted is None else counted.uses)

    def usage(self) -> dict[str, "NoteUse"]:
        """Return how often notes were used since that was last written into their files, by name."""
        found: dict[str, NoteUse] = {}
        for scope in reversed(self.scopes):
            if scope.file.exists():
                with opened(scope.file) as stored:
                    found |= stored.usage(scope.part)
        return found

    def add_usage(self, added: Mapping[str, "NoteUse"]) -> None:
        """Count uses of notes; of unknown ones nothing is counted."""
        for scope in self.scopes:
            of_scope = {name: usage for name, usage in added.items() if self._scope_of(name) is scope}
            if of_scope:
                with opened(scope.file) as stored:
                    stored.add_usage(scope.part, of_scope)
        self._usage = None
