"""Other libraries that do the same work in the same run, if they are installed: openai-agents and langchain."""

import asyncio
import os
import time
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, ClassVar, Self, TypeAlias, final

import msgspec

from palimpsest.core.events.event_items import items_of
from palimpsest.core.items import Content, Text, ToolCall, ToolResult, text_of
from palimpsest.core.view import shown
from palimpsest.lab.bench.workspace import BenchWorkspace, frozen_gc, import_optional, seconds, side_by_side, write_synced

# A peer that would take longer than this is not measured.
_PATIENCE_S = 20.0
_BATCH = 500
_WINDOW = 150_000
# The libraries may not be installed, so their types cannot be named here.
Message: TypeAlias = Any
SqliteSession: TypeAlias = Any


class _PeerLibrary:
    """A library over the logs of a workspace."""

    NAME: ClassVar[str]
    MODULE: ClassVar[str]

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        self._workspace = workspace
        self._library = library
        self._middle_seconds = 0.0

    @classmethod
    def find(cls, workspace: BenchWorkspace) -> Self | None:
        """Return this library over the logs of a workspace, or None if it is not installed."""
        library = import_optional(cls.MODULE)
        if library is None:
            return None
        if cls.NAME not in workspace.peers:
            workspace.peers[cls.NAME] = cls(workspace, library)
        found = workspace.peers[cls.NAME]
        return found if isinstance(found, cls) else None

    def _takes_too_long(self, length: str) -> bool:
        sizes = self._workspace.sizes
        return self._middle_seconds * sizes.lengths[length] / sizes.middle > _PATIENCE_S

    def _contents(self, length: str) -> Iterator[Content]:
        """Yield all contents of a log; these libraries have no edits, so hidden contents are included."""
        with self._workspace.reader(length) as log:
            for event in log.events():
                for item in items_of(event.seq, event.body):
                    yield item.content


