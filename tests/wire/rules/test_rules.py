"""The rules of the providers: one invalid request for each, and its violation."""

import json
from typing import Any

import pytest
from every_case import every_case

from palimpsest.wire.models import WireName
from palimpsest.wire.wires import check_request

Body = dict[str, Any]


def user(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks) or [text("hi")]}


def said(*blocks: Body) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> Body:
    return {"type": "text", "text": words}


def use(call_id: str = "c", **more: object) -> Body:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}, **more}


def result(call_id: str = "c", **more: object) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, **more}


def messages(*turns: Body, **more: object) -> Body:
    return {"model": "m", "max_tokens": 2_000, "messages": list(turns), **more}


THOUGHT: Body = {"type": "thinking", "thinking": "hm", "signature": "s"}
SYSTEM: Body = {"role": "system", "content": "x"}
BUDGET = {"type": "enabled", "budget_tokens": 1_500}
MARK = {"cache_control": {"type": "ephemeral"}}
BASH = {"name": "bash", "input_schema": {"type": "object"}}

ANTHROPIC: list[tuple[Body, tuple[str, ...]]] = [
    (messages(user(), said(THOUGHT, text("a"), use()), user(result(), text("b"))), ()),
    ({"max_tokens": 1, "messages": [user()]}, ("model: missing",)),
    ({"model": "m", "messages": [user()]}, ("max_tokens: missing",)),
    (messages(), ("messages: empty",)),
    (messages(said(text("a"))), ("messages[0]: the first message is not the user's",)),
    (
        messages(SYSTEM),
        ("messages[0]: the first message is not the user's", "messages[0]: a system message that does not follow one of the user"),
    ),
    (messages(user(), SYSTEM), ()),
    (messages(user(), SYSTEM, said(text("a")), user()), ()),
    (messages(user(), {"role": "tool", "content": "x"}), ("messages[1]: unknown role 'tool'",)),
    (messages(user(), said(text("a")), SYSTEM), ("messages[2]: a system message that does not follow one of the user",)),
    (messages(user(), SYSTEM, {"role": "system", "content": "y"}), ("messages[2]: two system messages in a row",)),
    (messages(user(), SYSTEM, user()), ("messages[2]: a user message after a system message",)),
    (messages(user(), {"role": "system", "content": [{"type": "image"}]}), ("messages[1].content[0]: a image block in a system message",)),
    (messages(user(), user()), ("messages[1]: two user messages in a row",)),
    (messages({"role": "user", "content": []}), ("messages[0]: no content",)),
    (messages({"role": "user", "content": ""}), ("messages[0]: no content",)),
    (messages(user(text(" "))), ("messages[0].content[0]: a text is empty",)),
    (messages(user({"type": "hologram"})), ("messages[0].content[0]: unknown block type 'hologram'",)),
    (messages(user(THOUGHT, text("x"))), ("messages[0].content[0]: a thinking block in a user message",)),
    (messages(user(), said({"type": "image"})), ("messages[1].content[0]: a image block in an assistant message",)),
    (messages(user(), said({"type": "thinking", "thinking": "hm"}, text("x"))), ("messages[1].content[0]: thinking without a signature",)),
    (messages(user(), said({"type": "redacted_thinking"}, text("x"))), ("messages[1].content[0]: redacted thinking without its data",)),
    (messages(user(), said({**THOUGHT, **MARK}, text("x"))), ("messages[1].content[0]: a cache breakpoint on a thinking block",)),
    (messages(user(), said(text("x"), THOUGHT, text("y"))), ("messages[1]: thinking is not first in its message",)),
    (messages(user(), said(THOUGHT)), ("messages[1]: a message ends with thinking",)),
    (messages(user(), said(text("x "))), ("messages[1]: the prefilled reply ends in white space",)),
    (
        messages(user(), said(use("a.b")), user(result("a.b"))),
        ("messages[1].content[0]: the call id 'a.b' has letters that are not allowed",),
    ),
    (
        messages(user(), said(use(name="a b")), user(result())),
        ("messages[1].content[0]: the tool name 'a b' has letters that are not allowed",),
    ),
    (messages(user(), said(use(input="{}")), user(result())), ("messages[1].content[0]: the input of a call is not an object",)),
    (messages(user(), said(use()), user(result(content=[text("")]))), ("messages[2].content[0]: a text of a result is empty",)),
    (messages(user(), said(use()), user()), ("messages[2]: the call 'c' has no result in the message after it",)),
    (messages(user(), said(use())), ("messages: the call 'c' at the end has no result",)),
    (messages(user(result())), ("messages[0]: the result of 'c' has no call in the message before it",)),
    (messages(user(), said(use()), user(result(), result())), ("messages[2]: a call has two results",)),
    (messages(user(), said(use()), user(text("x"), result())), ("messages[2]: results do not come first",)),
    (
        messages(user(), said(use()), user(result()), said(use()), user(result())),
        ("messages[3]: the call id 'c' is taken twice",),
    ),
    (
        messages(user(*({**text("x"), **MARK} for _ in range(4))), system=[{**text("s"), **MARK}]),
        ("cache_control: 5 breakpoints, 4 are allowed",),
    ),
    (messages(user(), system=[text(" ")]), ("system[0]: a text is empty",)),
    (
        messages(user(), thinking={"type": "enabled", "budget_tokens": 2_000}),
        ("thinking: a budget of 2000 is not between 1024 and max_tokens (2000)",),
    ),
    (messages(user(), thinking=BUDGET, temperature=0.5), ("temperature: not allowed while thinking",)),
    (
        messages(user(), tools=[BASH], tool_choice={"type": "any"}, thinking=BUDGET),
        ("tool_choice: a tool cannot be forced while thinking has a budget",),
    ),
    (
        messages(user(), tools=[BASH], tool_choice={"type": "tool", "name": "bash"}, thinking=BUDGET),
        ("tool_choice: a tool cannot be forced while thinking has a budget",),
    ),
    (messages(user(), tools=[BASH], tool_choice={"type": "auto"}, thinking=BUDGET), ()),
    (messages(user(), said(THOUGHT, text("a")), thinking=BUDGET), ("thinking: a budget does not allow a prefilled reply",)),
    (messages(user(), said(use()), user(result()), thinking=BUDGET), ("thinking: the open turn did not begin with thinking",)),
    (
        messages(
            user(),
            said(THOUGHT, use("a")),
            user(result("a")),
            said(use("b")),
            user(result("b")),
            thinking=BUDGET,
        ),
        (),
    ),
    (messages(user(), tools=[BASH, BASH]), ("tools: the name 'bash' is taken twice",)),
    (messages(user(), tools=[{"name": "a.b"}]), ("tools: the name 'a.b' has letters that are not allowed",)),
    (messages(user(), tools=[{"name": "x" * 128}]), ()),
    (messages(user(), tools=[{"name": "x" * 129}]), (f"tools: the name '{'x' * 129}' is longer than 128 letters",)),
    (messages(user(), tools=[BASH], tool_choice={"type": "tool", "name": "grep"}), ("tool_choice: no tool is named 'grep'",)),
]


