"""The notes of one scope at work: reads them, picks up edits by hand, applies accepted changes, forgets, and keeps the index true."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, NoteForgotten, NoteSaved
from palimpsest.core.items import Value
from palimpsest.core.ports import Clock
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange, Tombstone, attribute_digest
from palimpsest.memory.index_text import index_of
from palimpsest.memory.note import Author, Note, check_note, redacted
from palimpsest.memory.note_file import decode_note, encode_note, from_claude
from palimpsest.stores.notes.folder import NoteFiles, NoteFolder, NoteWriter, digest_of

NoteEvent: TypeAlias = NoteSaved | NoteForgotten
Propose: TypeAlias = Callable[[Memory, str], AcceptedChange | RefusedChange]
"""Returns a change of the notes as they are now; the text is the id of the event that will record the first note it saves."""
INDEX_FILE = "MEMORY.md"
LOG_PREFIX = "memory."
_stones = msgspec.json.Decoder(Tombstone)


class Notes(Value, frozen=True):
    """The notes of a scope: active and quarantined ones by name, past versions by `name@rev`, and the files that are no notes."""

    active: Mapping[str, Note]
    past: Mapping[str, Note]
    quarantine: Mapping[str, Note]
    problems: tuple[tuple[str, str], ...] = ()


class Notebook:
    """The notes of one scope. Every change returns the events that a session which caused it records too.

    `index_file` is the database of recall and use of these notes, beside them unless another place is given.
    """

    def __init__(self, folder: NoteFolder, clock: Clock, index_file: Path | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self.index_file = folder.folder / "index.sqlite" if index_file is None else index_file

    @property
    def scope(self) -> str:
        """The scope: `user`, or that of a project."""
        return self._folder.scope

    def notes(self) -> Notes:
        """Return the notes as the files state them now."""
        return self._decoded(self._folder.read())

    @property
    def folder(self) -> Path:
        """The folder of the scope."""
        return self._folder.folder

    def stamps(self) -> dict[str, str]:
        """Return the state of the file of each active note, by name; equal states mean equal notes."""
        return self._folder.stamps()

    def note(self, name: str) -> Note | None:
        """Return an active note as its file states it now; `None` if there is none, or it is no note."""
        text = self._folder.active_text(name)
        return None if text is None else dict(_notes({name: text}, "notes", self._clock, [])).get(name)

    def memory(self, by: Author) -> Memory:
        """Return what changes by this author are judged by."""
        with self._folder.writing() as writer:
            return self._memory(writer, by)

    def pick_up_edits(self) -> tuple[NoteEvent, ...]:
        """Record what a person changed in the files since, once each, and return it; the index follows."""
        with self._folder.writing() as writer:
            return self._picked_up(writer)

    def apply(self, change: AcceptedChange, by: Author) -> tuple[NoteEvent, ...]:
        """Save and retire notes as an accepted change says. The successor is there before the predecessor goes."""
        with self._folder.writing() as writer:
            return (*self._picked_up(writer), *self._applied(writer, change, by))

    def change(self, propose: Propose, by: Author) -> tuple[NoteEvent, ...] | RefusedChange:
        """Ask for a change of the notes and apply it, with no change by another process in between.

        Returns what was recorded, without edits by hand that were found on the way; or why the change was refused.
        """
        with self._folder.writing() as writer:
            self._picked_up(writer)
            proposed = propose(self._memory(writer, by), f"{self.log_name}:{writer.log.tip + 1}")
            return proposed if isinstance(proposed, RefusedChange) else self._applied(writer, proposed, by)

    @property
    def log_name(self) -> str:
        """What ids of events in the log of this scope begin with; evidence of a note that a person wrote without a session."""
        return f"{LOG_PREFIX}{self.scope}"

    def history(self) -> tuple[Event, ...]:
        """Return the events of the log of this scope, oldest first."""
        return self._folder.history()

    def undo(self, name: str, by: Author = "user") -> tuple[NoteEvent, ...]:
        """Bring back the newest past version of a note, and retire the note that took its place, which can be undone as well.

        Raises `BadInput` if there is no past version.
        """
        with self._folder.writing() as writer:
            self._picked_up(writer)
            notes = self.notes()
            versions = [note for note in notes.past.values() if note.name == name]
            if not versions:
                raise BadInput(f"there is no past version of {name[:80]!r}", where=self.scope)
            old = max(versions, key=lambda note: note.rev)
            successor = notes.active.get(old.superseded_by.partition("@")[0], notes.active.get(name))
            newest = max(note.rev for note in (*versions, *notes.active.values()) if note.name == name)
            back = replace(old, status="active", superseded_by="", valid_to="" if successor is not None else old.valid_to, rev=newest + 1)
            events: list[NoteEvent] = []
            if successor is not None:
                # The link lets an undo of this undo retire what is brought back now.
                undone = replace(successor, status="retracted", superseded_by=back.revision)
                events.append(self._retired(writer, undone, by, f"undone: {name} holds again"))
            text = encode_note(back)
            event = NoteSaved(self.scope, name, back.rev, digest_of(text), by, "undone", back.evidence)
            writer.restore(name, old.revision, text, event)
            self._write_index(writer)
        return (*events, event)

    def promote(self, name: str) -> tuple[NoteEvent, ...]:
        """Make a note in quarantine an active one, because a person has read it. Raises `BadInput` if there is none of that name."""
        with self._folder.writing() as writer:
            self._picked_up(writer)
            notes = self.notes()
            held = notes.quarantine.get(name)
            if held is None:
                raise BadInput(f"there is no note {name[:80]!r} in quarantine", where=self.scope)
            if name in notes.active:
                raise BadInput(f"there is an active note {name!r} already; retract or forget one of them", where=self.scope)
            # The promotion is the act of a person by which the note counts as stated.
            evidence = (*held.evidence, f"{self.log_name}:{writer.log.tip + 1}")
            promoted = check_note(replace(held, trust="stated", evidence=evidence, when=_iso(self._clock), rev=held.rev + 1))
            event = self._saved(writer, promoted, "user", "promoted from quarantine")
            writer.discard_quarantined(name)
            self._write_index(writer)
        return (event,)

    def forget(self, name: str, by: Author = "user", reason: str = "") -> tuple[NoteEvent, ...]:
        """Delete a note, all its past versions and what stands for it alone, and keep a tombstone without its text.

        Raises `BadInput` if there is no such note.
        """
        with self._folder.writing() as writer:
            notes = self.notes()
            versions = [note for note in (*notes.past.values(), *notes.active.values(), *notes.quarantine.values()) if note.name == name]
            if not versions:
                raise BadInput(f"there is no note {name[:80]!r}", where=self.scope)
            newest = max(versions, key=lambda note: note.rev)
            evidence = tuple(dict.fromkeys(each for note in versions for each in note.evidence))
            digest = attribute_digest(self._folder.key(), newest.person, newest.attribute)
            stone = Tombstone(_iso(self._clock), by, evidence, digest)
            event = NoteForgotten(self.scope, name, newest.rev, "forgotten", by, reason, evidence)
            past = tuple(revision for revision in notes.past if revision.partition("@")[0] == name)
            writer.forget((name,), past, msgspec.json.encode(stone), event)
            events: list[NoteEvent] = [event, *self._without_support(writer, name, notes)]
            self._write_index(writer)
        from palimpsest.engine.memory.index_files import forget_note  # noqa: PLC0415 - few forget, and a start is measured in milliseconds

        forget_note(self.index_file, self.scope, name, evidence)
        return tuple(events)

    def _without_support(self, writer: NoteWriter, name: str, notes: Notes) -> Iterator[NoteEvent]:
        """RetractNote rules and representatives that fewer than two other notes support; those with more lose this one."""
        for note in notes.active.values():
            if name not in note.stands_for:
                continue
            rest = tuple(each for each in note.stands_for if each != name)
            if len(rest) < 2:
                yield self._retired(writer, replace(note, status="retracted"), "consolidate", f"too little supports it without {name}")
            else:
                yield self._saved(writer, replace(note, stands_for=rest, rev=note.rev + 1), "consolidate", f"{name} was forgotten")

    def _memory(self, writer: NoteWriter, by: Author) -> Memory:
        stones = tuple(_stones.decode(line) for line in writer.tombstones())
        return Memory(self.notes().active, stones, self._folder.key(), by)

    def _applied(self, writer: NoteWriter, change: AcceptedChange, by: Author) -> tuple[NoteEvent, ...]:
        change = _with_new_revisions(change, self.notes())
        # A past version of a note that goes on under its name is kept before the new version takes its place.
        going_on = {note.name for note in change.saved}
        for note in change.past:
            if note.name in going_on:
                writer.keep_past(note.revision, encode_note(redacted(note)))
        saved = tuple(self._saved(writer, note, by, change.reason) for note in change.saved)
        retired = tuple(self._retired(writer, note, by, change.reason) for note in change.past if note.name not in going_on)
        self._write_index(writer)
        return (*saved, *retired)

    def _picked_up(self, writer: NoteWriter) -> tuple[NoteEvent, ...]:
        known, files = writer.known_digests(), self._folder.read()
        decoded = self._decoded(files)
        events: list[NoteEvent] = []
        for name, text in files.active.items():
            if name in decoded.active and known.get(name) != digest_of(text):
                note = decoded.active[name]
                reason = "edited by hand" if name in known else "written by hand"
                events.append(NoteSaved(self.scope, name, note.rev, digest_of(text), "user", reason, note.evidence))
        gone = [name for name in known if name not in files.active and name not in files.quarantine]
        events += [NoteForgotten(self.scope, name, 0, "retracted", "user", "deleted by hand") for name in gone]
        for event in events:
            writer.record(event)
        if events:
            self._write_index(writer)
        return tuple(events)

    def _saved(self, writer: NoteWriter, note: Note, by: Author, reason: str) -> NoteSaved:
        clean = redacted(note)
        text = encode_note(clean)
        event = NoteSaved(self.scope, note.name, note.rev, digest_of(text), by, reason, note.evidence)
        writer.save(note.name, text, event, quarantined=note.trust == "quarantined")
        return event

    def _retired(self, writer: NoteWriter, note: Note, by: Author, reason: str) -> NoteForgotten:
        event = NoteForgotten(self.scope, note.name, note.rev, "retracted", by, reason, note.evidence)
        if note.status == "superseded":
            event = replace(event, how="superseded")
        writer.retire(note.name, note.revision, encode_note(redacted(note)), event)
        return event

    def _write_index(self, writer: NoteWriter) -> None:
        writer.write_generated(INDEX_FILE, index_of(self.notes().active.values()).text)

    def _decoded(self, files: NoteFiles) -> Notes:
        problems = list(files.problems)
        active, past, quarantine = (
            dict(_notes(files_of, place, self._clock, problems))
            for place, files_of in (("notes", files.active), ("past", files.past), ("quarantine", files.quarantine))
        )
        # A crash between the two files of a correction leaves both; the one that names the other holds.
        replaced = {link for note in active.values() for link in note.supersedes}
        shown = {name: note for name, note in active.items() if note.status == "active" and note.revision not in replaced}
        return Notes(shown, past, quarantine, tuple(problems))


def _with_new_revisions(change: AcceptedChange, notes: Notes) -> AcceptedChange:
    """Return the change with notes that take up the name of a past one numbered after it, so that no past version is overwritten."""
    renamed: dict[str, str] = {}
    saved: list[Note] = []
    for note in change.saved:
        newest = max((past.rev for past in notes.past.values() if past.name == note.name), default=0)
        is_new = note.name not in notes.active and note.rev <= newest
        saved.append(replace(note, rev=newest + 1) if is_new else note)
        renamed[note.revision] = saved[-1].revision
    past = tuple(replace(note, superseded_by=renamed.get(note.superseded_by, note.superseded_by)) for note in change.past)
    return AcceptedChange(tuple(saved), past, change.reason)


def _notes(files: Mapping[str, str], place: str, clock: Clock, problems: list[tuple[str, str]]) -> Iterator[tuple[str, Note]]:
    for name, text in files.items():
        try:
            note = decode_note(text, f"{place}/{name}.md")
        except BadInput as error:
            try:
                # A person writes a note as Claude Code's documentation shows it; what we need beside is added.
                note = from_claude(text, name, when=_iso(clock), evidence="hand:0")
            except BadInput:
                problems.append((f"{place}/{name}.md", error.message))
                continue
        if note.name != name.partition("@")[0]:
            problems.append((f"{place}/{name}.md", f"the file states another name, {note.name[:80]!r}"))
            continue
        yield name, note


def _iso(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.now() / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
