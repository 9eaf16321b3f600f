"""The early reply to `initialize`: it equals that of the SDK, and nothing heavy is imported before it."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from pal.mcp.answers import Answers, offered_tools
from pal.mcp.greeting import HANDSHAKE_VERSIONS, early_list, early_reply, is_notification
from pal.mcp.server import server_of
from pal.mcp.serving import serve_lines
from palimpsest.stores.home import FolderHome


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def initialize(version: str, number: int | str = 1) -> bytes:
    client = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": {"name": "client", "version": "1"}}
    return line(id=number, method="initialize", params=client)


class Written(io.BytesIO):
    """What a client gets; `complete` is set after some replies."""

    def __init__(self, replies: int) -> None:
        super().__init__()
        self.complete = threading.Event()
        self._left = replies

    def flush(self) -> None:
        self._left -= 1
        if not self._left:
            self.complete.set()


class Client(io.BytesIO):
    """Lines of a client that stays until it has all replies, as clients do; at its end the SDK drops what it has not answered."""

    def __init__(self, lines: bytes, written: Written) -> None:
        super().__init__(lines)
        self._written = written

    def readline(self, size: int | None = -1, /) -> bytes:
        found = super().readline(size)
        if not found:
            self._written.complete.wait(60)
        return found


def replies(home: Path, *lines: bytes, count: int, answered: tuple[int | str, ...] = ()) -> list[Any]:
    """What the SDK writes to a client that sends these lines, has got some replies already and waits for so many more."""
    # A reply that is not written again is flushed as well.
    written = Written(count + len(answered))
    server = server_of(Answers(FolderHome(home), home, None))
    asyncio.run(serve_lines(server, [lines[0]], Client(b"".join(lines[1:]), written), written, answered))
    return [json.loads(each) for each in written.getvalue().splitlines()]


def test_every_version_of_the_handshake_is_answered_early() -> None:
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_the_early_reply_is_the_reply_of_the_sdk(version: str, tmp_path: Path) -> None:
    first = initialize(version, "a")
    early = early_reply(first)

    assert early is not None
    assert [json.loads(early.line)] == replies(tmp_path, first, count=1)


def test_what_was_answered_early_is_not_answered_again(tmp_path: Path) -> None:
    first = initialize("2025-06-18", 7)
    others = (line(method="notifications/initialized"), line(id=8, method="ping"), line(id="x", method="tools/list"))

    assert replies(tmp_path, first, *others, count=1, answered=(7, "x")) == [{"jsonrpc": "2.0", "id": 8, "result": {}}]


@pytest.mark.parametrize("params", [{}, {"params": {}}])
def test_the_early_list_of_tools_is_that_of_the_sdk(params: dict[str, Any], tmp_path: Path) -> None:
    asked = line(id=2, method="tools/list", **params)
    early = early_list(asked, lambda: [tool.declaration() for tool in offered_tools(write=False)])
    _, listed = replies(tmp_path, initialize("2025-11-25"), line(method="notifications/initialized"), asked, count=2)

    assert early is not None
    assert json.loads(early.line) == listed


def test_a_further_page_of_tools_and_all_other_requests_are_left_to_the_sdk() -> None:
    asked = (line(id=2, method="tools/list", params={"cursor": "x"}), line(id=2, method="ping"), line(method="tools/list"), b"{\n")

    assert [early_list(each, list) for each in asked] == [None, None, None, None]
    assert [is_notification(each) for each in asked] == [False, False, True, False]


@pytest.mark.parametrize(
    "first",
    [
        initialize("2019-01-01"),
        initialize("2026-07-28"),
        line(id=1, method="server/discover", params={}),
        line(id=1, method="initialize", params={}),
        line(method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}),
        b"[]\n",
        b"\xff\xfe{\n",
    ],
)
def test_all_other_first_lines_are_left_to_the_sdk(first: bytes) -> None:
    assert early_reply(first) is None


@pytest.mark.states("MI-14")
def test_nothing_of_the_sdk_and_of_the_engine_is_imported_before_the_reply(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import pal.cli.mcp\n"
        "own = [name for name in sys.modules if name.partition('.')[0] in ('palimpsest', 'pal')]\n"
        "heavy = ('mcp', 'pydantic', 'starlette', 'rich', 'sqlite3', 'asyncio', 'importlib.metadata', 'palimpsest.agent')\n"
        "print(len(own), len(sys.modules), *(name for name in heavy if name in sys.modules))\n"
    )
    variables = {**os.environ, "PAL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=variables, timeout=120)
    own, modules, *heavy = done.stdout.split()

    assert heavy == []
    # 11 of ours and 152 in all when this was written.
    assert int(own) <= 15
    assert int(modules) <= 180
