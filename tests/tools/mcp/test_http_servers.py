"""Connections to MCP servers over HTTP on the loopback: streamable, and the older one with server-sent events."""

import asyncio
from pathlib import Path

import mcp_server
import pytest
from loopback import Answer, answering

from palimpsest.agent.tool import ToolError, ToolOutput
from palimpsest.coding.mcp.connection import LONGEST_RESULT, HttpServer, ServerConnection, TimeLimits, call_output

LIMITS = TimeLimits(30.0, 30.0)


async def output(server: ServerConnection, tool: str, **arguments: object) -> ToolOutput:
    return call_output(await server.call_tool(tool, arguments), lambda data: f"blob of {len(data)}")


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_at_an_address_works_and_one_that_dies_fails_its_calls_and_says_so(transport: str, tmp_path: Path) -> None:
    async def work(url: str) -> None:
        server = ServerConnection("web", HttpServer(url, {"X-Team": "a"}, sse=transport == "sse"), LIMITS)
        server.start()
        assert await server.started(), server.problem
        assert len(server.catalogue.tools) == 12
        assert await output(server, "add", a=2, b=3) == ToolOutput("5")
        if transport == "http":
            assert len((await output(server, "big", size=10_000_000)).text.encode()) < LONGEST_RESULT + 100
        for tool in ("die", "add"):
            with pytest.raises(ToolError, match=r"the MCP server web (went away during this call|is not available)"):
                await server.call_tool(tool, {})
        await server.close()

    with mcp_server.serving("normal", transport, tmp_path) as (url, _):
        asyncio.run(work(url))


def test_a_server_that_is_gone_fails_the_call_and_the_next_one_says_why_it_cannot_be_reached(tmp_path: Path) -> None:
    async def work() -> None:
        with mcp_server.serving("normal", "http", tmp_path) as (url, _):
            server = ServerConnection("web", HttpServer(url), LIMITS)
            server.start()
            assert await server.started(), server.problem
        with pytest.raises(ToolError):
            await server.call_tool("add", {"a": 1, "b": 1})
        with pytest.raises(ToolError, match="is not available: All connection attempts failed"):
            await server.call_tool("add", {"a": 1, "b": 1})
        await server.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "answer", [Answer(401, '{"error": "unauthorized"}'), Answer(500, "oops"), Answer(200, "<html></html>"), Answer(200, "[]")]
)
def test_an_address_without_a_server_fails_with_a_reason_and_within_its_time(answer: Answer) -> None:
    async def work(url: str) -> ServerConnection:
        server = ServerConnection("web", HttpServer(url), TimeLimits(20.0, 20.0))
        server.start()
        await server.started()
        await server.close()
        return server

    with answering(answer) as url:
        server = asyncio.run(work(url))
    assert server.problem
