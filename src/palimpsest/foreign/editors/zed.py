"""The transcript format of Zed: a database with one compressed document for each thread of its agent."""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.events import (
    Body,
    ContextStated,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Part, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.database import is_database, query, rows_of, tables_of, text_value
from palimpsest.foreign.reading.files import GrowingDocument, decoded, digest_of, raw_of, rest_of, sources_below
from palimpsest.foreign.reading.importing import parent_place
from palimpsest.foreign.reading.opening import LARGEST, unpacked
from palimpsest.foreign.reading.parts import arguments_of, call_of, milliseconds, provider_of
from palimpsest.foreign.reading.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.wire.encoding.media import blob_part
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

NAME = "zed"
_TABLES = frozenset({"threads"})
_FILE = "threads.db"
_Row = dict[str, object]


class ZedFormat:
    """Threads of Zed's own agent, version 0.3.0 of their documents, and the flat messages of 0.2.0."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The database of threads on Linux and on macOS."""
        data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
        return tuple(folder / "threads" / _FILE for folder in (data / "zed", home / "Library" / "Application Support" / "Zed"))

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each thread."""
        return sources_below(path, (_FILE,), _sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a thread in order."""
        try:
            rows = query(Path(source.path), _TABLES, lambda each: rows_of(each, "SELECT * FROM threads WHERE id = ?", source.session))
            document = decoded(_data(rows[0])) if rows else None
        except (sqlite3.Error, BadInput) as error:
            yield ReadProblem(source.path, f"thread {source.session} cannot be read: {error}")
            return
        messages = document.get("messages") if is_json(document) else None
        if not is_json(document) or not isinstance(messages, list):
            yield ReadProblem(source.path, f"thread {source.session} is no document that is known")
            return
        thread = _ThreadReader(document, rows[0], blobs)
        growing = GrowingDocument(position)
        yield from growing.new_events(messages, thread.opening_event(source), thread.events_of)
        # A title that changed; the first one follows the opening.
        yield from thread.title_event()
        yield growing.position(messages)


def _sources(path: Path) -> Iterator[TranscriptSource | ReadProblem]:
    if not is_database(path):
        return
    try:
        rows = query(path, _TABLES, _threads)
    except sqlite3.Error as error:
        yield ReadProblem(str(path), f"the database cannot be read: {error}")
        return
    for row in rows:
        stamp = f"{text_value(row['updated_at'])}-{text_value(row['size'])}"
        yield TranscriptSource(NAME, str(path), text_value(row["id"]), stamp, text_value(row.get("parent_id")))


def _threads(connection: sqlite3.Connection) -> list[_Row]:
    if "threads" not in tables_of(connection):
        return []
    try:
        return rows_of(connection, "SELECT id, updated_at, length(data) AS size, parent_id FROM threads ORDER BY updated_at, id")
    except sqlite3.OperationalError:
        # Older databases have no parents, and databases of other programs have other columns.
        return rows_of(connection, "SELECT id, updated_at, length(data) AS size FROM threads ORDER BY updated_at, id")


def _data(row: _Row) -> bytes:
    data = row.get("data")
    stored = data if isinstance(data, bytes) else str(data).encode()
    return unpacked(stored, LARGEST) if text_value(row.get("data_type")) == "zstd" else stored


class _ThreadReader:
    """One pass over the messages of a thread. Messages have no times, so all events have that of the thread."""

    def __init__(self, document: Json, row: _Row, blobs: Blobs) -> None:
        self._document = document
        self._blobs = blobs
        self._model = text(table_at(document, "model"), "model")
        snapshot = table_at(document, "initial_project_snapshot")
        self._began = milliseconds(snapshot.get("timestamp")) or milliseconds(document.get("updated_at"))
        folders = text_value(row.get("folder_paths")).splitlines()
        trees = [text(each, "worktree_path") for each in tables_at(snapshot, "worktree_snapshots")]
        self._cwd = next((folder for folder in (*folders, *trees) if folder), "")
        self._usage = table_at(document, "request_token_usage")
        self._asked = ""

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        fields = {"version": text(self._document, "version"), "provider": text(table_at(self._document, "model"), "provider")}
        meta = {name: value for name, value in fields.items() if value}
        opener = parent_place(NAME, source.parent)
        opened = SessionOpened(source.session, self._cwd, NAME, model=self._model, opener=opener, meta=meta)
        return ReadEvent(opened, self._began, "opened")

    def title_event(self) -> Iterator[ReadEvent]:
        title = text(self._document, "title") or text(self._document, "summary")
        if title:
            yield ReadEvent(Titled(title, by=NAME), self._began, f"title-{digest_of(title.encode())}")

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        if not index:
            yield from self.title_event()
        key = f"{index}-{digest_of(msgspec.json.encode(message))}"
        table = message if is_json(message) else {}
        if user := table_at(table, "User"):
            yield from self._user(key, user)
        elif agent := table_at(table, "Agent"):
            results = [each for each in table_at(agent, "tool_results").values() if is_json(each)]
            yield from self._reply(key, tuple(self._contents(agent)), results, agent)
        elif text(table, "role") == "user":
            parts = tuple(Text(text(each, "text")) for each in tables_at(table, "segments") if text(each, "text"))
            yield ReadEvent(UserSaid(parts) if parts else ForeignNoted(NAME, (key,)), self._began, key, line=rest_of(table, "segments"))
        elif text(table, "role") == "assistant":
            segments = ({_SEGMENTS.get(text(each, "type"), ""): each} for each in tables_at(table, "segments"))
            calls = ({"ToolUse": each} for each in tables_at(table, "tool_uses"))
            flat: Json = {"content": [*segments, *calls]}
            yield from self._reply(key, tuple(self._contents(flat)), tables_at(table, "tool_results"), table)
        else:
            yield ReadEvent(ForeignNoted(NAME, (key,)), self._began, key, line=raw_of(message))

    def _user(self, key: str, user: Json) -> Iterator[ReadEvent]:
        """What the user said, and then what the mentions in it brought."""
        self._asked = text(user, "id")
        parts: list[Part] = []
        mentioned: list[Statement] = []
        for each in tables_at(user, "content"):
            if text(each, "Text"):
                parts.append(Text(text(each, "Text")))
            elif image := table_at(each, "Image"):
                part = blob_part("image/png", text(image, "source"), self._blobs)
                parts += [part] if part is not None else []
            elif mention := table_at(each, "Mention"):
                parts.append(Text(f"@{dump(mention.get('uri'))}"))
                mentioned += [Statement("zed.mention", text(mention, "content"), ref=key)] if text(mention, "content") else []
        said: Body = UserSaid(tuple(parts)) if parts else ForeignNoted(NAME, (key,))
        if mentioned:
            yield ReadEvent(said, self._began, f"{key}/said")
            said = ContextStated(tuple(mentioned))
        yield ReadEvent(said, self._began, key, line=rest_of(user, "content"))

    def _reply(self, key: str, parts: tuple[Content, ...], results: list[Json], message: Json) -> Iterator[ReadEvent]:
        calls = {part.call_id: part for part in parts if isinstance(part, ToolCall)}
        yield ReadEvent(call_of(self._model), self._began, f"{key}/call")
        # The usage is that of the newest request for a message of the user, so it counts with the first reply to it.
        usage, self._asked = _usage(table_at(self._usage, self._asked)), ""
        body = ModelReplied(parts, usage=usage, stop="tool_use" if calls else "end_turn", model=self._model)
        yield ReadEvent(body, self._began, key, line=rest_of(message, "content", "tool_results", "segments", "tool_uses"))
        for number_of_result, each in enumerate(results):
            call_id = text(each, "tool_use_id")
            if call_id in calls:
                result = ToolResult(call_id, tuple(self._result_parts(each.get("content"))), error=each.get("is_error") is True)
                event = ToolReturned(result, text(each, "tool_name") or calls[call_id].tool)
                yield ReadEvent(event, self._began, f"{key}/{number_of_result}", line=rest_of(each, "content", "output"))

    def _contents(self, message: Json) -> Iterator[Content]:
        for each in tables_at(message, "content"):
            name, value = next(iter(each.items()), ("", None))
            match name:
                case "Text":
                    reply = value if isinstance(value, str) else text(value, "text") if is_json(value) else ""
                    yield from [Text(reply, "assistant")] if reply.strip() else []
                case "Thinking":
                    yield from self._thinking(value)
                case "ToolUse" if is_json(value):
                    yield ToolCall(text(value, "id"), text(value, "name"), arguments_of(value.get("input") or text(value, "raw_input")))
                case _:
                    pass

    def _thinking(self, value: object) -> Iterator[Thinking]:
        thinking = value if isinstance(value, str) else text(value, "text") if is_json(value) else ""
        signature = text(value, "signature") if is_json(value) else ""
        if thinking:
            yield Thinking(thinking, Signature(provider_of(self._model), self._model, signature) if signature else None)

    def _result_parts(self, content: object) -> Iterator[Part]:
        """The parts of a result: a text, or one or several texts and images under their names."""
        if isinstance(content, str):
            yield from [Text(content)] if content else []
        for each in content if isinstance(content, list) else [content]:
            if is_json(each) and (found := text(each, "Text") or text(each, "text")):
                yield Text(found)
            elif is_json(each) and (part := blob_part("image/png", text(table_at(each, "Image"), "source"), self._blobs)) is not None:
                yield part


_SEGMENTS = {"text": "Text", "thinking": "Thinking"}


def _usage(usage: Json) -> Usage:
    read, written = number(usage, "cache_read_input_tokens"), number(usage, "cache_creation_input_tokens")
    return Usage(number(usage, "input_tokens"), read, written, output=number(usage, "output_tokens"))
