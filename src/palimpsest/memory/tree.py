"""The notes as files below /memories: a folder for each kind, or the path that a note was created under."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from palimpsest.agent.session import Session
from palimpsest.agent.tool import ToolError
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.front_matter import field_line, read_front_matter
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, Memory, RefusedChange, judge_change
from palimpsest.memory.index_text import index_of, newer_among
from palimpsest.memory.note import KINDS, UNTOLD, Note, NoteKind, check_note, name_of, time_of
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.remembering import first_words, read_session
from palimpsest.memory.store import INDEX_FILE, SUMMARY_FILE
from palimpsest.memory.tool_calls import ROOT, TreeChange, checked_path
from palimpsest.memory.writing import MOST_EVIDENCE, first_line

MOST_FILES_A_CALL: Final = 20
"""Files that one delete or rename of a folder may change."""
_PATH: Final = "path"
# The folder says where these notes come from.
_REPOSITORY: Final = "from_this_repository"
_SUFFIX: Final = ".md"
_GENERATED: Final = (f"{ROOT}/{INDEX_FILE}", f"{ROOT}/{SUMMARY_FILE}")


class HasMemories(Protocol):
    """What opens the notes of a session."""

    @property
    def memories(self) -> Memories:
        """The notes."""
        ...


class _PlacedNote(Struct, frozen=True):
    """A note with its notebook."""

    notebook: Notebook
    note: Note


class SessionTree(Struct, frozen=True):
    """The active notes as the memory tool of one session sees and changes them.

    Superseded, retracted, quarantined and forgotten notes do not exist in it. No path ever reaches the file system: it is looked up among
    the notes.
    """

    session: Session
    root: Path
    opened: HasMemories

    @property
    def memories(self) -> Memories:
        """The notes, which are opened with the first use."""
        return self.opened.memories

    def files(self) -> dict[str, str]:
        """Return the text of each note by its path, and the generated files."""
        placed = self._placed()
        summaries = [text for notebook in self.memories.notebooks if (text := notebook.summary().strip())]
        notes = [each.note for each in placed.values()]
        newer = newer_among(notes)
        generated = {_GENERATED[0]: index_of(notes, {note.name: newer.of(note.name) for note in notes}).text}
        if summaries:
            generated[_GENERATED[1]] = "\n\n".join(summaries) + "\n"
        return {**{path: each.note.body for path, each in placed.items()}, **generated}

    def create(self, path: str, text: str) -> TreeChange:
        """Save a new note; its kind is that of the folder. Raises `ToolError` if it is refused."""
        _require_changeable(path)
        kind = _kind_of(path)
        read = read_session(self.session.log, self.root)
        front = read_front_matter(text)
        fields = {} if front is None else front.texts()
        body = (text if front is None else front.body).strip("\n")
        about = fields.get("about") or fields.get("description") or first_line(body)
        notebook = self.memories.place_of(kind)

        def propose(memory: Memory, _: str) -> AcceptedChange | RefusedChange:
            said = read.user_words(body)
            draft = Draft(kind=kind, about=about, body=body, backstory=UNTOLD["file"])
            source, quote = said if said is not None else (read.call(f"{about}\n{body}"), first_words(body))
            outcome = judge_change(AddNote(draft, (source.id,), quote), (*read.sources, source), memory)
            if isinstance(outcome, RefusedChange) and said is not None and kind in ("project", "reference"):
                # The user's words carry only a part of it.
                call = read.call(f"{about}\n{body}")
                outcome = judge_change(AddNote(draft, (source.id, call.id), quote), (*read.sources, call), memory)
            return outcome if isinstance(outcome, RefusedChange) else _named_by_path(outcome, path, kind, memory)

        return self._changed(notebook, propose)

    def write(self, path: str, text: str, added: str) -> TreeChange:
        """Save a new version of a note; what the user stated is changed only into words of the user. Raises `ToolError` if refused."""
        found = self._at(path)
        read = read_session(self.session.log, self.root)
        old = found.note
        said = read.user_words(added)
        if old.trust == "stated" and not read.is_said_by_user(added):
            raise ToolError(f"the user stated {path}, so a change needs the user's own words, line by line; or use another file")
        if old.trust != "stated" and read.is_tainted:
            raise ToolError(f"this turn has read text from outside of the project, so {path} is not changed; ask the user first")
        event = read.call_id if said is None else said[0].id
        evidence = tuple(dict.fromkeys((*old.evidence, event)))[-MOST_EVIDENCE:]
        new = replace(old, body=text, evidence=evidence, when=max(old.when, read.at, key=time_of), by="memory_tool", rev=old.rev + 1)
        return self._replaced(found, new, "changed with the memory tool")

    def delete(self, paths: Sequence[str]) -> TreeChange:
        """Retract notes, which the user can undo. Raises `ToolError` if one is refused."""
        found = self._all_at(paths, "deleted")
        changes = [self._changed(each.notebook, _retraction(each.note, "deleted with the memory tool")) for each in found.values()]
        commands = ", ".join(f"`pal memory undo {each.note.name}`" for each in found.values())
        return TreeChange(tuple(event for change in changes for event in change.events), f"Bring back: {commands}.")

    def move_notes(self, paths: Sequence[tuple[str, str]]) -> TreeChange:
        """Move notes; evidence and past versions stay. Raises `ToolError` if one is refused."""
        found = self._all_at([old for old, _ in paths], "moved")
        changes: list[TreeChange] = []
        for old, path in paths:
            _require_changeable(path)
            each = found[old]
            kind = _kind_of(path)
            taken = frozenset(each.notebook.notes().active)
            name = each.note.name if kind == each.note.kind else name_of(kind, _stem(path, kind), taken)
            rev = each.note.rev + 1 if name == each.note.name else 1
            chain = (*each.note.supersedes, each.note.revision)[-MOST_EVIDENCE:]
            moved = replace(each.note, name=name, kind=kind, rev=rev, supersedes=chain, by="memory_tool")
            changes.append(self._replaced(each, _with_path(moved, path), "moved with the memory tool"))
        return TreeChange(tuple(event for change in changes for event in change.events))

    def _placed(self) -> dict[str, _PlacedNote]:
        placed: dict[str, _PlacedNote] = {}
        for notebook, note in self.memories.active():
            own = _own_path(note)
            path = own if own not in placed and own not in _GENERATED else _usual_path(note)
            placed.setdefault(path, _PlacedNote(notebook, note))
        return placed

    def _at(self, path: str) -> _PlacedNote:
        _require_changeable(path)
        found = self._placed().get(path)
        if found is None:
            raise ToolError(f"there is no file {path}")
        return found

    def _all_at(self, paths: Sequence[str], what: str) -> dict[str, _PlacedNote]:
        """Return the notes of some paths. Raises `ToolError` if there are too many, or a text from outside may have asked for it."""
        if len(paths) > MOST_FILES_A_CALL:
            raise ToolError(f"{len(paths)} files are too many for one call; at most {MOST_FILES_A_CALL} are {what}")
        read = read_session(self.session.log, self.root)
        found = {path: self._at(path) for path in paths}
        if read.is_tainted:
            raise ToolError(f"this turn has read text from outside of the project, so nothing is {what}; ask the user first")
        return found

    def _replaced(self, found: _PlacedNote, new: Note, reason: str) -> TreeChange:
        old = found.note

        def propose(memory: Memory, _: str) -> AcceptedChange | RefusedChange:
            if memory.notes.get(old.name) != old:
                return RefusedChange("the file was changed by another process meanwhile; view it again")
            return AcceptedChange((check_note(new),), (replace(old, status="superseded", superseded_by=new.revision),), reason)

        return self._changed(found.notebook, propose)

    def _changed(self, notebook: Notebook, propose: Callable[[Memory, str], AcceptedChange | RefusedChange]) -> TreeChange:
        try:
            outcome = notebook.change(propose, "memory_tool")
        except PalimpsestError as error:
            raise ToolError(error.message) from error
        if isinstance(outcome, RefusedChange):
            raise ToolError(f"nothing was saved: {outcome.reason}")
        held = [event.name for event in outcome if event.name in notebook.notes().quarantine]
        note = f"It may come from outside, so it is not used until the user runs `pal memory promote {held[0]}`." if held else ""
        return TreeChange(outcome, note if outcome else "The same is known already; nothing was changed.")


def _retraction(note: Note, reason: str) -> Callable[[Memory, str], AcceptedChange | RefusedChange]:
    def propose(memory: Memory, _: str) -> AcceptedChange | RefusedChange:
        if note.name not in memory.notes:
            return RefusedChange("the file is gone already")
        return AcceptedChange((), (replace(memory.notes[note.name], status="retracted"),), reason)

    return propose


def _named_by_path(change: AcceptedChange, path: str, kind: NoteKind, memory: Memory) -> AcceptedChange:
    """Return the change with a new note named after its path; one that confirms another note keeps that note's name."""
    if change.reason != "added":
        return change
    name = name_of(kind, _stem(path, kind), frozenset(memory.notes))
    return AcceptedChange(tuple(_with_path(replace(note, name=name), path) for note in change.saved), change.past, change.reason)


