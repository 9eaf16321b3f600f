"""A tool call that is written as text is recognised in any notation, and prose about a tool is not."""

import pytest

from palimpsest.engine.loop.written_calls import written_call

SCHEMAS = {
    "bash": b'{"type":"object","properties":{"command":{"type":"string"},"seconds":{"type":"number"}},"required":["command"]}',
    "read": b'{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}',
    "compact": b'{"type":"object","properties":{"focus":{"type":"string"}}}',
}
CALLS = [
    '{"name": "bash", "arguments": {"command": "ls"}}',
    'I look.\n```json\n{"tool": "bash", "parameters": {"command": "ls", "seconds": 3}}\n```',
    '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
    '[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}}]',
    '{"type": "function", "function": {"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}}',
    '{"bash": {"command": "ls"}}',
    '<function=bash>{"command": "ls"}</function>',
    '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}<|call|>'.replace("functions.bash", "bash"),
    '<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
    "Now:\n<bash>\n<command>ls</command>\n</bash>",
    'bash(command="ls -l")',
    '[bash(command="ls"), read(path="a.py")]',
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
    "read(path)",
    "{" * 5_000 + "}" * 5_000,
    "[" * 5_000 + "]" * 5_000,
]


@pytest.mark.parametrize("text", CALLS)
def test_a_written_call_is_recognised_by_its_tool_and_parameters(text: str) -> None:
    assert written_call(text, SCHEMAS) == "bash"


def test_an_answer_that_mentions_tools_is_no_call() -> None:
    assert [text for text in ANSWERS if written_call(text, SCHEMAS)] == []
