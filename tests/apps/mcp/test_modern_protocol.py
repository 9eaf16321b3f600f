"""`pal mcp` as a server of MCP 2026-07-28, which has no handshake, and of the versions before it: over pipes and over HTTP."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from pal_mcp import COMMAND, serving

from pal.mcp.greeting import HANDSHAKE_VERSIONS, INSTRUCTIONS

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol"
META: Mapping[str, Any] = {f"{PREFIX}/protocolVersion": MODERN, f"{PREFIX}/clientCapabilities": {}}
UNKNOWN: Mapping[str, Any] = {**META, f"{PREFIX}/protocolVersion": "2099-01-01"}
TOOLS = ["recall", "search_sessions", "show_item", "list_notes"]
CAPABILITIES = {"resources": {"listChanged": False, "subscribe": False}, "tools": {"listChanged": False}}
REFUSED_VERSION = {"supported": [MODERN], "requested": "2099-01-01"}


def modern(method: str, meta: object = META, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}


def over_pipes(home: Path, *messages: object) -> list[Any]:
    """The replies to some lines, the connection being open until all are there."""
    process = subprocess.Popen(COMMAND, env={**os.environ, "PAL_HOME": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    replies = []
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if isinstance(message, dict) and "id" in message:
                replies.append(json.loads(process.stdout.readline()))
    finally:
        process.communicate(timeout=120)
    return replies


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address and the token of a server over HTTP."""
    home = tmp_path_factory.mktemp("home")
    with serving(home) as address:
        yield address, (home / "mcp-token").read_text()


def over_http(server: tuple[str, str], body: Mapping[str, Any], **headers: str | None) -> tuple[int, Any]:
    """The status and the answer to one request with the headers of its body, or others; `None` leaves one out."""
    address, token = server
    params = body["params"]
    name = params.get("name") or params.get("uri")
    usual = {"MCP-Protocol-Version": params["_meta"][f"{PREFIX}/protocolVersion"], "Mcp-Method": body["method"], "Mcp-Name": name}
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream", **usual, **changed}
    reply = httpx.post(address, json=body, headers={name: value for name, value in sent.items() if value is not None}, timeout=60)
    return reply.status_code, reply.json()


def error_of(reply: Any) -> tuple[int, Any]:
    return reply["error"]["code"], reply["error"].get("data")


@pytest.mark.states("PV-83")
def test_over_pipes_requests_need_no_handshake_and_say_version_and_capabilities_themselves(tmp_path: Path) -> None:
    without = {f"{PREFIX}/protocolVersion": MODERN}
    found, listed, refused, bare = over_pipes(
        tmp_path, modern("server/discover"), modern("tools/list"), modern("tools/list", UNKNOWN), modern("tools/list", without)
    )
    about = found["result"]

    assert (about["supportedVersions"], about["capabilities"], about["instructions"]) == ([MODERN], CAPABILITIES, INSTRUCTIONS)
    kept = ("resultType", "ttlMs", "cacheScope")
    assert [[reply["result"][name] for name in kept] for reply in (found, listed)] == [["complete", 0, "private"]] * 2
    assert [tool["name"] for tool in listed["result"]["tools"]] == TOOLS
    assert error_of(refused) == (-32022, REFUSED_VERSION)
    assert error_of(bare)[0] == -32602


