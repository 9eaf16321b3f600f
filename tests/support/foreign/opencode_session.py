"""A session of OpenCode in the making, and the three shapes in which the program keeps it."""

import json
import sqlite3
from pathlib import Path
from typing import Any, Self, TypeAlias

from corpus import GOLDEN

from palimpsest.core.events import Body
from palimpsest.core.items import Item, text_of
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.exchange.importing import Imported, import_session
from palimpsest.exchange.opencode.reader import OpencodeFormat
from palimpsest.exchange.transcript import ReadPosition, ReadProblem, TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

SCHEMA = GOLDEN / "opencode" / "schema.sql"
GOLDEN_DATABASE = GOLDEN / "opencode" / "opencode.db"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"


Row: TypeAlias = dict[str, Any]


class Talk:
    """Rows of one session, written down one after the other; ids count up as the program's do."""

    def __init__(self, session: str = "ses_test", start: int = 1_760_000_000_000) -> None:
        self.info: Row = {
            "id": session,
            "slug": "calm-river",
            "projectID": "global",
            "directory": "/repo",
            "title": "A talk",
            "version": "1.18.33",
            "cost": 0.0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "time": {"created": start, "updated": start},
        }
        self.rows: list[tuple[Row, list[Row]]] = []
        self.now = start

    def at(self, now: int) -> Self:
        self.now = now
        return self

    def row_id(self, kind: str) -> str:
        self.now += 10
        return f"{kind}_{(self.now * 4096 + 1) % 2**48:012x}AbCdEfGhIjKlMn"

    def message(self, data: Row, parts: list[Row]) -> str:
        key = self.row_id("msg")
        row = {"time": {"created": self.now}, **data, "id": key, "sessionID": self.info["id"]}
        told = [{**part, "id": self.row_id("prt"), "messageID": key, "sessionID": self.info["id"]} for part in parts]
        self.rows.append((row, told))
        return key

    def user(self, *parts: str | Row, **more: object) -> str:
        told = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        return self.message({"role": "user", "agent": "build", "model": {"providerID": "fake", "modelID": "fm"}, **more}, told)

    def assistant(self, *parts: str | Row, **more: object) -> str:
        told = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        start = self.now + 10
        time = {"created": start, "completed": start + 500}
        data = {"role": "assistant", "modelID": "fm", "providerID": "fake", "time": time, "finish": "stop", **more}
        key = self.message(data, told)
        self.now += 500
        return key

    def part(self, message: int, part: int) -> Row:
        return self.rows[message][1][part]

    def export(self, folder: Path, banner: str = "") -> Path:
        path = folder / "export.json"
        messages = [{"info": info, "parts": parts} for info, parts in self.rows]
        path.write_text(banner + json.dumps({"info": self.info, "messages": messages}, indent=1))
        return path

    def tree(self, folder: Path) -> Path:
        storage, session = folder / "storage", self.info["id"]
        _write(storage / "session" / "global" / f"{session}.json", self.info)
        for info, parts in self.rows:
            _write(storage / "message" / session / f"{info['id']}.json", info)
            for part in parts:
                _write(storage / "part" / info["id"] / f"{part['id']}.json", part)
        return folder

    def database(self, folder: Path, name: str = "opencode.db") -> Path:
        path = folder / name
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.executescript(SCHEMA.read_text())
            self.insert(connection)
        connection.close()
        return path

    def insert(self, connection: sqlite3.Connection) -> None:
        info, session, time = self.info, self.info["id"], self.info["time"]
        columns = {
            "id": session,
            "project_id": info["projectID"],
            "parent_id": info.get("parentID"),
            "slug": info["slug"],
            "directory": info["directory"],
            "title": info["title"],
            "version": info["version"],
            "revert": json.dumps(info["revert"]) if info.get("revert") else None,
            "time_created": time["created"],
            "time_updated": time["updated"],
        }
        connection.execute("DELETE FROM session WHERE id = ?", (session,))
        _insert(connection, "session", columns)
        connection.execute("DELETE FROM message WHERE session_id = ?", (session,))
        connection.execute("DELETE FROM part WHERE session_id = ?", (session,))
        for row, parts in self.rows:
            times = {"time_created": row["time"]["created"], "time_updated": row["time"]["created"]}
            _insert(connection, "message", {"id": row["id"], "session_id": session, **times, "data": _data(row)})
            for part in parts:
                owner = {"message_id": row["id"], "session_id": session}
                _insert(connection, "part", {"id": part["id"], **owner, **times, "data": _data(part)})


def begun(text: str = "one") -> Talk:
    """A talk in which the user has said something."""
    talk = Talk()
    talk.user(text)
    return talk


def _data(row: Row) -> str:
    return json.dumps({name: value for name, value in row.items() if name not in {"id", "sessionID", "messageID"}})


def _insert(connection: sqlite3.Connection, table: str, columns: Row) -> None:
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  # names of ours
    connection.execute(statement, tuple(columns.values()))


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))


def call(tool: str, output: str = "", *, call_id: str = "", status: str = "completed", **state: object) -> Row:
    """A part of a reply that calls a tool."""
    given = {"status": status, "input": {"command": tool}, "time": {"start": 1, "end": 5}, **state}
    if status == "completed":
        given["output"] = output
    return {"type": "tool", "tool": tool, "callID": call_id or f"call-{tool}", "state": given}


class Home:
    """Where sessions are imported to, and the positions at which the imports stopped."""

    def __init__(self) -> None:
        self.store, self.blobs = MemorySessions(), MemoryBlobs()
        self.positions: dict[str, ReadPosition | None] = {}

    def take(self, path: Path, session: str = "", *, marked: bool = True) -> Imported:
        source = next(each for each in sources(path) if not session or each.session == session)
        position = self.positions.get(source.session) if marked else None
        done = import_session(OpencodeFormat(), source, self.store, self.blobs, FixedClock(), position=position)
        self.positions[source.session] = done.position
        return done

    def log(self, session: str = "ses_test") -> Log:
        return Log.open(self.store, f"opencode-{session}", FixedClock())

    def bodies(self, session: str = "ses_test") -> list[Body]:
        log = self.log(session)
        return [event.body for event in log.reader.run(0, log.tip)]

    def bytes_of(self, session: str = "ses_test") -> bytes:
        lines = self.store.open(f"opencode-{session}")
        return b"".join(data for _, data in lines.chunks(0))


def sources(path: Path) -> list[TranscriptSource]:
    """The sessions in a place, none of which is bad."""
    found = list(OpencodeFormat().sources(path))
    assert [each for each in found if isinstance(each, ReadProblem)] == []
    return [each for each in found if isinstance(each, TranscriptSource)]


def view_of(path: Path, session: str = "") -> View:
    """What the model sees at the end of a session."""
    home = Home()
    done = home.take(path, session)
    return Log.open(home.store, done.session, FixedClock()).view


def words(view: View) -> list[tuple[str, str]]:
    """What the model sees, each with its kind."""
    return [(item.kind, _shown(item)) for item in view.items if not item.hidden]


def _shown(item: Item) -> str:
    return text_of(item.content) if item.mask is None else item.mask.text