@final
class Agents(_PeerLibrary):
    """openai-agents: its SQLite session stores the same contents and reads them back whole; one for each log, written on first use."""

    NAME = "openai-agents"
    MODULE = "agents"

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        super().__init__(workspace, library)
        self._paths: dict[str, Path] = {}
        self._runner = workspace.resources.enter_context(asyncio.Runner())

    def resume(self, length: str) -> float | None:
        """Return the units to read all items of a session, or None if that would take too long."""
        if self._takes_too_long(length):
            return None
        sizes, path = self._workspace.sizes, self._path(length)
        self._workspace.announce(f"{self.NAME}: resuming after {sizes.lengths[length]:,} events")
        rounds = 3 if length == "100k" else max(3, sizes.rounds // 4)
        (units,) = self._workspace.unit.of(rounds, lambda: self._get(path))
        if length == "10k":
            self._middle_seconds = seconds(lambda: self._get(path))
        return units

    def load(self) -> float:
        """Return the time to read all items of a session, divided by decoding the same items as lines."""
        path = self._path("10k")
        loads = self._workspace.orjson.loads

        def decode() -> None:
            for line in self._plain.read_bytes().splitlines():
                loads(line)

        whole, plain = side_by_side(max(3, self._workspace.sizes.rounds // 4), lambda: self._get(path), decode)
        return whole / plain

    def append(self, group: int) -> float:
        """Return the time to add `group` items at once, divided by a raw write of the same bytes with a sync."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        items = self._items("10k")
        raw = os.open(self._workspace.folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        ours: list[float] = []
        plain: list[float] = []
        try:
            with frozen_gc():
                for _ in range(self._workspace.sizes.syncs):
                    some = list(islice(items, group))
                    data = b"".join(self._workspace.orjson.dumps(item) + b"\n" for item in some)
                    ours.append(seconds(partial(self._add, session, some)))
                    plain.append(seconds(partial(write_synced, raw, data)))
        finally:
            os.close(raw)
            session.close()
        return median(ours) / median(plain)

    def append_cpu_us(self) -> float:
        """Return the CPU microseconds of adding one item."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        some = list(islice(self._items("10k"), self._workspace.sizes.syncs))
        with frozen_gc():
            begun = time.process_time()
            for item in some:
                self._add(session, [item])
            took = time.process_time() - begun
        session.close()
        return took / len(some) * 1e6

    def disk_ratio(self) -> float:
        """Return the size of the database, divided by the same items as plain JSONL."""
        path = self._path("10k")
        kept = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        return kept / self._plain.stat().st_size

    @cached_property
    def _plain(self) -> Path:
        path = self._workspace.folder / "items.jsonl"
        dumps = self._workspace.orjson.dumps
        path.write_bytes(b"".join(dumps(item) + b"\n" for item in self._items("10k")))
        return path

    def _path(self, length: str) -> Path:
        if length not in self._paths:
            self._workspace.announce(f"{self.NAME}: writing {self._workspace.sizes.lengths[length]:,} events")
            path = self._workspace.folder / f"agents-{length}.sqlite"
            session = self._library.SQLiteSession("bench", path)
            items = self._items(length)
            while some := list(islice(items, _BATCH)):
                self._add(session, some)
            session.close()
            self._paths[length] = path
        return self._paths[length]

    def _get(self, path: Path) -> None:
        session = self._library.SQLiteSession("bench", path)
        self._runner.run(session.get_items())
        session.close()

    def _add(self, session: SqliteSession, items: list[dict[str, str]]) -> None:
        self._runner.run(session.add_items(items))

    def _items(self, length: str) -> Iterator[dict[str, str]]:
        """Yield the contents of a log as this library stores them: items of the Responses API."""
        for content in self._contents(length):
            match content:
                case ToolCall():
                    yield {"type": "function_call", "call_id": content.call_id, "name": content.tool, "arguments": content.args}
                case ToolResult():
                    yield {"type": "function_call_output", "call_id": content.call_id, "output": text_of(content)}
                case _:
                    yield {"role": getattr(content, "role", "assistant"), "content": text_of(content)}


@final
class Langchain(_PeerLibrary):
    """langchain: it counts and trims the whole history before every call, and builds the request from the rest."""

    NAME = "langchain"
    MODULE = "langchain_core.messages"

    def turn(self, length: str) -> float | None:
        """Return the units to trim the whole history to the window and build a request body, or None if that would take too long."""
        if self._takes_too_long(length):
            return None
        sizes = self._workspace.sizes
        self._workspace.announce(f"{self.NAME}: turns after {sizes.lengths[length]:,} events")
        messages = [self._message(content) for content in self._contents(length)]
        took = seconds(lambda: self._request(messages))
        if length == "10k":
            self._middle_seconds = took
        rounds = 3 if took > 1 else max(3, sizes.rounds // 4)
        (units,) = self._workspace.unit.of(rounds, lambda: self._request(messages))
        return units

    def decide(self) -> float:
        """Return the units to count the messages of the view that our counter counts."""
        with self._workspace.reader("10k") as log:
            messages = [self._message(content) for item in log.view.items if (content := shown(item)) is not None]
        (units,) = self._workspace.unit.of(self._workspace.sizes.rounds, lambda: self._count(messages))
        return units

    def count_text(self, text: str) -> int:
        """Return its token estimate of one text."""
        return self._count([self._library.HumanMessage(text)])

    def _count(self, messages: list[Message]) -> int:
        counted: int = self._library.utils.count_tokens_approximately(messages)
        return counted

    def _request(self, messages: list[Message]) -> bytes:
        library = self._library
        kept = library.trim_messages(messages, max_tokens=_WINDOW, token_counter=self._count, strategy="last")
        return msgspec.json.encode(library.convert_to_openai_messages(kept))

    def _message(self, content: Content) -> Message:
        match content:
            case ToolCall():
                call = {"name": content.tool, "args": msgspec.json.decode(content.args), "id": content.call_id}
                return self._library.AIMessage("", tool_calls=[call])
            case ToolResult():
                return self._library.ToolMessage(text_of(content), tool_call_id=content.call_id)
            case Text(role="assistant"):
                return self._library.AIMessage(content.text)
            case _:
                return self._library.HumanMessage(text_of(content))
