"""A tool call that is written as text is recognised in any notation, and prose about a tool is not."""

import asyncio
from dataclasses import replace

import pytest
from every_case import every_case
from loops import ECHO, calls, loop_of, typed
from msgspec import Raw

from palimpsest.agent.turn import run_turn
from palimpsest.agent.written_calls import written_call
from palimpsest.core.events import ModelReplied
from palimpsest.wire.request import Tool

SCHEMAS = {
    "bash": b'{"type":"object","properties":{"command":{"type":"string"},"seconds":{"type":"number"}},"required":["command"]}',
    "read": b'{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}',
    "compact": b'{"type":"object","properties":{"focus":{"type":"string"}}}',
    "list": b'{"type":"object"}',
}
CALLS = [
    '{"name": "bash", "arguments": {"command": "ls"}}',
    'I look.\n```json\n{"tool": "bash", "parameters": {"command": "ls", "seconds": 3}}\n```',
    '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
    '[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}}]',
    '{"type": "function", "function": {"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}}',
    '{"bash": {"command": "ls"}}',
    '<function=bash>{"command": "ls"}</function>',
    '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}<|call|>',
    'Action: bash\nAction Input: {"command": "ls"}',
    '[TOOL_CALLS]bash{"command": "ls"}',
    '<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>bash\n```json\n{"command":"ls"}\n```<\uff5ctool\u2581call\u2581end\uff5c>',
    "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls -l</arg_value>\n</tool_call>",
    '```tool_code\nprint(default_api.bash(command="ls"))\n```',
    '{"tool_calls": [{"function": {"name": "bash", "arguments": {"command": "ls"}}}]}',
    '<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
    "Now:\n<bash>\n<command>ls</command>\n</bash>",
    'bash(command="ls -l")',
    '[bash(command="ls"), read(path="a.py")]',
]
EMPTY_CALLS = [
    '<tool_call>{"name": "list", "arguments": {}}</tool_call>',
    "<toolcall>list</toolcall>",
    "<function=list></function>",
    "<tools:invoke><list></tools:invoke>",
]
ANSWERS = [
    "",
    "Use `bash` to run a command.",
    'The call is {"name": "bash", "arguments": {"command": "ls"}}, and its result is a list.',
    '{"name": "bash", "version": "5.2"}',
    '{"name": "bash", "arguments": {"line": "ls"}}',
    '{"name": "zsh", "arguments": {"command": "ls"}}',
    '{"scripts": {"read": {"description": "x"}}}',
    "<p>read the <b>path</b></p> and go on",
    "print(command)",
    'The file that they read: {"path": "./dist"}',
    'I ran bash, and this is the entry of the server:\n{"command": "npx"}',
    'The server is in mcp.json:\n{"mcpServers": {"bash": {"command": "npx"}}}',
    '```json\n{"scripts": {"read": {"path": "x"}}}\n```',
    '<form class="read"><input name="path"><button>go</button></form>',
    "read(path)",
    'The class `Registry<ToolSpec>` keeps a list of entries:\n```json\n{"a": 1}\n```',
    'It is `void call(std::function<void> f)`; the list of settings:\n```json\n{"a": 1}\n```',
    '```jsx\n<Tooltip title="x">\n  <list>\n</Tooltip>\n```',
    "{" * 5_000 + "}" * 5_000,
    "[" * 5_000 + "]" * 5_000,
]


@every_case("text", CALLS)
def test_a_written_call_is_recognised_by_its_tool_and_parameters(text: str) -> None:
    found = written_call(text, SCHEMAS)
    assert found is not None
    assert found.tool == "bash"


def test_an_answer_that_mentions_tools_is_no_call() -> None:
    assert [found and found.tool for found in (written_call(text, SCHEMAS) for text in EMPTY_CALLS)] == ["list"] * len(EMPTY_CALLS)
    assert [text for text in ANSWERS if written_call(text, SCHEMAS)] == []


EXAMPLE = 'A call looks so:\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```'
BASH = replace(ECHO, declaration=Tool("bash", schema=Raw(SCHEMAS["bash"])))


@pytest.mark.parametrize(
    ("replies", "stop"),
    [
        ((EXAMPLE, "It was an example."), "done"),
        ((EXAMPLE, EXAMPLE), "written_call"),
        # A model that calls tools as it should does not write calls as text, but it may explain them.
        ((calls(("c1", "bash", "{}")), EXAMPLE), "done"),
        ((calls(("c1", "bash", "{}")), CALLS[0], CALLS[2]), "written_call"),
    ],
)
def test_an_example_of_a_call_is_an_answer_of_a_model_that_has_called_tools(replies: tuple[ModelReplied | str, ...], stop: str) -> None:
    loop = loop_of(*replies, tools=(BASH,))
    typed(loop.session, "go")
    assert asyncio.run(run_turn(loop)) == stop
