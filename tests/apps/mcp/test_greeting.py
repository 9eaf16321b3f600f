"""The early reply to `initialize`: it equals that of the SDK, and nothing heavy is imported before it."""

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from palimpsest.apps.mcp.answers import Answers
from palimpsest.apps.mcp.greeting import HANDSHAKE_VERSIONS, early_reply
from palimpsest.apps.mcp.server import server_of
from palimpsest.apps.mcp.serving import serve_lines
from palimpsest.stores.home import Home


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def initialize(version: str, number: int | str = 1) -> bytes:
    client = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": {"name": "client", "version": "1"}}
    return line(id=number, method="initialize", params=client)


def replies(home: Path, first: bytes, *others: bytes, early: bool = False) -> list[Any]:
    """What the SDK writes to a client that sends these lines."""
    written = io.BytesIO()
    server = server_of(Answers(Home(home), home, None), "1.2")
    asyncio.run(serve_lines(server, first, io.BytesIO(b"".join(others)), written, early_reply(first, "1.2") if early else None))
    return [json.loads(each) for each in written.getvalue().splitlines()]


def test_every_version_of_the_handshake_is_answered_early() -> None:
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_the_early_reply_is_the_reply_of_the_sdk(version: str, tmp_path: Path) -> None:
    first = initialize(version, "a")
    early = early_reply(first, "1.2")

    assert early is not None
    assert [json.loads(early.line)] == replies(tmp_path, first)


def test_what_was_answered_early_is_not_answered_again(tmp_path: Path) -> None:
    first = initialize("2025-06-18", 7)
    answered = replies(tmp_path, first, line(method="notifications/initialized"), line(id=8, method="ping"), early=True)

    assert answered == [{"jsonrpc": "2.0", "id": 8, "result": {}}]


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
    assert early_reply(first, "1.2") is None


def test_nothing_of_the_sdk_and_of_the_engine_is_imported_before_the_reply(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "import palimpsest.apps.cli.agent.mcp\n"
        "own = [name for name in sys.modules if name.startswith('palimpsest.')]\n"
        "heavy = ('mcp', 'mcp_types', 'pydantic', 'starlette', 'rich', 'sqlite3', 'palimpsest.engine', 'palimpsest.memory')\n"
        "print(len(own), len(sys.modules), *(name for name in heavy if name in sys.modules))\n"
    )
    variables = {**os.environ, "PAL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=variables, timeout=60)
    own, modules, *heavy = done.stdout.split()

    assert heavy == []
    # 25 of ours and 243 in all when this was written.
    assert int(own) <= 30
    assert int(modules) <= 280
