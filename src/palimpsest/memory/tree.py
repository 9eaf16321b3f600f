"""The notes as files below /memories, in a folder for each kind or at the path of their creation, and the tool `memory` over them."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool, ToolError, ToolEvent, ToolOutput, bounded, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.front_matter import field_line, read_front_matter
from palimpsest.memory.changes import AcceptedChange, AddNote, Draft, Memory, RefusedChange, judge_change
from palimpsest.memory.index_text import index_of, newer_among
from palimpsest.memory.note import KINDS, UNTOLD, Note, NoteKind, check_note, name_of, time_of
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.remembering import first_words, read_session
from palimpsest.memory.store import INDEX_FILE, SUMMARY_FILE
from palimpsest.memory.tool_calls import MEMORY
from palimpsest.memory.writing import MOST_EVIDENCE, first_line
from palimpsest.wire.request import Tool

ROOT: Final = "/memories"
LONGEST_PATH: Final = 300
MOST_FOLDERS: Final = 8
# An encoded character, once or several times over: the path is a name here and is never decoded.
_ENCODED: Final = re.compile(r"%(?:25)*[0-9A-Fa-f]{2}")


def checked_path(path: str) -> str:
    """Return a path below `/memories`, without a slash at its end. Raises `ToolError` if it could mean something else or lie elsewhere."""
    shown = one_line(path, 80)
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"a path begins with {ROOT}, and {shown!r} does not")
    if len(path) > LONGEST_PATH:
        raise ToolError(f"a path has at most {LONGEST_PATH} characters")
    if "\\" in path or _ENCODED.search(path) or not path.isprintable():
        raise ToolError(f"the path {shown!r} has a backslash, an encoded or a control character; use plain names and /")
    parts = path.removeprefix(ROOT).removesuffix("/").split("/")[1:]
    if len(parts) > MOST_FOLDERS:
        raise ToolError(f"a path has at most {MOST_FOLDERS} parts below {ROOT}")
    for part in parts:
        if not part.strip(". ") or part != part.strip() or part.startswith(("~", ".")):
            raise ToolError(f"the path {shown!r} has an empty, hidden or relative part; name each folder and file plainly")
    return "/".join((ROOT, *parts))


def is_below(path: str, folder: str) -> bool:
    """Whether a path lies in a folder, at any depth."""
    return path.startswith(f"{folder}/")


NATIVE: Final = Raw(b'{"type":"memory_20250818","name":"memory"}')
"""How Anthropic's models know the tool."""
_CONTEXT_LINES: Final = 2
_LONGEST_VIEW: Final = 40_000
_MOST_ENTRIES: Final = 500
_LEVELS: Final = 2
_Path: TypeAlias = Annotated[str, Meta(max_length=1_000)]
_FileText: TypeAlias = Annotated[str, Meta(max_length=50_000)]


class ViewCommand(Struct, frozen=True, tag_field="command", tag="view"):
    """Show a folder, or lines of a file; a range is `[first, last]`, with -1 for the last line."""

    path: _Path
    view_range: Annotated[tuple[int, ...], Meta(max_length=2)] | None = None


class CreateCommand(Struct, frozen=True, tag_field="command", tag="create"):
    """Write a new file."""

    path: _Path
    file_text: _FileText


class StrReplaceCommand(Struct, frozen=True, tag_field="command", tag="str_replace"):
    """Replace a text that occurs once."""

    path: _Path
    old_str: _FileText
    new_str: _FileText = ""


class InsertCommand(Struct, frozen=True, tag_field="command", tag="insert"):
    """Insert lines after a line; 0 inserts at the beginning."""

    path: _Path
    insert_line: int
    insert_text: _FileText


class DeleteCommand(Struct, frozen=True, tag_field="command", tag="delete"):
    """Delete a file or a folder."""

    path: _Path


class RenameCommand(Struct, frozen=True, tag_field="command", tag="rename"):
    """Move a file or a folder."""

    old_path: _Path
    new_path: _Path


MemoryCommand: TypeAlias = ViewCommand | CreateCommand | StrReplaceCommand | InsertCommand | DeleteCommand | RenameCommand
CommandName: TypeAlias = Literal["view", "create", "str_replace", "insert", "delete", "rename"]