def _with_path(note: Note, path: str) -> Note:
    """Return the note with the path that it is to have, unless that is the usual one."""
    other = tuple(each for each in note.other if each[0] != _PATH)
    return replace(note, other=other if path == _usual_path(note) else (*other, (_PATH, field_line(_PATH, path))))


def _own_path(note: Note) -> str:
    """Return the path that a note remembers, or the usual one; a path that a hand edit made invalid does not count.

    A note of a repository has no say in it.
    """
    if note.trust == "repository":
        return _usual_path(note)
    line = dict(note.other).get(_PATH, "")
    front = read_front_matter(f"---\n{line}\n---\n") if line else None
    try:
        return _usual_path(note) if front is None else checked_path(front.texts().get(_PATH, ""))
    except ToolError:
        return _usual_path(note)


def _usual_path(note: Note) -> str:
    return f"{ROOT}/{_REPOSITORY if note.trust == 'repository' else note.kind}/{note.name}{_SUFFIX}"


def _kind_of(path: str) -> NoteKind:
    """Return the kind that the first folder of a path names; `project` if it is none."""
    folder = path.removeprefix(f"{ROOT}/").partition("/")
    return next((kind for kind in KINDS if folder[1] and kind == folder[0]), "project")


def _stem(path: str, kind: NoteKind) -> str:
    inner = path.removeprefix(f"{ROOT}/").removeprefix(f"{kind}/").removesuffix(_SUFFIX)
    return inner.removeprefix(f"{kind}_")


def _require_changeable(path: str) -> None:
    if path in _GENERATED:
        raise ToolError(f"{path} is generated from the notes; change those")