def responses(*items: Body, **more: object) -> Body:
    return {"model": "m", "store": False, "input": list(items), **more}


def call(**more: object) -> Body:
    return {"type": "function_call", "name": "bash", "arguments": "{}", "call_id": "c", **more}


def output(**more: object) -> Body:
    return {"type": "function_call_output", "call_id": "c", "output": "x", **more}


def message(role: str, *kinds: str) -> Body:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": "x"} for kind in kinds]}


RESPONSES: list[tuple[Body, tuple[str, ...]]] = [
    (responses(message("user", "input_text"), call(), message("assistant", "output_text"), output()), ()),
    (responses({"type": "function_call_output", "output": "from outside"}), ()),
    ({"model": "m"}, ("input: missing",)),
    ({**responses(), "tools": [{"type": "function", "name": "x" * 64}]}, ()),
    (
        {**responses(), "tools": [{"type": "function", "name": "x" * 65}]},
        (f"tools: the name '{'x' * 65}' is longer than 64 letters",),
    ),
    (
        responses({"type": "local_shell_call", "call_id": "c", "action": {"note": "cut"}}, output()),
        ("input[0]: the action of a shell call is not a command",),
    ),
    (responses({"type": "hologram"}), ("input[0]: unknown item type 'hologram'",)),
    (responses(message("robot", "input_text")), ("input[0]: unknown role 'robot'",)),
    (responses(message("user")), ("input[0]: a message without content",)),
    (responses(message("user", "hologram")), ("input[0]: unknown part type 'hologram'",)),
    (responses(message("assistant", "input_text")), ("input[0]: a part input_text in an assistant message",)),
    (responses(message("user", "output_text")), ("input[0]: a part output_text in a user message",)),
    (responses({"type": "reasoning", "summary": []}), ("input[0]: reasoning without encrypted_content, and nothing is stored",)),
    (responses({"type": "reasoning", "encrypted_content": "x"}), ("input[0]: reasoning without a summary list",)),
    (responses(call(arguments="{"), output()), ("input[0]: the arguments of a call are not the text of a JSON object",)),
    (responses(call(arguments={}), output()), ("input[0]: the arguments of a call are not the text of a JSON object",)),
    (
        responses(
            {"type": "custom_tool_call", "name": "p", "call_id": "c", "input": {}},
            {"type": "custom_tool_call_output", "call_id": "c", "output": ""},
        ),
        ("input[0]: the input of a custom call is not text",),
    ),
    (responses(call(name="a.b"), output()), ("input[0]: the tool name 'a.b' has letters that are not allowed",)),
    (responses(call(call_id="")), ("input[0]: a call without call_id",)),
    (responses({"type": "tool_search_call", "arguments": "{}"}), ("input[0]: the arguments of a search are not an object",)),
    (responses({"type": "local_shell_call", "action": "ls"}), ("input[0]: the action of a shell call is not a command",)),
    (responses(call(), output(output=None)), ("input[1]: an output that is neither text nor parts",)),
    (responses(call()), ("input[0]: the call 'c' has no output",)),
    (responses(output()), ("input[0]: the output of 'c' has no open call of its kind before it",)),
    (responses(call(), output(), output()), ("input[2]: the output of 'c' has no open call of its kind before it",)),
    (
        responses({"type": "custom_tool_call", "name": "p", "call_id": "c", "input": ""}, output()),
        ("input[1]: the output of 'c' has no open call of its kind before it", "input[0]: the call 'c' has no output"),
    ),
    (responses(call(), output(), call(), output()), ("input[2]: the call id 'c' is taken twice",)),
    (responses(tool_choice={"type": "function", "name": "grep"}), ("tool_choice: no tool is named 'grep'",)),
]