class _MemoryArguments(Struct, frozen=True):
    """The arguments of all commands in one object, since providers want no union at the top of a schema."""

    command: CommandName
    path: Annotated[str, Meta(description="Of all commands but rename.")] = ""
    view_range: Annotated[tuple[int, ...], Meta(description="view: first and last line; -1 for the end.")] = ()
    file_text: Annotated[str, Meta(description="create: the text.")] = ""
    old_str: Annotated[str, Meta(description="str_replace: a text that occurs once.")] = ""
    new_str: Annotated[str, Meta(description="str_replace: what takes its place.")] = ""
    insert_line: Annotated[int, Meta(description="insert: the line after which it goes; 0 for the beginning.")] = 0
    insert_text: Annotated[str, Meta(description="insert: the lines.")] = ""
    old_path: Annotated[str, Meta(description="rename: the path now.")] = ""
    new_path: Annotated[str, Meta(description="rename: the path then.")] = ""


class TreeChange(Struct, frozen=True):
    """What a change of the tree recorded; `note` says what the model should know about it."""

    events: tuple[ToolEvent, ...] = ()
    note: str = ""


MOST_FILES_A_CALL: Final = 20
"""Files that one delete or rename of a folder may change."""
_PATH: Final = "path"
# The folder says where these notes come from.
_REPOSITORY: Final = "from_this_repository"
_SUFFIX: Final = ".md"
_GENERATED: Final = (f"{ROOT}/{INDEX_FILE}", f"{ROOT}/{SUMMARY_FILE}")


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
    opened: Callable[[], Memories]

    @property
    def memories(self) -> Memories:
        """The notes, which are opened with the first use."""
        return self.opened()

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


_commands: Final = msgspec.json.Decoder(MemoryCommand)


def memory_tool(tree: SessionTree) -> AgentTool:
    """The tool over a tree, declared to Anthropic's models as they know it, and to others as an ordinary function."""

    async def run(arguments: str, _: Workspace) -> ToolOutput:
        try:
            command = _commands.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError) as error:
            return ToolOutput(f"The arguments of {MEMORY} are not valid: {error}.", error=True)
        try:
            return await asyncio.to_thread(carry_out, tree, command)
        except PalimpsestError as error:
            return ToolOutput(f"Error: {error.message}", error=True)
        except OSError as error:
            return ToolOutput(f"Error: {MEMORY} failed: {one_line(str(error))}", error=True)

    schema = msgspec.json.schema(_MemoryArguments)["$defs"]["_MemoryArguments"]
    fields = {key: value for key, value in schema.items() if key not in ("title", "description")}
    declared = Raw(msgspec.json.encode({**fields, "additionalProperties": False}))
    declaration = Tool(MEMORY, _DESCRIPTION, declared, native=NATIVE, native_wire="anthropic", kind="remembers")
    return AgentTool(declaration, parallel=False, run=run)


def carry_out(tree: SessionTree, command: MemoryCommand) -> ToolOutput:
    """Return what a command does to the tree. Raises `PalimpsestError` if it is refused."""
    match command:
        case ViewCommand(path=path, view_range=lines):
            return ToolOutput(bounded(_viewed(tree.files(), checked_path(path), lines), _LONGEST_VIEW, "view a range of lines"))
        case CreateCommand(path=path, file_text=text):
            place = checked_path(path)
            files = tree.files()
            if place == ROOT or place in files or any(is_below(other, place) for other in files):
                raise ToolError(f"{place} exists already; change it with str_replace or insert")
            return _done(tree.create(place, text), f"Created {place}.")
        case StrReplaceCommand(path=path, old_str=old, new_str=new):
            place = checked_path(path)
            return _replaced(tree, place, old, new)
        case InsertCommand(path=path, insert_line=line, insert_text=text):
            place = checked_path(path)
            return _inserted(tree, place, line, text)
        case DeleteCommand(path=path):
            place = checked_path(path)
            return _done(tree.delete(_files_at(tree.files(), place, "deleted")), f"Deleted {place}.")
        case RenameCommand(old_path=old, new_path=new):
            return _renamed(tree, checked_path(old), checked_path(new))


def _viewed(files: dict[str, str], path: str, lines: tuple[int, ...] | None) -> str:
    if path in files:
        return _numbered(files[path], path, lines)
    below = sorted(other for other in files if is_below(other, path))
    if not below and path != ROOT:
        raise ToolError(f"there is no {path}; view {ROOT} to see what there is")
    sizes: dict[str, int] = {path: 0}
    for other in below:
        parts = other.removeprefix(f"{path}/").split("/")
        size = len(files[other].encode())
        sizes[path] += size
        for depth in range(1, min(len(parts), _LEVELS) + 1):
            place = "/".join((path, *parts[:depth]))
            sizes[place] = sizes.get(place, 0) + size
    listed = [f"{_size(size)}\t{place}" for place, size in sorted(sizes.items())]
    more = [f"[{len(listed) - _MOST_ENTRIES:,} more]"] if len(listed) > _MOST_ENTRIES else []
    return "\n".join((f"{path}, {_LEVELS} levels deep:", *listed[:_MOST_ENTRIES], *more))


