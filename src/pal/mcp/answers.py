"""Tools that the MCP server declares, and its answers from the home and the notes of one project folder."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from palimpsest.agent.archive import LogArchive, RecallArguments, recall_from
from palimpsest.agent.tool import ToolError, bounded, one_line, schema_of
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.log import Log
from palimpsest.core.text import utc_text
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.note import Note, encode_note, redacted
from palimpsest.memory.query import MemorySearch
from palimpsest.memory.remembering import remember_from_outside
from palimpsest.memory.session_memory import ProjectMemory
from palimpsest.memory.shown import is_showable
from palimpsest.memory.tool_calls import RememberArguments
from palimpsest.memory.writing import locate
from palimpsest.stores.home import Home

Session = Annotated[str, Meta(max_length=200, description="Id of a session, as results name it, or the id it has in its own program.")]


class RecallQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to notes and past sessions."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000, description="What you want to know, in plain words.")]
    all_projects: Annotated[bool, Meta(description="Look in the sessions of all projects.")] = False
    history: Annotated[bool, Meta(description="Add what notes said before they were corrected.")] = False


class SearchWords(Struct, frozen=True, forbid_unknown_fields=True):
    """Words to find in sessions."""

    words: Annotated[str, Meta(min_length=1, max_length=500, description='Words that all occur; "a phrase", prefix* and -word work.')]
    session: Session = ""


class ItemName(Struct, frozen=True, forbid_unknown_fields=True):
    """An item of a session, or a note."""

    id: Annotated[
        str, Meta(min_length=1, max_length=200, description="Id of an item such as 17.2, or without a session the name of a note.")
    ]
    session: Session = ""
    offset: Annotated[int, Meta(ge=0, description="Byte at which a long item goes on.")] = 0


class OutsideNote(RememberArguments, frozen=True, forbid_unknown_fields=True):
    """A note, and the session whose words it quotes."""

    session: Session = ""


class ForgetName(Struct, frozen=True, forbid_unknown_fields=True):
    """A note that is to be deleted."""

    name: Annotated[str, Meta(min_length=1, max_length=80, description="Name of the note, as list_notes has it.")]


class NoteFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which notes are listed."""

    kind: Annotated[Literal["", "user", "feedback", "project", "reference"], Meta(description="Only notes of this kind.")] = ""


class DeclaredTool(Struct, frozen=True):
    """A tool as clients see it. `changes` says whether it reads only, adds, or deletes."""

    name: str
    arguments: type[Struct]
    description: str
    changes: Literal["nothing", "adds", "deletes"] = "nothing"

    def declaration(self) -> dict[str, Any]:
        """Return the tool as a client sees it in `tools/list`."""
        hints = {"readOnlyHint": self.changes == "nothing", "destructiveHint": self.changes == "deletes", "openWorldHint": False}
        return {"name": self.name, "description": self.description, "inputSchema": schema_of(self.arguments), "annotations": hints}


TOOLS: Final = (
    DeclaredTool(
        "recall",
        RecallQuestion,
        "Answer a question from the user's notes and the past sessions of this project: earlier decisions, how an error was fixed, which "
        "command works. Results name the session and item that each line comes from; show_item shows one in full. No model is asked.",
    ),
    DeclaredTool(
        "search_sessions",
        SearchWords,
        "Find exact words in all recorded sessions, or in one: messages, commands, results, paths. Returns at most 20 lines, each with the "
        "item and session that show_item takes.",
    ),
    DeclaredTool(
        "show_item",
        ItemName,
        "Show an item of a session in full, in pieces of 20 kB: a message, a call or a result that search_sessions or recall names; or the "
        "note of that name.",
    ),
    DeclaredTool("list_notes", NoteFilter, "List the notes that are remembered for this user and this project, one line each."),
    DeclaredTool(
        "remember",
        OutsideNote,
        "Save one fact for later sessions, when the user asks for it: a preference, a correction, a decision with its reason. With a quote "
        "of the user's words in a recorded session it counts as theirs; else it is held until the user accepts it with `pal memory "
        "promote`. Do not save what code or history says, the state of the present task, or secrets.",
        "adds",
    ),
    DeclaredTool(
        "forget",
        ForgetName,
        "Delete a note for good, with all past versions, when the user asks for it. It cannot be undone.",
        "deletes",
    ),
)


