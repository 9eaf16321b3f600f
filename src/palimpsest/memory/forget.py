"""Forgets a note: removes it and all that repeats it from its scope and the home, and leaves a tombstone without text."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.core.events import NoteForgotten, NoteSaved
from palimpsest.core.ports import Clock
from palimpsest.memory.changes import Tombstone, attribute_digest, name_digest
from palimpsest.memory.erasing import (
    Erasure,
    NoteRemoval,
    PendingForget,
    Rewrite,
    erasure_of,
    generated_files,
    said_by,
    text_of_file,
    without_links,
    without_supports,
)
from palimpsest.memory.index_text import index_of
from palimpsest.memory.note import Author, Note, encode_note
from palimpsest.memory.store import INDEX_FILE, SUMMARY_FILE, NoteFolder, Notes, NoteWriter, digest_of, iso_now, notes_of
from palimpsest.memory.weigh import cases_of

# Lines that every summary has.
SUMMARY_LINES: Final = frozenset({"v1", "## User profile", "## Preferences", "## General tips", "## What is in memory"})
# Lines of two-stage memory that stand in every file of their kind.
STAGE_LINES: Final = SUMMARY_LINES | {"## User Profile", "## User preferences", "## What's in Memory", "# Raw Memories"}
SKILL_FILE: Final = "SKILL.md"
_REASON: Final = "what it stood for was forgotten"


class NoteForgetting:
    """Forgets notes of one scope, which the caller holds."""

    def __init__(self, folder: NoteFolder, clock: Clock, index_file: Path) -> None:
        self._folder = folder
        self._clock = clock
        self._index_file = index_file
        self._removal = NoteRemoval(folder, clock)

    def hidden(self) -> frozenset[str]:
        """Return the names of notes that are being forgotten by a process that has not finished."""
        pending = self._removal.pending()
        return frozenset() if pending is None else frozenset(pending.names)

    def complete(self) -> None:
        """Complete a removal that a crash has interrupted."""
        pending = self._removal.pending()
        if pending is not None:
            self._removal.bury(pending)
            self._complete(pending)

    def forget(self, name: str, by: Author, reason: str, asked: tuple[str, ...]) -> tuple[NoteSaved | NoteForgotten, ...]:
        """Forget a note and all that says the same. Raises `BadInput` if there is none.

        Returns what a session records: the names that left, the one asked for first, and what became of notes that stood for them.
        """
        notes = notes_of(self._folder.read(), self._clock)
        if all(note.name != name for note in notes.all()):
            raise BadInput(f"there is no note {name[:80]!r}", where=self._folder.scope)
        names = said_by(name, notes.all())
        gone = [note for note in notes.all() if note.name in names]
        events: list[NoteSaved | NoteForgotten] = [
            _forgotten(self._folder.scope, each, gone, by, reason) for each in (name, *sorted(names - {name}))
        ]
        pending = self._pending(names, gone, by, asked)
        self._removal.begin(pending)
        return (*events, *self._complete(pending))

    def _pending(self, names: frozenset[str], gone: list[Note], by: Author, asked: tuple[str, ...]) -> PendingForget:
        key = self._folder.key()
        newest = max(gone, key=lambda note: note.rev)
        evidence = tuple(dict.fromkeys((*(each for note in gone for each in note.evidence), *asked)))
        digests = tuple(name_digest(key, name) for name in sorted(names))
        attribute = next((note.attribute for note in (newest, *gone) if note.attribute), "")
        stone = Tombstone(iso_now(self._clock), by, evidence, attribute_digest(key, newest.person, attribute), digests)
        return PendingForget({name: neutral_name(key, name) for name in sorted(names)}, msgspec.json.encode(stone).decode())

    def _complete(self, pending: PendingForget) -> tuple[NoteSaved | NoteForgotten, ...]:
        """Do all steps of a removal; each finds what is left to do, and the texts of the notes go last but one."""
        names = frozenset(pending.names)
        notes = notes_of(self._folder.read(), self._clock)
        gone = [note for note in notes.all() if note.name in names]
        rules = [note for note in notes.active.values() if note.level == "rule"]
        cases = (case for rule in rules for case in cases_of(rule, {}, notes.past.values()))
        kept = (*notes.active.values(), *cases)
        erasure = erasure_of(gone, (note for note in kept if note.name not in names and not names.intersection(note.stands_for)))
        with self._folder.logged() as writer:
            events = self._rewritten(writer, names, notes, erasure)
            left = notes_of(self._folder.read(hidden=names), self._clock)
            writer.write_generated(INDEX_FILE, index_of(left.active.values()).text)
        sessions = frozenset(each.rpartition(":")[0] for each in msgspec.json.decode(pending.tombstone, type=Tombstone).evidence)
        self._removal.clean_files(_cleaning(erasure, sessions))
        self._clean_indexes(pending)
        self._clean_home(erasure, sessions)
        self._removal.delete_notes(pending.names)
        stone = msgspec.json.decode(pending.tombstone, type=Tombstone)
        self._removal.rewrite_log(
            pending.names, lambda name: NoteForgotten(self._folder.scope, name, 0, "forgotten", stone.by, "", stone.evidence)
        )
        self._removal.end()
        return events

    def _clean_indexes(self, pending: PendingForget) -> None:
        """Remove the notes and their events from the databases of recall; one that cannot be read is deleted: it can be made again."""
        from palimpsest.memory.recall_store import forget_notes  # few forget, and a start is measured in milliseconds

        evidence = msgspec.json.decode(pending.tombstone, type=Tombstone).evidence
        try:
            forget_notes(self._index_file, self._folder.scope, tuple(pending.names), evidence)
        except StoreError:
            self._removal.delete_index(self._index_file)

    def _clean_home(self, erasure: Erasure, sessions: frozenset[str]) -> None:
        """Remove what other scopes and the database of jobs say on account of the notes: a session is summarised in that of its project."""
        from palimpsest.memory.home_removal import (
            HomeRemoval,  # SQLite, which few need
            RemovedSessions,
        )

        own = self._folder.state

        def cleaning(folder: Path) -> Rewrite:
            files = NoteFolder(folder, folder.name, self._clock).read()
            return _cleaning_elsewhere(folder, erasure.without_words_of(notes_of(files, self._clock).active.values()), sessions)

        def is_trace(scope: str, stem: str) -> bool:
            words = f"{stem} {_spaced(stem)}"
            return erasure.is_in(words) if scope == self._folder.scope else erasure.is_repeated_in(words)

        home = HomeRemoval(own.parent, own)
        home.clean_scopes(cleaning)
        home.clean_jobs(RemovedSessions(sessions, is_trace))
        self._clean_stages(own.parent, erasure, sessions)

    def _clean_stages(self, memory: Path, erasure: Erasure, sessions: frozenset[str]) -> None:
        """Remove from two-stage memory the summaries of the sessions, and lines that repeat a note; the next run writes its files again."""
        from palimpsest.memory.handbook import (
            NOTES,
            SUMMARIES,
            StageFolder,  # few forget, and a start is measured in milliseconds
            session_of,
            without_threads,
        )

        for root in ("memories", "memories_v2"):
            folder = StageFolder(memory / root)
            if not folder.folder.is_dir():
                continue
            there = folder.read()
            kept: dict[str, str] = {}
            for path, text in there.items():
                is_gone = path.startswith(f"{SUMMARIES}/") and session_of(text) in sessions
                if is_gone or (path.startswith(f"{NOTES}/") and Path(path).stem in erasure.names):
                    continue
                kept[path] = erasure.removed_from(without_threads(text, sessions), STAGE_LINES, only_repeated=True)
            folder.replace(kept, there)

    def _rewritten(
        self, writer: NoteWriter, names: frozenset[str], notes: Notes, erasure: Erasure
    ) -> tuple[NoteSaved | NoteForgotten, ...]:
        """Rewrite or drop notes that stood for forgotten ones, and remove the links to them from all others."""
        events: list[NoteSaved | NoteForgotten] = []
        changed = {each.old.name: each for each in without_supports(names, notes.active.values(), notes.past.values())}
        for each in changed.values():
            if each.new is None:
                events.append(self._dropped(writer, each.old, erasure))
                for case in each.cases:
                    events.append(self._saved(writer, without_links(case, names)))
                    writer.delete("past", f"{case.name}@{case.rev - 1}")
            else:
                events.append(self._saved(writer, without_links(each.new, names)))
        for note in notes.all():
            bare = without_links(note, names)
            if bare == note or note.name in names:
                continue
            if notes.past.get(note.revision) is note:
                # An earlier version of a note that stood for a forgotten one may repeat it.
                if names.intersection(note.stands_for) and erasure.is_in(f"{note.about}\n{note.body}\n{note.backstory}"):
                    writer.delete("past", note.revision)
                else:
                    writer.keep_past(note.revision, encode_note(bare))
            elif note.name not in changed and notes.active.get(note.name) is note:
                self._saved(writer, replace(bare, rev=note.rev + 1))
        return tuple(events)

    def _dropped(self, writer: NoteWriter, note: Note, erasure: Erasure) -> NoteForgotten:
        """Retire a note; one that says what was forgotten leaves no past version."""
        event = NoteForgotten(self._folder.scope, note.name, note.rev, "retracted", "consolidate", _REASON, note.evidence)
        if erasure.is_in(f"{note.about}\n{note.body}\n{note.backstory}"):
            writer.delete("notes", note.name)
            writer.record(event)
        else:
            bare = without_links(replace(note, status="retracted"), erasure.names)
            writer.retire(note.name, note.revision, encode_note(bare), event)
        return event

    def _saved(self, writer: NoteWriter, note: Note) -> NoteSaved:
        text = encode_note(note)
        event = NoteSaved(self._folder.scope, note.name, note.rev, digest_of(text), "consolidate", _REASON, note.evidence)
        writer.save(note.name, text, event)
        return event


def neutral_name(key: bytes, name: str) -> str:
    """Return the name that stands for a forgotten note in the log of its scope, since names repeat what notes say."""
    return f"forgotten_{name_digest(key, name)[:12]}"


def _cleaning(erasure: Erasure, sessions: frozenset[str]) -> Rewrite:
    """Return how the generated files of the scope of forgotten notes are rewritten."""

    def rewrite(name: str, text: str) -> str | None:
        if name == SUMMARY_FILE:
            return erasure.removed_from(text, SUMMARY_LINES)
        if _is_of_session(text, sessions):
            return None
        if erasure.is_in(_spaced(name.rpartition(".")[0])) or not name.endswith(".md"):
            return None if erasure.is_in(f"{name}\n{text}") else text
        return erasure.removed_from(text)

    return rewrite


def _cleaning_elsewhere(folder: Path, erasure: Erasure, sessions: frozenset[str]) -> Rewrite:
    """Return how those of another scope are: one that has read the same sessions may repeat single words of the notes."""
    has_read = any(_is_of_session(text_of_file(path) or "", sessions) for path in generated_files(folder))

    def rewrite(name: str, text: str) -> str | None:
        is_of_session = _is_of_session(text, sessions)
        if is_of_session or (name not in (SUMMARY_FILE, SKILL_FILE) and erasure.is_repeated_in(_spaced(name.rpartition(".")[0]))):
            return None
        if name in (SUMMARY_FILE, SKILL_FILE) and has_read:
            return erasure.removed_from(text, SUMMARY_LINES)
        return erasure.removed_from(text, SUMMARY_LINES, only_repeated=True)

    return rewrite


def _is_of_session(text: str, sessions: frozenset[str]) -> bool:
    """Return whether a text is the summary of one of these sessions: it is made again, without what was forgotten, by the next run."""
    from palimpsest.memory.summaries import decode_rollout  # few forget, and a start is measured in milliseconds

    rollout = decode_rollout(text)
    return rollout is not None and rollout.session in sessions


def _spaced(name: str) -> str:
    return name.replace("-", " ").replace("_", " ")


def _forgotten(scope: str, name: str, gone: list[Note], by: Author, reason: str) -> NoteForgotten:
    versions = [note for note in gone if note.name == name]
    evidence = tuple(dict.fromkeys(each for note in versions for each in note.evidence))
    return NoteForgotten(scope, name, max((note.rev for note in versions), default=0), "forgotten", by, reason, evidence)
