"""Connections to MCP servers that are processes: real ones, that answer, hang, die, print what is no message, or ask for too much."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bare_mcp_server
import mcp_server
import pytest

from palimpsest.agent.tool import ToolError, ToolOutput
from palimpsest.coding.mcp.connection import LONGEST_RESULT, ServerConnection, StdioServer, TimeLimits, call_output

PATIENT = TimeLimits(60.0, 60.0)


def connection(kind: str, folder: Path, limits: TimeLimits = PATIENT, **variables: str) -> ServerConnection:
    arguments = tuple(mcp_server.command(kind)["args"])
    return ServerConnection(kind, StdioServer(sys.executable, arguments, {**os.environ, **variables}, folder), limits)


@asynccontextmanager
async def connected(kind: str, folder: Path, limits: TimeLimits = PATIENT, **variables: str) -> AsyncIterator[ServerConnection]:
    found = connection(kind, folder, limits, **variables)
    found.start()
    try:
        assert await found.started(), found.problem
        yield found
    finally:
        await found.close()


async def output(server: ServerConnection, tool: str, **arguments: Any) -> ToolOutput:
    return call_output(await server.call_tool(tool, arguments), lambda data: f"blob of {len(data)}")


async def refusal(work: Awaitable[object]) -> str:
    with pytest.raises(ToolError) as caught:
        await work
    return caught.value.message


@asynccontextmanager
async def pipe(path: Path) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Yield a function that waits for the next line of a pipe, which is empty once no process holds the pipe any more."""
    os.mkfifo(path)
    # Open for writing too, so that opening does not wait; the writer of ours goes as soon as the first line is there.
    keeper = os.open(path, os.O_RDWR)
    with path.open(encoding="utf-8") as file:

        async def line() -> str:
            nonlocal keeper
            async with asyncio.timeout(120):
                found = await asyncio.to_thread(file.readline)
            if keeper >= 0:
                os.close(keeper)
                keeper = -1
            return found

        yield line


def test_tools_resources_prompts_and_instructions_are_listed_and_work(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path, PAL_WORD="given") as server:
            catalogue = server.catalogue
            assert [tool.name for tool in catalogue.tools][:4] == ["add", "pair", "picture", "mixed"]
            assert [resource.uri for resource in catalogue.resources] == ["note://one", "note://picture"]
            assert [template.uri_template for template in catalogue.templates] == ["note://{name}/text"]
            assert [prompt.name for prompt in catalogue.prompts] == ["review"]
            assert catalogue.instructions == "Use add for sums."
            assert await output(server, "add", a=2, b=3) == ToolOutput("5")
            assert await output(server, "environment", name="PAL_WORD") == ToolOutput(f"given in {tmp_path.name}")
            failed = await output(server, "fail")
            assert (failed.error, failed.text) == (True, "Error executing tool fail")
            assert (await output(server, "no_such_tool")).error
            read = await server.read_resource("note://seven/text")
            assert [getattr(each, "text", "") for each in read.contents] == ["the note seven"]
            assert "there is no" not in await refusal(server.read_resource("note://nothing"))
        assert server.state == "closed"
        assert await refusal(server.call_tool("add", {})) == "the MCP server normal is not available: closed"

    asyncio.run(work())


def test_a_result_of_ten_megabytes_is_bounded_and_the_server_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path) as server:
            big = await output(server, "big", size=10_000_000)
            assert big.text == f"{'x' * LONGEST_RESULT}\n[9,600,000 bytes left out; ask the server for less at a time]"
            assert await output(server, "add", a=1, b=1) == ToolOutput("2")

    asyncio.run(work())


def test_a_server_that_ends_in_a_call_fails_it_and_is_started_again_by_the_next_call_but_not_for_ever(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path) as server:
            lost = "the MCP server normal went away during this call, whose outcome is unknown"
            why = "it ended with exit code 7 | the server is about to end"
            assert await refusal(server.call_tool("die", {})) == f"{lost} ({why})"
            assert await output(server, "add", a=1, b=1) == ToolOutput("2")
            for _ in range(3):
                assert await refusal(server.call_tool("die", {})) == f"{lost} ({why})"
            assert await refusal(server.call_tool("add", {})) == (f"the MCP server normal ended too often and is not started again: {why}")

    asyncio.run(work())


