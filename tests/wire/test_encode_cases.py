"""One table of views through all three wires."""

import json
from typing import Any, NamedTuple

import pytest

from palimpsest.core.items import Content, Cover, Item, Kind, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import card
from palimpsest.wire.request import Params

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
SOME = card("openai-compatible/some")
PLAIN = Params(breakpoint_rule="none")
WIRES = (CLAUDE, GPT, SOME)


def item(place: str, kind: Kind, content: Content, mask: Cover | None = None) -> Item:
    return Item(place, kind, content, mask=mask)


def said(text: str) -> Text:
    return Text(text, "assistant")


class Case(NamedTuple):
    """A view, and the conversation it is on each wire."""

    name: str
    items: tuple[Item, ...]
    anthropic: list[Any]
    responses: list[Any]
    chat: list[Any]


def heard(*texts: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


GO = item("1.0", "user", Text("go"))
BASH = item("2.0", "call", ToolCall("c", "bash", '{"command": "ls"}'))
BASH_USE = {"type": "tool_use", "id": "c", "name": "bash", "input": {"command": "ls"}}
BASH_CALL = {"type": "function_call", "name": "bash", "arguments": '{"command": "ls"}', "call_id": "c"}
BASH_FUNCTION = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
A_GO = {"role": "user", "content": [{"type": "text", "text": "go"}]}
C_GO = {"role": "user", "content": "go"}
FRAMED = "<system-message>\nFrom the operator of this session, with the authority of the system prompt:\n\nmind the gap\n</system-message>"

CASES = [
    Case(
        "a question and an answer",
        (GO, item("2.0", "assistant", said("gone"))),
        [A_GO, {"role": "assistant", "content": [{"type": "text", "text": "gone"}]}],
        [heard("go"), {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "gone"}]}],
        [C_GO, {"role": "assistant", "content": "gone"}],
    ),
    Case(
        "parts of one event",
        (item("1.0", "user", Text("one")), item("1.1", "user", Text("two")), item("2.0", "user", Text("three"))),
        [{"role": "user", "content": [{"type": "text", "text": text} for text in ("one", "two", "three")]}],
        [heard("one", "two"), heard("three")],
        [{"role": "user", "content": [{"type": "text", "text": text} for text in ("one", "two", "three")]}],
    ),
    Case(
        "a call and its result",
        (GO, BASH, item("3.0", "result", ToolResult("c", (Text("a.py"),)))),
        [
            A_GO,
            {"role": "assistant", "content": [BASH_USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.py"}]},
        ],
        [heard("go"), BASH_CALL, {"type": "function_call_output", "call_id": "c", "output": "a.py"}],
        [
            C_GO,
            {"role": "assistant", "content": None, "tool_calls": [BASH_FUNCTION]},
            {"role": "tool", "tool_call_id": "c", "content": "a.py"},
        ],
    ),
    Case(
        "an error, several texts, and words of the user before the result",
        (GO, BASH, item("3.0", "steering", Text("hurry")), item("4.0", "result", ToolResult("c", (Text("no"), Text("way")), error=True))),
        [
            A_GO,
            {"role": "assistant", "content": [BASH_USE]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c",
                        "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "hurry"},
                ],
            },
        ],
        [
            heard("go"),
            BASH_CALL,
            heard("hurry"),
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "no"}, {"type": "input_text", "text": "way"}],
            },
        ],
        [
            C_GO,
            {"role": "assistant", "content": None, "tool_calls": [BASH_FUNCTION]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]},
            {"role": "user", "content": "hurry"},
        ],
    ),
    Case(
        "a masked result keeps its call and its error",
        (GO, BASH, item("3.0", "result", ToolResult("c", (Text("long"), Text("er")), error=True), Cover("[cleared]"))),
        [
            A_GO,
            {"role": "assistant", "content": [BASH_USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "[cleared]", "is_error": True}]},
        ],
        [heard("go"), BASH_CALL, {"type": "function_call_output", "call_id": "c", "output": "[cleared]"}],
        [
            C_GO,
            {"role": "assistant", "content": None, "tool_calls": [BASH_FUNCTION]},
            {"role": "tool", "tool_call_id": "c", "content": "[cleared]"},
        ],
    ),
    Case(
        "a masked call leaves a note in its arguments",
        (
            GO,
            item("2.0", "call", ToolCall("c", "write", '{"text": "long"}'), Cover("cut")),
            item("3.0", "result", ToolResult("c", (Text("ok"),))),
        ),
        [
            A_GO,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "write", "input": {"note": "cut"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]},
        ],
        [
            heard("go"),
            {"type": "function_call", "name": "write", "arguments": '{"note":"cut"}', "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
        ],
        [
            C_GO,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "write", "arguments": '{"note":"cut"}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
    ),
    Case(
        "hidden items leave nothing, masked texts keep their role",
        (GO, item("2.0", "assistant", said("long story"), Cover("[cut]")), item("3.0", "user", Text("secret"), Cover(""))),
        [A_GO, {"role": "assistant", "content": [{"type": "text", "text": "[cut]"}]}],
        [heard("go"), {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "[cut]"}]}],
        [C_GO, {"role": "assistant", "content": "[cut]"}],
    ),
    Case(
        "a masked free call is its text",
        (
            GO,
            item("2.0", "call", ToolCall("c", "apply_patch", "*** Begin", "free"), Cover("cut")),
            item("3.0", "result", ToolResult("c", (Text("ok"),), form="free")),
        ),
        [
            A_GO,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "apply_patch", "input": {"input": "cut"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]},
        ],
        [
            heard("go"),
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "cut"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        ],
        [
            C_GO,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "apply_patch", "arguments": '{"input":"cut"}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
    ),
    Case(
        "a developer speaks in the middle",
        (GO, item("2.0", "context", Text("mind the gap", "developer"))),
        [{"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": FRAMED}]}],
        [heard("go"), {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "mind the gap"}]}],
        [{"role": "user", "content": "go"}, {"role": "system", "content": "mind the gap"}],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_view_is_the_same_conversation_on_every_wire(case: Case) -> None:
    view = View(items=case.items)
    assert json.loads(encode(view, CLAUDE, (), PLAIN).body)["messages"] == case.anthropic
    assert json.loads(encode(view, GPT, (), PLAIN).body)["input"] == case.responses
    assert json.loads(encode(view, SOME, (), PLAIN).body)["messages"] == case.chat