def offered_tools(*, write: bool) -> tuple[DeclaredTool, ...]:
    """Return the tools of a server; one without `write` offers none that change notes."""
    return tuple(tool for tool in TOOLS if write or tool.changes == "nothing")


# Bytes of one answer: clients cut longer ones by rules of their own, or refuse them.
PAGE_BYTES: Final = 20_000
RESOURCE_BYTES: Final = 100_000
MOST_LISTED: Final = 200
MOST_SESSIONS: Final = 50
SESSION_PREFIX: Final = "pal://session/"
NOTE_PREFIX: Final = "pal://note/"
_ABOUT_CHARS: Final = 150


class OfferedResource(Struct, frozen=True):
    """A session or a note that a client can read."""

    uri: str
    name: str
    title: str


class Answers:
    """What the server can say in one project folder. Several threads may use it at once.

    `memory` is `None` if the user has turned memory off; then only sessions can be searched and shown.
    """

    def __init__(self, home: Home, root: Path, memory: ProjectMemory | None, *, write: bool = False) -> None:
        self._home = home
        self._root = root
        self._memory = memory
        self.tools = {tool.name: tool for tool in offered_tools(write=write and memory is not None)}
        self._archive = LogArchive(
            None, home.store, home.blobs, home.clock, home.index, None if memory is None else lambda: MemorySearch(memory)
        )
        self._changing = Lock()

    def close(self) -> None:
        """Close what is open."""
        self._archive.close()

    def call(self, name: str, arguments: dict[str, object]) -> str:
        """Return the text that a tool answers. Raises `PalimpsestError` if there is no such tool, or it refuses."""
        tool = self.tools.get(name)
        if tool is None:
            raise BadInput(f"there is no tool {name[:80]!r} here; {_why_missing(name)}", where="pal mcp")
        try:
            given = msgspec.convert(arguments, tool.arguments)
        except msgspec.ValidationError as error:
            raise ToolError(f"the arguments of {name} are not valid: {error}") from error
        return self._answer(tool, given)

    def _answer(self, tool: DeclaredTool, given: Struct) -> str:
        match given:
            case RecallQuestion(query=query):
                asked = RecallArguments(query=query, all_projects=given.all_projects, history=given.history)
                return bounded(recall_from(self._archive, asked).text, PAGE_BYTES, "ask for less")
            case SearchWords(words=words):
                session = self._session(given.session) if given.session else ""
                return recall_from(self._archive, RecallArguments(words=words, session=session, all_sessions=not session)).text
            case ItemName(session=""):
                return self._note_text(given.id)
            case ItemName():
                asked = RecallArguments(id=given.id, session=self._session(given.session), offset=given.offset)
                return recall_from(self._archive, asked, PAGE_BYTES).text
            case NoteFilter():
                return self._listed(given.kind)
            case OutsideNote():
                return self._remember(given)
            case ForgetName():
                return self._forget(given.name)
            case _:
                raise BadInput(f"the tool {tool.name} has no answer", where="pal mcp")

    def resources(self) -> list[OfferedResource]:
        """Return the newest sessions of this project and its notes."""
        with self._home.index() as index:
            rows = [row for row in index.list() if row.opener is None and row.cwd and Path(row.cwd).is_relative_to(self._root)]
        offered = [
            OfferedResource(f"{SESSION_PREFIX}{row.id}", row.id, f"{utc_text(row.updated)} {one_line(row.title, _ABOUT_CHARS)}")
            for row in rows[:MOST_SESSIONS]
        ]
        notes = (OfferedResource(f"{NOTE_PREFIX}{note.name}", note.name, note.about) for _, note in self._notes())
        return [*offered, *notes][: MOST_SESSIONS + MOST_LISTED]

    def read(self, uri: str) -> str:
        """Return a session or a note as Markdown. Raises `BadInput` if there is none."""
        if uri.startswith(NOTE_PREFIX):
            return self._note_text(uri.removeprefix(NOTE_PREFIX))
        if not uri.startswith(SESSION_PREFIX):
            raise BadInput(f"there is no resource {uri[:200]!r}; resources/list names them", where="pal mcp")
        from palimpsest.exchange.html import write_markdown  # few clients read whole sessions

        with self._opened(self._session(uri.removeprefix(SESSION_PREFIX))) as log:
            chunks, size = list[str](), 0
            for chunk in write_markdown(log):
                chunks.append(chunk)
                size += len(chunk)
                if size > RESOURCE_BYTES:
                    break
        return bounded("".join(chunks), RESOURCE_BYTES, "search_sessions finds words in all of it")

    def _session(self, word: str) -> str:
        """Return the id of the session that a word names: its id, or the end of only one id. Raises `BadInput` if there is none."""
        sessions = self._home.store.sessions()
        if word in sessions:
            return word
        found = [session for session in sessions if session.endswith(f"-{word}")]
        if len(found) != 1:
            raise BadInput(f"there is no session {one_line(word, 80)!r}; search_sessions names them", where="pal mcp")
        return found[0]

    def _opened(self, session: str) -> Log:
        return Log.open(self._home.store, session, self._home.clock)

    def _required(self) -> ProjectMemory:
        if self._memory is None:
            raise BadInput("memory is turned off (`memory.use`), so that there are no notes", where="pal mcp")
        return self._memory

    def _notes(self) -> Iterator[tuple[str, Note]]:
        """Yield the active notes that may be shown, each with its scope; those in quarantine are not for a model."""
        if self._memory is None or not self._memory.is_used():
            return
        memories = self._memory.memories
        words = {memories.user.scope: "user", memories.project.scope: "project"}
        for notebook, note in memories.active():
            if is_showable(note):
                yield words.get(notebook.scope, "team"), redacted(note)

    def _listed(self, kind: str) -> str:
        self._required()
        found = [(scope, note) for scope, note in self._notes() if kind in ("", note.kind)]
        lines = [
            f"{note.name} ({scope}, {note.kind}, {note.trust}, {note.when[:10]}){_whose(note)}: {one_line(note.about, _ABOUT_CHARS)}"
            for scope, note in found[:MOST_LISTED]
        ]
        more = [f"({len(found) - MOST_LISTED:,} more; recall finds them)"] if len(found) > MOST_LISTED else []
        return bounded("\n".join((*lines, *more)), PAGE_BYTES, "recall finds them") if lines else "there are no notes"

    def _note_text(self, name: str) -> str:
        self._required()
        found = next((note for _, note in self._notes() if note.name == name), None)
        if found is None:
            raise BadInput(f"there is no note {one_line(name, 80)!r}; for an item of a session, name the `session` too", where="pal mcp")
        return bounded(encode_note(found), PAGE_BYTES)

    def _remember(self, given: OutsideNote) -> str:
        memory = self._required()
        fields = {name: getattr(given, name) for name in RememberArguments.__struct_fields__}
        now = iso_time(self._home.clock.now())
        with self._changing:
            if not given.session:
                return remember_from_outside(memory.memories, RememberArguments(**fields), self._root, None, now)
            with self._opened(self._session(given.session)) as log:
                return remember_from_outside(memory.memories, RememberArguments(**fields), self._root, log, now)

    def _forget(self, name: str) -> str:
        found = locate(self._required().memories, name)
        with self._changing:
            gone = found.notebook.forget(found.note.name, "memory_tool", "asked for over MCP")
        return f"Forgotten for good: {', '.join(dict.fromkeys(event.name for event in gone))}."


def _why_missing(name: str) -> str:
    changing = [tool.name for tool in offered_tools(write=True) if tool.changes != "nothing"]
    return "this server only reads; `pal mcp --write` lets it change notes" if name in changing else "tools/list names them"


def answer_or_error(answers: Answers, name: str, arguments: dict[str, object]) -> tuple[str, bool]:
    """Return the text of a call, and whether it is an error: what the user's files and arguments can cause is no failure of the server."""
    try:
        return answers.call(name, arguments), False
    except PalimpsestError as error:
        return error.message, True
    except OSError as error:
        return f"a file cannot be used: {error.strerror or error}", True


def _whose(note: Note) -> str:
    return f" about {one_line(note.whom)}" if note.whom else ""