@pytest.mark.states("PV-83")
def test_over_http_headers_must_equal_the_body_and_are_checked_before_the_version(server: tuple[str, str]) -> None:
    called = modern("tools/call", name="list_notes", arguments={})
    for body, headers, status, error in (
        (modern("tools/list"), {"Mcp_Method": "resources/list"}, 400, (-32020, None)),
        (modern("tools/list"), {"Mcp_Method": None}, 400, (-32020, None)),
        (called, {"Mcp_Name": "recall"}, 400, (-32020, None)),
        (called, {"Mcp_Name": None}, 400, (-32020, None)),
        (modern("resources/read", uri="pal://note/a"), {"Mcp_Name": "pal://note/b"}, 400, (-32020, None)),
        (modern("tools/list", UNKNOWN), {}, 400, (-32022, REFUSED_VERSION)),
        (modern("tools/list", UNKNOWN), {"MCP_Protocol_Version": MODERN}, 400, (-32020, None)),
        (modern("tools/list", UNKNOWN), {"Mcp_Method": "resources/list"}, 400, (-32020, None)),
        (modern("no/such"), {}, 404, (-32601, "no/such")),
    ):
        found, reply = over_http(server, body, **headers)
        assert (body["method"], headers, found, error_of(reply)) == (body["method"], headers, status, error)

    without = {f"{PREFIX}/protocolVersion": MODERN}
    status, reply = over_http(server, modern("tools/list", without))
    assert (status, error_of(reply)[0]) == (400, -32602)


@pytest.mark.states("PV-83")
def test_over_http_each_request_stands_alone_and_says_how_long_it_may_be_kept(server: tuple[str, str]) -> None:
    answers = {
        method: over_http(server, modern(method, **params))[1]["result"]
        for method, params in (
            ("server/discover", {}),
            ("tools/list", {}),
            ("resources/list", {}),
            ("tools/call", {"name": "list_notes", "arguments": {}}),
        )
    }
    listed = {method: (found.get("ttlMs"), found.get("cacheScope"), found["resultType"]) for method, found in answers.items()}

    may_be_kept = (0, "private", "complete")
    assert listed == {
        "server/discover": may_be_kept,
        "tools/list": may_be_kept,
        "resources/list": may_be_kept,
        "tools/call": (None, None, "complete"),
    }
    assert (answers["server/discover"]["supportedVersions"], answers["server/discover"]["capabilities"]) == ([MODERN], CAPABILITIES)
    assert answers["tools/call"]["content"] == [{"type": "text", "text": "there are no notes"}]


async def used(client: Client) -> tuple[str, Sequence[str], str]:
    """The version that the official client came to, the tools that it sees, and what one of them answers."""
    async with client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        (content,) = (await client.call_tool("list_notes", {})).content
        assert content.type == "text"
        return client.protocol_version, tools, content.text


async def used_over_http(server: tuple[str, str], mode: str) -> tuple[str, Sequence[str], str]:
    address, token = server
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        return await used(Client(streamable_http_client(address, http_client=http), mode=mode))


@pytest.mark.states("PV-83", "PV-90")
@pytest.mark.parametrize(("mode", "version"), [(MODERN, MODERN), ("auto", MODERN), ("legacy", "2025-11-25")])
def test_the_official_client_comes_to_the_version_that_it_wants(server: tuple[str, str], tmp_path: Path, mode: str, version: str) -> None:
    program = StdioServerParameters(command=sys.executable, args=list(COMMAND[1:]), env={**os.environ, "PAL_HOME": str(tmp_path)})

    expected = (version, TOOLS, "there are no notes")
    assert asyncio.run(used(Client(program, mode=mode))) == expected
    assert asyncio.run(used_over_http(server, mode)) == expected


@pytest.mark.states("PV-83")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_the_older_handshakes_still_work_over_pipes_and_over_http(server: tuple[str, str], tmp_path: Path, version: str) -> None:
    greeting = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    greeted, listed = over_pipes(tmp_path, first, ready, ask)
    assert (greeted["result"]["protocolVersion"], [tool["name"] for tool in listed["result"]["tools"]]) == (version, TOOLS)

    address, token = server
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    with httpx.Client(headers=headers, timeout=60) as http:
        opened = http.post(address, json=first)
        own = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": version}
        assert http.post(address, json=ready, headers=own).status_code == 202
        replies = [_only_message(reply) for reply in (opened, http.post(address, json=ask, headers=own))]
    assert (replies[0]["result"]["protocolVersion"], [tool["name"] for tool in replies[1]["result"]["tools"]]) == (version, TOOLS)


def _only_message(reply: httpx.Response) -> Any:
    """The message in an answer, which may be a stream of one."""
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[0]) if lines else reply.json()
