"""Answers of the server: what each tool and resource returns, from the home and the notes of one project folder."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from msgspec import Struct

from palimpsest.apps.mcp.declared import (
    DeclaredTool,
    ForgetName,
    ItemName,
    NoteFilter,
    OutsideNote,
    RecallQuestion,
    SearchWords,
    offered_tools,
)
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.format.texts import utc_text
from palimpsest.core.log.log import Log
from palimpsest.engine.loop.archive import LogArchive
from palimpsest.engine.memory.access.remembering import remember_from_outside
from palimpsest.engine.memory.access.writing import locate
from palimpsest.engine.memory.project_memory import ProjectMemory
from palimpsest.engine.memory.recall.querying import MemorySearch
from palimpsest.memory.note import Note, redacted
from palimpsest.memory.note_file import encode_note
from palimpsest.memory.reading import iso_time
from palimpsest.memory.showing.note_units import is_showable
from palimpsest.stores.home import AnyHome
from palimpsest.tools.memory.remember import RememberArguments
from palimpsest.tools.session.recall import RecallArguments, recall_from
from palimpsest.tools.tool import ToolError, bounded, one_line

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

    def __init__(self, home: AnyHome, root: Path, memory: ProjectMemory | None, *, write: bool = False) -> None:
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
        from palimpsest.foreign.exporting.markdown import write_markdown  # few clients read whole sessions

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
