"""The notebook of one scope, which reads, changes and indexes its notes, and the notebooks of a session together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, NoteForgotten, NoteSaved
from palimpsest.core.ports import Clock
from palimpsest.core.redaction import redact
from palimpsest.memory.changes import AcceptedChange, Memory, RefusedChange, Tombstone, name_digest
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.forget import NoteForgetting, neutral_name
from palimpsest.memory.index_text import index_of
from palimpsest.memory.note import LOG_PREFIX, Author, Note, NoteKind, check_note, encode_note, fitting, redacted, time_of
from palimpsest.memory.store import (
    INDEX_FILE,
    PAST,
    RECALL_FILE,
    SUMMARY_FILE,
    TEAM_FOLDER,
    TEAM_SCOPE,
    USER_SCOPE,
    NoteFiles,
    NoteFolder,
    Notes,
    NoteWriter,
    RecordedNote,
    as_saved,
    digest_of,
    iso_now,
    make_team_folder,
    notes_of,
    project_scope,
    scope_folder,
    team_folder,
    tombstones_in,
    write_ignore_file,
)
from palimpsest.memory.weigh import brought_back, cases_of, without_corrected
from palimpsest.stores.home import Home

NoteEvent: TypeAlias = NoteSaved | NoteForgotten
Propose: TypeAlias = Callable[[Memory, str], AcceptedChange | RefusedChange]
"""Returns a change of the notes as they are now; the text is the id of the event that will record the first note it saves."""
_DAY_MS: Final = 86_400_000


class Notebook:
    """The notes of one scope. Every change returns the events that a session which caused it records too.

    `index_file` is the database of recall and use of these notes.
    """

    def __init__(self, folder: NoteFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self.index_file = folder.state / RECALL_FILE
        self._forgetting = NoteForgetting(folder, clock, self.index_file)

    @property
    def scope(self) -> str:
        """The scope: `user`, or that of a project."""
        return self._folder.scope

    @property
    def is_shared(self) -> bool:
        """Whether the notes are those of a team, which other people write too."""
        return self._folder.is_shared

    def notes(self) -> Notes:
        """Return the notes as the files state them now."""
        return self._notes(self._folder.read(hidden=self._forgetting.hidden()))

    @property
    def folder(self) -> Path:
        """The folder of the scope."""
        return self._folder.folder

    def stamps(self) -> dict[str, str]:
        """Return the state of the file of each active note, by name; equal states mean equal notes."""
        # Whether a note of a repository is shown depends on what the user has accepted, too.
        accepted = self._folder.accepted() if self.is_shared else {}
        return {name: f"{stamp}.{accepted[name]}" if name in accepted else stamp for name, stamp in self._folder.stamps().items()}

    def beyond(self) -> int:
        """Return how many active notes are beyond the most that are read; no search finds them."""
        return self._folder.beyond()

    def has_notes(self) -> bool:
        """Return whether there is an active note, without reading any."""
        return self._folder.has_notes()

    def summary(self) -> str:
        """Return the text of SUMMARY.md; empty if there is none."""
        return self._folder.generated(SUMMARY_FILE)

    def change_stamp(self) -> str:
        """Return the state of the log of this scope; it differs after every recorded change."""
        return self._folder.change_stamp()

    def note(self, name: str) -> Note | None:
        """Return an active note as its file states it now; `None` if there is none, or it is no note."""
        text = None if name in self._forgetting.hidden() else self._folder.active_text(name)
        return None if text is None else self._notes(NoteFiles({name: text}, {}, {})).active.get(name)

    def text(self, name: str) -> str:
        """Return the file of an active note as it is now, without secrets; empty if there is none that can be read."""
        return redact((None if name in self._forgetting.hidden() else self._folder.active_text(name)) or "")

    def memory(self, by: Author) -> Memory:
        """Return what changes by this author are judged by."""
        return self._memory(by)

    def forgotten(self) -> Callable[[str], int]:
        """Return a function that says when a note of a name was last forgotten, in milliseconds since 1970; -1 if it never was."""
        stones = tombstones_in(self._folder.state, only_readable=True)
        # A tombstone states seconds; what was shown within the same one is taken to be shown before.
        times = {each: int(time_of(stone.at).timestamp()) * 1_000 + 999 for stone in stones for each in stone.names}
        key = self._folder.key() if times else b""
        return lambda name: times.get(name_digest(key, name), -1) if times else -1

    def pick_up_edits(self) -> tuple[NoteEvent, ...]:
        """Record what a person changed in the files since, once each, and return it; the index follows."""
        with self._writing() as writer:
            return self._picked_up(writer)

    def apply(self, change: AcceptedChange, by: Author) -> tuple[NoteEvent, ...]:
        """Save and retire notes as an accepted change says. The successor is there before the predecessor goes."""
        with self._writing() as writer:
            return (*self._picked_up(writer), *self._applied(writer, change, by))

    def change(self, propose: Propose, by: Author) -> tuple[NoteEvent, ...] | RefusedChange:
        """Ask for a change of the notes and apply it, with no change by another process in between.

        Returns what was recorded, without edits by hand that were found on the way; or why the change was refused.
        """
        with self._writing() as writer:
            self._picked_up(writer)
            proposed = propose(self._memory(by), f"{self.log_name}:{writer.log.tip + 1}")
            return proposed if isinstance(proposed, RefusedChange) else self._applied(writer, proposed, by)

    @property
    def log_name(self) -> str:
        """What ids of events in the log of this scope begin with; evidence of a note that a person wrote without a session."""
        return f"{LOG_PREFIX}{self.scope}"

    def history(self) -> tuple[Event, ...]:
        """Return the events of the log of this scope, oldest first."""
        return self._folder.history()

    def names_in_log(self, name: str) -> frozenset[str]:
        """Return what the log calls a note: its name, and if notes were forgotten the one that it would have then."""
        return frozenset(
            (name, neutral_name(self._folder.key(), name)) if tombstones_in(self._folder.state, only_readable=True) else (name,)
        )

    def undo(self, name: str, by: Author = "user") -> tuple[NoteEvent, ...]:
        """Bring back the newest past version of a note, and retire the note that took its place, which can be undone as well.

        Raises `BadInput` if there is no past version.
        """
        with self._writing() as writer:
            self._picked_up(writer)
            notes = self.notes()
            versions = [note for note in notes.past.values() if note.name == name]
            if not versions and name in notes.active and notes.active[name].level == "rule":
                return self._undo_rule(writer, notes.active[name], notes, by)
            if not versions:
                raise BadInput(f"there is no past version of {name[:80]!r}", where=self.scope)
            old = max(versions, key=lambda note: note.rev)
            if (rule := notes.active.get(old.superseded_by.partition("@")[0])) is not None and rule.level == "rule":
                return self._undo_rule(writer, rule, notes, by)
            successor = notes.active.get(old.superseded_by.partition("@")[0], notes.active.get(name))
            newest = max(note.rev for note in (*versions, *notes.active.values()) if note.name == name)
            back = replace(old, status="active", superseded_by="", valid_to="" if successor is not None else old.valid_to, rev=newest + 1)
            if successor is not None:
                # With this link a crash between the two files leaves the one that holds again.
                back = replace(back, supersedes=tuple(dict.fromkeys((*back.supersedes, successor.revision))))
            text = encode_note(as_saved(back, is_shared=self.is_shared))
            restored = NoteSaved(self.scope, name, back.rev, digest_of(text), by, "undone", back.evidence)
            events: list[NoteEvent] = [restored]
            if successor is not None and successor.name == name:
                writer.keep_past(successor.revision, encode_note(replace(successor, status="retracted", superseded_by=back.revision)))
            writer.restore(name, old.revision, text, restored)
            if successor is not None and successor.name != name:
                # The link lets an undo of this undo retire what is brought back now.
                undone = replace(successor, status="retracted", superseded_by=back.revision)
                events.append(self._retired(writer, undone, by, f"undone: {name} holds again"))
        return tuple(events)

    def _undo_rule(self, writer: NoteWriter, rule: Note, notes: Notes, by: Author) -> tuple[NoteEvent, ...]:
        """Bring back the notes whose place a rule took, and retract the rule."""
        events: list[NoteEvent] = []
        for case in cases_of(rule, {}, notes.past.values()):
            back = brought_back(case)
            text = encode_note(as_saved(back, is_shared=self.is_shared))
            restored = NoteSaved(self.scope, back.name, back.rev, digest_of(text), by, "undone", back.evidence)
            if case.name not in notes.active:
                writer.restore(case.name, case.revision, text, restored)
                events.append(restored)
        if not events:
            raise BadInput(f"the notes in whose place {rule.name!r} stands are gone", where=self.scope)
        # The link says that it was undone, so that it is not proposed again from the same notes.
        undone = replace(rule, status="retracted", superseded_by=f"{events[0].name}@{events[0].rev}")
        events.append(self._retired(writer, undone, by, "undone: the notes in whose place it stood hold again"))
        return tuple(events)

    def promote(self, name: str, by: Author = "user") -> tuple[NoteEvent, ...]:
        """Make a note in quarantine an active one, because a person has read it; the event says who.

        Raises `BadInput` if there is none of that name, or if it is no person who promotes it.
        """
        if by != "user":
            raise BadInput(f"a note in quarantine is promoted by a person, not by {by}", where=self.scope)
        with self._writing() as writer:
            self._picked_up(writer)
            notes = self.notes()
            held = notes.quarantine.get(name)
            if held is None:
                raise BadInput(f"there is no note {name[:80]!r} in quarantine", where=self.scope)
            if name in notes.active:
                raise BadInput(f"there is an active note {name!r} already; retract or forget one of them", where=self.scope)
            text = self._folder.active_text(name) if self.is_shared else None
            if text is not None:
                # The file of the repository stays as it is: accepted are these bytes of it.
                accepted = NoteSaved(self.scope, name, held.rev, digest_of(text), by, "accepted by the user", held.evidence)
                writer.record(accepted)
                return (accepted,)
            # The promotion is the act of a person by which the note counts as stated.
            evidence = (*held.evidence, f"{self.log_name}:{writer.log.tip + 1}")
            promoted = check_note(replace(held, trust="stated", evidence=evidence, when=iso_now(self._clock), rev=held.rev + 1, by=by))
            event = self._saved(writer, promoted, by, "promoted from quarantine")
            writer.discard_quarantined(name)
        return (event,)

    def expire_quarantine(self, days: float) -> tuple[NoteEvent, ...]:
        """Delete notes that have been in quarantine for so many days without a promotion, and record it."""
        with self._changing() as writer:
            recorded, before = writer.recorded(), self._clock.now() - days * _DAY_MS
            events: list[NoteEvent] = []
            # Files of a repository that wait for the user are not ours to delete.
            held = notes_of(self._folder.read(hidden=self._forgetting.hidden()), self._clock).quarantine
            for name, note in held.items():
                if name in recorded and recorded[name].at <= before:
                    reason = f"no person promoted it within {days:g} days"
                    events.append(NoteForgotten(self.scope, name, note.rev, "expired", "consolidate", reason, note.evidence))
                    writer.discard_quarantined(name)
                    writer.record(events[-1])
        return tuple(events)

    def forget(self, name: str, by: Author = "user", reason: str = "", asked: tuple[str, ...] = ()) -> tuple[NoteEvent, ...]:
        """Delete a note, all that says the same and what stood for it alone, and keep a tombstone without its text.

        `asked` are the events in which it was asked for, since they name it too. Returns the events for the session: `NoteForgotten` with
        `how="forgotten"` for each name whose text live views must mask, the one asked for first. Raises `BadInput` if there is none.
        """
        with self._folder.held():
            self._forgetting.complete()
            with self._folder.logged() as writer:
                self._picked_up(writer)
            return self._forgetting.forget(name, by, reason, asked)

    @contextmanager
    def _writing(self) -> Iterator[NoteWriter]:
        """Hold the scope for a change, after what a crash has left undone was completed; the index is written once, at the end."""
        with self._changing() as writer:
            try:
                yield writer
            except BadInput:
                # Edits by hand were picked up before the change was refused.
                self._write_index(writer)
                raise
            self._write_index(writer)

    @contextmanager
    def _changing(self) -> Iterator[NoteWriter]:
        with self._folder.held():
            self._forgetting.complete()
            with self._folder.logged() as writer:
                yield writer

    def _notes(self, files: NoteFiles) -> Notes:
        """Return the notes of files; one that a person has edited since it was written by a job is a statement of that time."""
        notes = notes_of(files, self._clock, accepted=self._folder.accepted() if self.is_shared else None)
        edits = {} if self.is_shared else self._folder.edits()
        active = {name: _edited(note, edits[name]) if name in edits else note for name, note in notes.active.items()}
        return replace(notes, active=active)

    def _memory(self, by: Author) -> Memory:
        stones = tombstones_in(self._folder.state)
        # A person who corrects a note of the team writes as its author did. Without a tombstone no digest is compared.
        notes = notes_of(self._folder.read(hidden=self._forgetting.hidden()), self._clock) if self.is_shared else self.notes()
        return Memory(notes.active, (*stones, *self._retracted()), self._folder.key() if stones else b"", by)

    def _retracted(self) -> Iterator[Tombstone]:
        """Yield what was retracted and not brought back since: it is not learned again from the same events."""
        found: dict[str, Tombstone] = {}
        for event in self._folder.history():
            match event.body:
                case NoteForgotten(name=name, how="retracted", by=who, evidence=evidence) if who != "consolidate" and evidence:
                    found[name] = Tombstone(iso_time(event.at), who, evidence)
                case NoteSaved(name=name):
                    found.pop(name, None)
                case _:
                    continue
        yield from found.values()

    def _applied(self, writer: NoteWriter, change: AcceptedChange, by: Author) -> tuple[NoteEvent, ...]:
        notes = self.notes()
        if by != "consolidate":
            change = _with_rules(change, notes)
        change = _with_new_revisions(change, notes)
        # A past version of a note that goes on under its name is kept before the new version takes its place.
        going_on = {note.name for note in change.saved}
        for note in change.past:
            if note.name in going_on:
                writer.keep_past(note.revision, encode_note(fitting(redacted(note))))
        saved = tuple(self._saved(writer, note, by, change.reason) for note in change.saved)
        retired = tuple(self._retired(writer, note, by, change.reason) for note in change.past if note.name not in going_on)
        left = {note.name for note in change.past if note.level == "rule"}
        for note in change.saved:
            before = notes.past.get(f"{note.name}@{note.rev - 1}")
            if note.name not in notes.active and before is not None and before.superseded_by.partition("@")[0] in left:
                # It holds again, as it did before the rule took its place.
                writer.delete(PAST, before.revision)
        return (*saved, *retired)

    def _picked_up(self, writer: NoteWriter) -> tuple[NoteEvent, ...]:
        recorded, files = writer.recorded(), self._folder.read()
        decoded = notes_of(files, self._clock)
        events: list[NoteEvent] = []
        for name, text in files.active.items():
            known = recorded.get(name)
            if name in decoded.active and (known is None or known.digest != digest_of(text)):
                note = decoded.active[name]
                by, reason = self._author_of(note, known)
                events.append(NoteSaved(self.scope, name, note.rev, digest_of(text), by, reason, note.evidence))
        for name, note in decoded.quarantine.items():
            if name not in recorded and name not in decoded.active:
                # Its time in quarantine begins now, so that it ends.
                digest = digest_of(files.quarantine[name])
                events.append(NoteSaved(self.scope, name, note.rev, digest, note.by, "found in quarantine", note.evidence))
        unreadable = {place for place, _ in files.problems}
        gone = [
            name for name in recorded if name not in files.active and name not in files.quarantine and f"notes/{name}.md" not in unreadable
        ]
        by = "team" if self.is_shared else "user"
        events += [NoteForgotten(self.scope, name, 0, "retracted", by, "deleted by hand", recorded[name].evidence) for name in gone]
        for event in events:
            writer.record(event)
        self._complete(writer, files, decoded)
        return tuple(events)

    def _complete(self, writer: NoteWriter, files: NoteFiles, decoded: Notes) -> None:
        """Do what a process did not come to that was killed between two files of a correction or a promotion."""
        for note in decoded.past.values():
            if note.name in files.active and note.name not in decoded.active and note.revision not in files.past:
                holder = next((each.revision for each in decoded.active.values() if note.revision in each.supersedes), "")
                self._retired(writer, replace(note, superseded_by=holder), "consolidate", "its correction was interrupted")
        for name in files.quarantine:
            if name in decoded.active:
                writer.discard_quarantined(name)

    def _author_of(self, note: Note, known: RecordedNote | None) -> tuple[str, str]:
        """Return who wrote a file that the log does not know, and how: a person, or a process that was killed before it recorded it."""
        if self.is_shared:
            return "team", "came with the repository" if known is None else "changed with the repository"
        if note.by != "user" and note.rev > (0 if known is None else known.rev) and (known is not None or note.order == ()):
            return note.by, "recorded after an interruption"
        return "user", "written by hand" if known is None else "edited by hand"

    def _saved(self, writer: NoteWriter, note: Note, by: Author, reason: str) -> NoteSaved:
        clean = fitting(as_saved(redacted(note), is_shared=self.is_shared))
        text = encode_note(clean)
        event = NoteSaved(self.scope, note.name, note.rev, digest_of(text), by, reason, note.evidence)
        writer.save(note.name, text, event, quarantined=note.trust == "quarantined")
        # The log of the notes holds no text of them; that of the session has the words already.
        return replace(event, about=clean.about)

    def _retired(self, writer: NoteWriter, note: Note, by: Author, reason: str) -> NoteForgotten:
        event = NoteForgotten(self.scope, note.name, note.rev, "retracted", by, reason, note.evidence)
        if note.status == "superseded":
            event = replace(event, how="superseded")
        writer.retire(note.name, note.revision, encode_note(fitting(redacted(note))), event)
        return event

    def _write_index(self, writer: NoteWriter) -> None:
        if self.is_shared:
            write_ignore_file(self._folder.folder)
        # A file that is shared does not depend on what one user has accepted.
        notes = notes_of(self._folder.read(hidden=self._forgetting.hidden()), self._clock) if self.is_shared else self.notes()
        writer.write_generated(INDEX_FILE, index_of(notes.active.values()).text)


def _with_rules(change: AcceptedChange, notes: Notes) -> AcceptedChange:
    """Return the change with the rules that have a case which it corrects; the note that corrects the case names it."""
    touched = {note.name for note in (*change.saved, *change.past)}
    rules = {name: note for name, note in notes.active.items() if note.level == "rule" and name not in touched}
    steps = without_corrected(change.saved, rules, tuple(notes.past.values()))
    if not steps:
        return change
    cases = {case.name: case for rule in rules.values() for case in cases_of(rule, {}, notes.past.values())}
    saved = [
        replace(note, supersedes=(*note.supersedes, cases[note.name].revision)) if note.name in cases else note for note in change.saved
    ]
    past = [replace(cases[note.name], superseded_by=note.revision) for note in change.saved if note.name in cases]
    return AcceptedChange(
        (*saved, *(note for step in steps for note in step.saved)),
        (*change.past, *past, *(note for step in steps for note in step.past)),
        change.reason,
    )


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


def _edited(note: Note, at: int) -> Note:
    when = iso_time(at)
    return replace(note, by="user", trust="stated", when=when if time_of(when) > time_of(note.when) else note.when)


class Memories:
    """The notebooks that belong to a project folder. `team` is there if the project's repository has a folder of notes."""

    def __init__(self, user: Notebook, project: Notebook, team: Notebook | None = None) -> None:
        self.user = user
        self.project = project
        self.team = team

    @property
    def notebooks(self) -> tuple[Notebook, ...]:
        """All of them; a note of an earlier one holds against one of the same name in a later one."""
        return (self.user, self.project) if self.team is None else (self.user, self.project, self.team)

    def of_scope(self, scope: str) -> Notebook:
        """Return a notebook by its scope, or by the words `user`, `project` and `team`. Raises `BadInput` if there is none."""
        words = {"user": self.user, "project": self.project, **({} if self.team is None else {"team": self.team})}
        found = words.get(scope) or next((each for each in self.notebooks if each.scope == scope), None)
        if found is None:
            advice = f"a team has notes if the project has a folder {TEAM_FOLDER}" if scope == "team" else f"there are {', '.join(words)}"
            raise BadInput(f"there are no notes of {scope[:80]!r}; {advice}", where="memory")
        return found

    def place_of(self, kind: NoteKind) -> Notebook:
        """Return the notebook that new notes of a kind go to: what is about the user holds in every project, all else in this one."""
        return self.user if kind == "user" else self.project

    def active(self) -> Iterator[tuple[Notebook, Note]]:
        """Yield each active note with its notebook, as the files state them now."""
        for notebook in self.notebooks:
            for note in notebook.notes().active.values():
                yield notebook, note

    def find(self, name: str) -> tuple[Notebook, Note]:
        """Return the active note of a name with its notebook. Raises `BadInput` if there is none."""
        for notebook, note in self.active():
            if note.name == name:
                return notebook, note
        raise BadInput(f"there is no note {name[:80]!r}; `pal memory list` lists them", where="memory")


