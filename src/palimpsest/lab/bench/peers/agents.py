"""openai-agents as a peer: its SQLite session stores the same contents and reads them back whole."""

import asyncio
import os
import time
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, final

from palimpsest.core.events.event_items import items_of as items_of_event
from palimpsest.core.items import Content, ToolCall, ToolResult, text_of
from palimpsest.lab.bench.workspace import PATIENCE_S, BenchWorkspace, frozen_gc, import_optional, seconds, side_by_side

NAME = "openai-agents"
_BATCH = 500
sync_file = getattr(os, "fdatasync", os.fsync)


def item_of(content: Content) -> dict[str, str]:
    """Return a content as that library stores it: an item of the Responses API."""
    match content:
        case ToolCall():
            return {"type": "function_call", "call_id": content.call_id, "name": content.tool, "arguments": content.args}
        case ToolResult():
            return {"type": "function_call_output", "call_id": content.call_id, "output": text_of(content)}
        case _:
            return {"role": getattr(content, "role", "assistant"), "content": text_of(content)}


def items_of(workspace: BenchWorkspace, length: str) -> Iterator[dict[str, str]]:
    """Yield all contents of a log; that library has no edits, so hidden contents are included."""
    with workspace.reader(length) as log:
        for event in log.events():
            for item in items_of_event(event.seq, event.body):
                yield item_of(item.content)


@final
class Agents:
    """Sessions of that library, one for each log, written on first use."""

    def __init__(self, workspace: BenchWorkspace, library: ModuleType) -> None:
        self._room = workspace
        self._library = library
        self._paths: dict[str, Path] = {}
        self._runner = asyncio.Runner()
        self._slowest = 0.0

    @classmethod
    def find(cls, workspace: BenchWorkspace) -> "Agents | None":
        """Return that library over the logs of a workspace, or None if it is not installed."""
        library = import_optional("agents")
        if library is None:
            return None
        if NAME not in workspace.peers:
            workspace.peers[NAME] = cls(workspace, library)
        found = workspace.peers[NAME]
        return found if isinstance(found, cls) else None

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    def resume(self, length: str) -> float | None:
        """Return the units to read all items of a session, or None if that would take too long."""
        sizes = self._room.sizes
        if self._slowest * sizes.lengths[length] / sizes.middle > PATIENCE_S:
            return None
        path = self._path(length)
        self._room.announce(f"{NAME}: resuming after {sizes.lengths[length]:,} events")
        rounds = 3 if length == "100k" else max(3, sizes.rounds // 4)
        (units,) = self._room.unit.of(rounds, lambda: self._get(path))
        if length == "10k":
            self._slowest = seconds(lambda: self._get(path))
        return units

    def load(self) -> float:
        """Return the time to read all items of a session, divided by decoding the same items as lines."""
        path = self._path("10k")
        loads = self._room.orjson.loads

        def decode() -> None:
            for line in self._plain.read_bytes().splitlines():
                loads(line)

        whole, plain = side_by_side(max(3, self._room.sizes.rounds // 4), lambda: self._get(path), decode)
        return whole / plain

    def append(self, group: int) -> float:
        """Return the time to add `group` items at once, divided by a raw write of the same bytes with a sync."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        items = items_of(self._room, "10k")
        raw = os.open(self._room.folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        ours: list[float] = []
        plain: list[float] = []
        try:
            with frozen_gc():
                for _ in range(self._room.sizes.syncs):
                    some = list(islice(items, group))
                    data = b"".join(self._room.orjson.dumps(item) + b"\n" for item in some)
                    ours.append(seconds(partial(self._add, session, some)))
                    plain.append(seconds(partial(_write, raw, data)))
        finally:
            os.close(raw)
            session.close()
        return median(ours) / median(plain)

    def append_cpu_us(self) -> float:
        """Return the CPU microseconds of adding one item."""
        session = self._library.SQLiteSession("bench", self._path("1k"))
        some = list(islice(items_of(self._room, "10k"), self._room.sizes.syncs))
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
        path = self._room.folder / "items.jsonl"
        dumps = self._room.orjson.dumps
        path.write_bytes(b"".join(dumps(item) + b"\n" for item in items_of(self._room, "10k")))
        return path

    def _path(self, length: str) -> Path:
        if length not in self._paths:
            self._room.announce(f"{NAME}: writing {self._room.sizes.lengths[length]:,} events")
            path = self._room.folder / f"agents-{length}.sqlite"
            session = self._library.SQLiteSession("bench", path)
            items = items_of(self._room, length)
            while some := list(islice(items, _BATCH)):
                self._add(session, some)
            session.close()
            self._paths[length] = path
        return self._paths[length]

    def _get(self, path: Path) -> None:
        session = self._library.SQLiteSession("bench", path)
        self._runner.run(session.get_items())
        session.close()

    def _add(self, session: Any, items: list[dict[str, str]]) -> None:
        self._runner.run(session.add_items(items))


def _write(file: int, data: bytes) -> None:
    os.write(file, data)
    sync_file(file)