def _numbered(text: str, path: str, lines: tuple[int, ...] | None, first: int = 1) -> str:
    every = text.splitlines()
    last = len(every)
    if lines:
        if len(lines) != 2:
            raise ToolError("view_range is [first, last], with -1 for the last line")
        first, last = lines[0], len(every) if lines[1] == -1 else lines[1]
        if not 1 <= first <= max(1, len(every)) or not first <= last <= max(1, len(every)):
            raise ToolError(f"view_range {list(lines)} is not within the lines 1 to {len(every)} of {path}")
    shown = "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(every[first - 1 : last], first))
    return f"{path} with line numbers:\n{shown}"


def _replaced(tree: SessionTree, path: str, old: str, new: str) -> ToolOutput:
    text = _text_at(tree.files(), path)
    if not old:
        raise ToolError("old_str is empty; name the text that is to be replaced")
    places = [place for place in range(len(text)) if text.startswith(old, place)]
    if not places:
        raise ToolError(f"nothing was replaced: old_str does not occur verbatim in {path}")
    if len(places) > 1:
        numbers = ", ".join(str(text.count("\n", 0, place) + 1) for place in places[:20])
        raise ToolError(f"nothing was replaced: old_str occurs {len(places)} times in {path}, in lines {numbers}; make it unique")
    after = text[: places[0]] + new + text[places[0] + len(old) :]
    line = text.count("\n", 0, places[0]) + 1
    return _done(tree.write(path, after, new), f"Changed {path}.", _around(after, path, line, new))


def _inserted(tree: SessionTree, path: str, line: int, text: str) -> ToolOutput:
    lines = _text_at(tree.files(), path).splitlines()
    if not 0 <= line <= len(lines):
        raise ToolError(f"insert_line {line} is not within the lines 0 to {len(lines)} of {path}")
    after = "\n".join((*lines[:line], *text.removesuffix("\n").split("\n"), *lines[line:])) + "\n"
    return _done(tree.write(path, after, text), f"Changed {path}.", _around(after, path, line + 1, text))


def _renamed(tree: SessionTree, old: str, new: str) -> ToolOutput:
    files = tree.files()
    moved = _files_at(files, old, "moved")
    if new == ROOT or is_below(new, old):
        raise ToolError(f"{old} cannot be moved to {new}")
    if new in files or any(is_below(other, new) for other in files):
        raise ToolError(f"{new} exists already")
    return _done(tree.move_notes([(path, new + path.removeprefix(old)) for path in moved]), f"Moved {old} to {new}.")


def _files_at(files: dict[str, str], path: str, what: str) -> list[str]:
    """Return the files that a path means: itself, or all below it."""
    if path == ROOT:
        raise ToolError(f"{ROOT} itself cannot be {what}")
    found = [path] if path in files else sorted(other for other in files if is_below(other, path))
    if not found:
        raise ToolError(f"there is no {path}; view {ROOT} to see what there is")
    return found


def _text_at(files: dict[str, str], path: str) -> str:
    if path not in files:
        raise ToolError(f"there is no file {path}; view {ROOT} to see what there is")
    return files[path]


def _around(text: str, path: str, line: int, changed: str) -> str:
    """Return the changed lines with two lines before and after them."""
    lines = text.splitlines()
    first = max(1, line - _CONTEXT_LINES)
    last = min(max(1, len(lines)), line + changed.removesuffix("\n").count("\n") + _CONTEXT_LINES)
    return _numbered(text, path, (first, last)) if lines else ""


def _done(change: TreeChange, *texts: str) -> ToolOutput:
    shown = "\n".join(text for text in (*texts, change.note) if text)
    return ToolOutput(bounded(shown, _LONGEST_VIEW), events=change.events)


def _size(size: int) -> str:
    return f"{size / 1024:.1f}K" if size >= 1024 else str(size)


_DESCRIPTION: Final = (
    f"Files that outlive this session, below {ROOT}: one topic a file, in the folders user, feedback, project and reference. View {ROOT} "
    "before work that may build on earlier sessions, and save what will still matter in later ones. Texts under user and feedback must "
    "hold words of the user. MEMORY.md and SUMMARY.md are generated. What is deleted can be brought back by the user."
)