def memories_of(home: Home, root: Path) -> Memories | None:
    """Return the notes of a project folder; `None` in a home without a folder, which keeps nothing."""
    if home.local_folder is None:
        return None
    scope = project_scope(root)
    team = team_folder(root)
    return Memories(
        _notebook(scope_folder(home.local_folder, USER_SCOPE), USER_SCOPE, home.clock),
        _notebook(scope_folder(home.local_folder, scope), scope, home.clock),
        None if team is None else _team_notebook(team, home.local_folder, scope, home.clock),
    )


def make_team_notebook(home: Home, root: Path) -> Notebook:
    """Make the folder of the team's notes in a project, if there is none, and return it as a notebook.

    Raises `BadInput` in a home that keeps nothing, `StoreError` if the folder cannot be made.
    """
    if home.local_folder is None:
        raise BadInput("a home in memory has no notes; set PAL_HOME to a folder", where="memory")
    return _team_notebook(make_team_folder(root), home.local_folder, project_scope(root), home.clock)


def _team_notebook(team: Path, home: Path, scope: str, clock: Clock) -> Notebook:
    """Return the notes of a team; what is kept beside them is in the home of this user, where no repository can put a file."""
    state = scope_folder(home, scope.replace("project-", "team-", 1))
    return Notebook(NoteFolder(team, TEAM_SCOPE, clock, state=state), clock)


def _notebook(folder: Path, scope: str, clock: Clock) -> Notebook:
    return Notebook(NoteFolder(folder, scope, clock), clock)
