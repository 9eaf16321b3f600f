"""How tools of MCP servers are named and declared, and what becomes of results, resources and prompts."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_server
import mcp_types as types
import pytest

from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.mcp.connection import MOST_IMAGES, ServerConnection, StdioServer, blocks_output
from palimpsest.coding.mcp.tools import (
    ToolChoice,
    declared_schema,
    expanded_prompt,
    prompt_commands,
    resource_tools,
    server_tools,
    tool_name,
)
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Image, Text


@asynccontextmanager
async def connected(kind: str, folder: Path) -> AsyncIterator[ServerConnection]:
    arguments = tuple(mcp_server.command(kind)["args"])
    server = ServerConnection(kind, StdioServer(sys.executable, arguments, dict(os.environ), folder))
    server.start()
    try:
        assert await server.started(), server.problem
        yield server
    finally:
        await server.close()


def workspace(folder: Path) -> Workspace:
    return Workspace(folder, keep=lambda data: f"blob of {len(data)}")


def test_odd_names_are_mended_and_stay_unique_and_odd_schemas_cost_their_own_tool(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("odd", tmp_path) as server:
            tools, problems = server_tools(server, ToolChoice(), taken=("mcp__odd__hidden",))
            names = [tool.name for tool in tools]
            assert names == [
                "mcp__odd__read_file",
                "mcp__odd__read_file_c9f8123b",
                "mcp__odd__tool_7aa23ce5",
                "mcp__odd__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_09ecb6eb",
                "mcp__odd__wordy",
                "mcp__odd__hidden_e564b408",
                "mcp__odd__either",
            ]
            assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
            called = [(await tool.run("{}", workspace(tmp_path))).text for tool in tools[:3]]
            assert called == ["read file", "read_file", "читать"]
            by_name = {tool.name: tool.declaration for tool in tools}
            assert len(by_name["mcp__odd__wordy"].description) == 2_000
            assert by_name["mcp__odd__hidden_e564b408"].description == "abc"
            assert json.loads(bytes(by_name["mcp__odd__either"].schema)) == {"type": "object", "properties": {}}
            assert [problem.partition(" is left out: ")[::2] for problem in problems] == [
                (
                    "the tool wrong of the MCP server odd",
                    "its schema is no valid JSON schema ('text' is not valid under any of the given schemas)",
                ),
                ("the tool spaced of the MCP server odd", "the name of its argument 'a b' is one that providers refuse"),
                ("the tool far of the MCP server odd", "its schema refers to another document"),
                ("the tool large of the MCP server odd", "its schema has 30,050 bytes; at most 20,000 are declared"),
            ]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "its arguments are no object"),
        ({"type": "object", "properties": []}, r"no valid JSON schema"),
        ({"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}, "no valid JSON schema"),
        ({"type": "object", "properties": {"a": {"properties": {"x y": {}}}}}, "'x y' is one that providers refuse"),
        ({"type": "object", "$defs": {"a": {"$ref": "other.json#/b"}}}, "refers to another document"),
    ],
)
def test_a_schema_that_would_end_the_session_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        declared_schema(schema)


def test_what_looks_like_a_property_in_data_is_no_property() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "default": {"properties": {"x y": 1}, "$ref": "http://x"}}}}
    assert json.loads(declared_schema(schema)) == schema


def test_a_server_that_is_believed_has_tools_that_read_and_entries_choose_tools(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path) as server:
            believed, _ = server_tools(server, ToolChoice(only=frozenset({"add", "pair"}), reads=True))
            others, _ = server_tools(server, ToolChoice(without=frozenset({"pair"})))
            assert [(tool.name, tool.kind, tool.parallel) for tool in believed] == [
                ("mcp__normal__add", "reads", True),
                ("mcp__normal__pair", "runs", False),
            ]
            assert {tool.kind for tool in others} == {"runs"}
            assert "mcp__normal__pair" not in {tool.name for tool in others}
            results = {
                tool.name.removeprefix("mcp__normal__"): await tool.run('{"a": 4}', workspace(tmp_path))
                for tool in server_tools(server, ToolChoice(only=frozenset({"pair", "picture", "mixed"})))[0]
            }
            assert json.loads(results["pair"].text) == {"one": 4, "two": 4}
            assert results["picture"] == ToolOutput("", (Image("image/png", f"blob of {len(mcp_server.png())}"),))
            assert results["mixed"].text.splitlines() == [
                "here:",
                "[resource notes at note://one: The first note.]",
                "[audio audio/wav, which cannot be shown]",
                "[resource note://two]",
                "the second note",
                "[an image that cannot be shown: it is no PNG, JPEG, GIF or WebP image, or a damaged one]",
            ]
            wrong = await believed[0].run("[1]", workspace(tmp_path))
            assert wrong.error

    asyncio.run(work())


def test_resources_are_listed_and_read_and_prompts_become_the_message_of_the_user(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected("normal", tmp_path) as server:
            listing, reading = resource_tools(lambda: [server], "runs")
            assert (listing.kind, reading.kind) == ("reports", "runs")
            assert (await listing.run("{}", workspace(tmp_path))).text.splitlines() == [
                "normal note://one (text/plain) note: The first note.",
                "normal note://picture (image/png) drawn_note",
                "normal note://{name}/text (text/plain) named_note",
            ]
            read = await reading.run('{"server": "normal", "uri": "note://one"}', workspace(tmp_path))
            assert read == ToolOutput("[resource note://one]\nthe first note")
            drawn = await reading.run('{"server": "normal", "uri": "note://picture"}', workspace(tmp_path))
            assert drawn.parts == (Image("image/png", f"blob of {len(mcp_server.png())}"),)
            missing = await reading.run('{"server": "other", "uri": "note://one"}', workspace(tmp_path))
            assert missing == ToolOutput("there is no MCP server 'other'; the servers are: normal", error=True)

            assert [name for name, _ in prompt_commands(server)] == ["/mcp__normal__review"]
            lead = Text("The prompt review of the MCP server normal, which I inserted:", attached=True)
            for command, text in (
                ("/mcp__normal__review a.py", "Review a.py for bugs."),
                ('/mcp__normal__review "my file.py" slow loops', "Review my file.py for slow loops."),
                ("/mcp__normal__review it's fine", "Review it's for fine."),
            ):
                assert await expanded_prompt(command, [server], workspace(tmp_path)) == (lead, Text(text, attached=True))
            with pytest.raises(BadInput, match="needs the arguments file, focus"):
                await expanded_prompt("/mcp__normal__review", [server], workspace(tmp_path))
            with pytest.raises(BadInput, match="the prompts of the connected MCP servers are: /mcp__normal__review"):
                await expanded_prompt("/mcp__normal__write", [server], workspace(tmp_path))

    asyncio.run(work())


def test_a_flood_of_parts_is_bounded() -> None:
    picture = types.ImageContent(data="", mime_type="image/png")
    flood = blocks_output([types.TextContent(text="a")] * 5_000, lambda _: "")
    assert flood.text.splitlines()[-1] == "[4,000 more parts left out]"
    assert blocks_output([picture], lambda _: "").parts == ()
    assert MOST_IMAGES == 10


def test_names_depend_on_the_tool_alone_unless_they_are_taken() -> None:
    assert tool_name("github", "create_issue") == "mcp__github__create_issue"
    assert tool_name("github", "create issue", {"mcp__github__create_issue"}) == tool_name(
        "github", "create issue", {"mcp__github__create_issue"}
    )
    assert tool_name("github", "create issue", {"mcp__github__create_issue"}) != "mcp__github__create_issue"