def test_a_call_that_takes_too_long_fails_and_one_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    async def work() -> None:
        async with connected("normal", tmp_path, TimeLimits(60.0, 1.0)) as server, pipe(first) as line:
            assert await refusal(server.call_tool("slow", {"file": str(first)})) == "the MCP server normal gave no answer within 1 s"
            assert [await line(), await line()] == ["began\n", "cancelled\n"]
        async with connected("normal", tmp_path) as server, pipe(second) as line:
            call = asyncio.create_task(server.call_tool("slow", {"file": str(second)}))
            assert await line() == "began\n"
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await line() == "cancelled\n"
            assert await output(server, "add", a=1, b=1) == ToolOutput("2")

    asyncio.run(work())


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("hang", "it was not ready within 2 s"),
        ("exit", "it ended with exit code 1 | cannot find its own settings"),
        ("endless", "it sent a message of more than 32 MiB"),
    ],
)
def test_a_server_that_cannot_be_started_says_why_and_fails_its_calls(kind: str, problem: str, tmp_path: Path) -> None:
    async def work() -> None:
        server = connection(kind, tmp_path, TimeLimits(2.0 if kind == "hang" else 60.0, 60.0))
        server.start()
        assert not await server.started()
        assert (server.state, server.problem) == ("failed", problem)
        assert await refusal(server.call_tool("add", {})) == f"the MCP server {kind} is not available: {problem}"
        await server.close()

    asyncio.run(work())


def test_a_program_or_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async def work() -> list[str]:
        found = []
        for address in (StdioServer("no-such-program", (), {}, tmp_path), StdioServer(sys.executable, (), {}, tmp_path / "gone")):
            server = ServerConnection("x", address)
            server.start()
            await server.started()
            found.append(server.problem)
        return found

    assert asyncio.run(work()) == ["there is no program 'no-such-program'", f"there is no folder '{tmp_path / 'gone'}'"]


def test_lines_that_are_no_messages_are_ignored_and_nothing_reaches_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with connected("garbage", tmp_path) as server:
            assert await output(server, "add", a=1, b=1) == ToolOutput("2")

    asyncio.run(work())
    assert capfd.readouterr() == ("", "")


def test_what_a_server_asks_of_its_client_is_refused(tmp_path: Path) -> None:
    async def work() -> str:
        async with connected("old", tmp_path) as server:
            return (await output(server, "ask")).text

    assert asyncio.run(work()).splitlines() == [
        "sampling/createMessage: {'code': -32600, 'message': 'Sampling not supported'}",
        "elicitation/create: {'code': -32601, 'message': 'Method not found', 'data': 'elicitation/create'}",
        "roots/list: {'code': -32600, 'message': 'List roots not supported'}",
    ]


def test_a_changed_list_of_tools_is_listed_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path) as server:
            assert await output(server, "grow") == ToolOutput("there is one more tool")
            async with asyncio.timeout(120):
                while server.catalogue.tools[-1].name != "grown":
                    await output(server, "add", a=1, b=1)
            assert await output(server, "grown") == ToolOutput("grown")

    asyncio.run(work())


def test_closing_ends_the_server_and_what_it_started(tmp_path: Path) -> None:
    async def work() -> None:
        async with pipe(tmp_path / "family") as line:
            async with connected("normal", tmp_path) as server:
                calling = asyncio.create_task(output(server, "family", file=str(tmp_path / "family")))
                assert await line() == "began\n"
                await calling
            assert await line() == ""

    asyncio.run(work())


def test_closing_ends_a_server_that_hangs_at_its_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with pipe(tmp_path / "hanging") as line:
            words = tuple(mcp_server.command("hang", str(tmp_path / "hanging"))["args"])
            server = ServerConnection("hang", StdioServer(sys.executable, words, dict(os.environ), tmp_path), PATIENT)
            server.start()
            assert await line() == "began\n"
            await server.close()
            assert (server.state, await line()) == ("closed", "")
        never_run = connection("hang", tmp_path)
        never_run.start()
        await never_run.close()
        assert never_run.state == "closed"

    asyncio.run(work())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_does_not_outlive_a_client_that_is_killed(tmp_path: Path) -> None:
    # The server does not read its standard input while it waits, so nothing but the kernel ends it.
    program = (
        "import asyncio, os, sys\n"
        "from palimpsest.coding.mcp.connection import ServerConnection\n"
        "from palimpsest.coding.mcp.connection import StdioServer\n"
        "async def work():\n"
        "    server = ServerConnection('x', StdioServer(sys.executable, (sys.argv[1], 'hang', sys.argv[2]), dict(os.environ)))\n"
        "    server.start(); await server.started()\n"
        "asyncio.run(work())\n"
    )

    async def work() -> None:
        async with pipe(tmp_path / "held") as line:
            client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, bare_mcp_server.__file__, str(tmp_path / "held"))
            assert await line() == "began\n"
            client.send_signal(signal.SIGKILL)
            await client.wait()
            assert await line() == ""

    asyncio.run(work())