def chat(*turns: Body, **more: object) -> Body:
    return {"model": "m", "messages": list(turns), **more}


def calls(*names: str, content: object = None, arguments: str = "{}", tool: str = "bash") -> Body:
    listed = [{"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}} for name in names]
    return {"role": "assistant", "content": content, "tool_calls": listed}


def tool(call_id: str, content: object = "x") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


HI: Body = {"role": "user", "content": "hi"}

CHAT: list[tuple[Body, tuple[str, ...]]] = [
    (chat(HI, calls("a", "b"), tool("b"), tool("a"), HI), ()),
    (chat(), ("messages: empty",)),
    (chat(HI, tool_choice="none"), ("tool_choice: there are no tools to choose from",)),
    (chat(HI, stream=False, stream_options={}), ("stream_options: only for a stream",)),
    (chat({"role": "robot", "content": "x"}), ("messages[0]: unknown role 'robot'",)),
    (chat({"role": "user", "content": ""}), ("messages[0]: a message without content",)),
    (chat({"role": "assistant", "content": None}), ("messages[0]: a message without content",)),
    (chat(calls("a"), tool("a", None)), ("messages[1]: a tool message without content",)),
    (chat(calls("a", content=""), tool("a")), ("messages[0]: empty text beside calls, where null is meant",)),
    (chat({"role": "user", "content": [{"type": "hologram"}]}), ("messages[0]: unknown part type 'hologram'",)),
    (
        chat(calls("a"), tool("a", [{"type": "image_url", "image_url": {"url": "u"}}])),
        ("messages[1]: a part image_url in a tool message",),
    ),
    (chat({**HI, "tool_calls": []}), ("messages[0]: tool_calls without calls, or not the model's",)),
    (chat(calls(""), tool("")), ("messages[0]: a call without id",)),
    (chat(calls("a", tool="a.b"), tool("a")), ("messages[0]: the tool name 'a.b' has letters that are not allowed",)),
    (chat(calls("a", arguments="[]"), tool("a")), ("messages[0]: the arguments of a call are not the text of a JSON object",)),
    (chat(tool("a")), ("messages[0]: the result of 'a' has no open call right before it",)),
    (chat(calls("a"), tool("a"), tool("a")), ("messages[2]: the result of 'a' has no open call right before it",)),
    (
        chat(calls("a"), HI, tool("a")),
        ("messages[1]: the call 'a' has no result before this message", "messages[2]: the result of 'a' has no open call right before it"),
    ),
    (chat(calls("a")), ("messages: the call 'a' at the end has no result",)),
    (chat(calls("a"), tool("a"), calls("a"), tool("a")), ("messages[2]: the call id 'a' is taken twice",)),
    (
        chat(
            HI, tools=[{"type": "function", "function": {"name": "bash"}}], tool_choice={"type": "function", "function": {"name": "grep"}}
        ),
        ("tool_choice: no tool is named 'grep'",),
    ),
]


@every_case(
    ("wire", "body", "expected"),
    [("anthropic", *case) for case in ANTHROPIC] + [("responses", *case) for case in RESPONSES] + [("chat", *case) for case in CHAT],
)
def test_a_broken_rule_is_named_and_a_kept_one_is_not(wire: WireName, body: Body, expected: tuple[str, ...]) -> None:
    assert check_request(wire, json.dumps(body).encode()) == expected


@pytest.mark.parametrize("wire", ["anthropic", "responses", "chat"])
def test_a_body_that_is_no_json_object_breaks_the_first_rule(wire: WireName) -> None:
    assert check_request(wire, b"[1]") == ("body: expected a JSON object and got '[1]'",)
