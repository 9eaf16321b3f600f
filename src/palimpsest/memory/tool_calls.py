"""The tool `memory` with six commands over a tree of files and checked paths, and the tool `remember`, which saves one fact."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from palimpsest.agent.tool import AgentTool, ToolError, ToolEvent, ToolOutput, bounded, define, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import PalimpsestError
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


MEMORY: Final = "memory"
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


class NoteTree(Protocol):
    """The notes as files by path below `/memories`. Texts have no front matter. Changes raise `PalimpsestError` if they are refused."""

    def files(self) -> dict[str, str]:
        """Return the text of each file, also of those that cannot be changed."""
        ...

    def create(self, path: str, text: str) -> TreeChange:
        """Save a new file."""
        ...

    def write(self, path: str, text: str, added: str) -> TreeChange:
        """Save a new version of a file; `added` is the text that is new in it."""
        ...

    def delete(self, paths: Sequence[str]) -> TreeChange:
        """Take files away, so that they can be brought back."""
        ...

    def move_notes(self, paths: Sequence[tuple[str, str]]) -> TreeChange:
        """Move files, each from one path to another."""
        ...


_commands: Final = msgspec.json.Decoder(MemoryCommand)


def memory_tool(tree: NoteTree) -> AgentTool:
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


def carry_out(tree: NoteTree, command: MemoryCommand) -> ToolOutput:
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


def _replaced(tree: NoteTree, path: str, old: str, new: str) -> ToolOutput:
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


def _inserted(tree: NoteTree, path: str, line: int, text: str) -> ToolOutput:
    lines = _text_at(tree.files(), path).splitlines()
    if not 0 <= line <= len(lines):
        raise ToolError(f"insert_line {line} is not within the lines 0 to {len(lines)} of {path}")
    after = "\n".join((*lines[:line], *text.removesuffix("\n").split("\n"), *lines[line:])) + "\n"
    return _done(tree.write(path, after, text), f"Changed {path}.", _around(after, path, line + 1, text))


def _renamed(tree: NoteTree, old: str, new: str) -> ToolOutput:
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


REMEMBER: Final = "remember"


class RememberArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The fact, whose it is and how it was learned, and the words that support it."""

    text: Annotated[str, Meta(min_length=1, max_length=6_000, description="The fact first; then why it holds, and how to apply it.")]
    kind: Annotated[
        Literal["user", "feedback", "project", "reference"],
        Meta(description="user: who they are; feedback: how to work; project: facts that code does not tell; reference: where things are."),
    ] = "project"
    about: Annotated[str, Meta(max_length=150, description="One line by which it is found again; by default the first line.")] = ""
    quote: Annotated[str, Meta(max_length=600, description="At most 25 words of the user, or of a result, verbatim, that say so.")] = ""
    replaces: Annotated[str, Meta(max_length=80, description="Name of the note that this one corrects.")] = ""
    person: Annotated[str, Meta(max_length=80, description="Whom it is about, by name.")] = "user"
    relationship: Annotated[str, Meta(max_length=80, description="That person's relation to the user.")] = "self"
    backstory: Annotated[str, Meta(max_length=400, description="The story behind it: when, from whom and why it was learned.")] = ""
    intensity: Annotated[float, Meta(ge=0, le=1, description="How much the user cared: 0 said in passing, 1 insisted or was upset.")] = 0.0
    attribute: Annotated[str, Meta(max_length=80, description="Stable key with one value at a time, such as test.command.")] = ""


class NoteKeeper(Protocol):
    """What saves a note."""

    async def remember(self, given: RememberArguments) -> ToolOutput:
        """Save a note and return what was done with it. Raises `PalimpsestError` if it is refused or cannot be saved."""
        ...


def remember_tool(keeper: NoteKeeper) -> AgentTool:
    """The tool. What becomes of a call is decided by whose words it quotes, not by what it says about itself."""

    async def remember(given: RememberArguments, _: Workspace) -> ToolOutput:
        return await keeper.remember(given)

    return define(
        RememberArguments,
        remember,
        name=REMEMBER,
        description=(
            "Save one fact for later sessions, when the user asks for it or says something that will still matter then: a preference, a "
            "correction, a decision with its reason, where something is found. Give the user's own words in `quote`, and keep to them in "
            "`text` and `about`; without them only project and reference notes can be saved. Do not save what code, history or instruction "
            "files say, the state of the present task, or secrets. To correct a note, name it in `replaces`. Write dates in full."
        ),
        kind="remembers",
    )
