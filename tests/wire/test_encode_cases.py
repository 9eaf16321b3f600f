"""One table of views through all three wires, and the laws that every request keeps."""

import json
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from every_case import every_case
from msgspec import Raw

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Content, Cover, Image, Item, Kind, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import Encoder, encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params, Tool

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


def calling(tool: str, arguments: str) -> dict[str, object]:
    function = {"name": tool, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


A_BASH = {"role": "assistant", "content": [BASH_USE]}
C_BASH = calling("bash", '{"command": "ls"}')
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
            A_BASH,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.py"}]},
        ],
        [heard("go"), BASH_CALL, {"type": "function_call_output", "call_id": "c", "output": "a.py"}],
        [
            C_GO,
            C_BASH,
            {"role": "tool", "tool_call_id": "c", "content": "a.py"},
        ],
    ),
    Case(
        "an error, several texts, and words of the user before the result",
        (GO, BASH, item("3.0", "steering", Text("hurry")), item("4.0", "result", ToolResult("c", (Text("no"), Text("way")), error=True))),
        [
            A_GO,
            A_BASH,
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
            C_BASH,
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]},
            {"role": "user", "content": "hurry"},
        ],
    ),
    Case(
        "a masked result keeps its call and its error",
        (GO, BASH, item("3.0", "result", ToolResult("c", (Text("long"), Text("er")), error=True), Cover("[cleared]"))),
        [
            A_GO,
            A_BASH,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "[cleared]", "is_error": True}]},
        ],
        [heard("go"), BASH_CALL, {"type": "function_call_output", "call_id": "c", "output": "[cleared]"}],
        [
            C_GO,
            C_BASH,
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
            calling("write", '{"note":"cut"}'),
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
            calling("apply_patch", '{"input":"cut"}'),
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


@every_case("case", CASES)
def test_a_view_is_the_same_conversation_on_every_wire(case: Case) -> None:
    view = View(items=case.items)
    assert json.loads(encode(view, CLAUDE, (), PLAIN).body)["messages"] == case.anthropic
    assert json.loads(encode(view, GPT, (), PLAIN).body)["input"] == case.responses
    assert json.loads(encode(view, SOME, (), PLAIN).body)["messages"] == case.chat


EVERYTHING = View(
    (item("0.0", "context", Text("Base.", "system")),),
    (
        GO,
        item("2.0", "assistant", Text("gone", "assistant")),
        item("3.0", "user", Text("again")),
        item("4.0", "call", ToolCall("d", "bash", "{}")),
        item("5.0", "steering", Text("hurry")),
        item("6.0", "result", ToolResult("d", (Text("no"), Text("way")), error=True)),
    ),
)
TOOLS = (Tool("write", "Write a file."), Tool("bash", "Run a command."))


@pytest.mark.parametrize("model", WIRES)
@pytest.mark.states("OC-40")
def test_equal_views_give_byte_equal_requests(model: ModelCard) -> None:
    copy = msgspec.json.decode(msgspec.json.encode(EVERYTHING.items), type=tuple[Item, ...])
    first = encode(EVERYTHING, model, TOOLS)
    assert encode(View(EVERYTHING.head, copy), model, TOOLS) == first
    assert first.digest == sha256(first.body).hexdigest()


@pytest.mark.parametrize("model", WIRES)
@pytest.mark.states("OC-40")
def test_tools_are_sorted_by_name_when_asked_for(model: ModelCard) -> None:
    plain = encode(EVERYTHING, model, TOOLS).body
    sorted_ones = encode(EVERYTHING, model, TOOLS, Params(sort_tools=True)).body
    assert plain.index(b"Write a file.") < plain.index(b"Run a command.")
    assert sorted_ones.index(b"Run a command.") < sorted_ones.index(b"Write a file.")
    assert sorted_ones == encode(EVERYTHING, model, TOOLS[::-1], Params(sort_tools=True)).body


@pytest.mark.parametrize("model", WIRES)
def test_parameters_survive_the_log_and_rebuild_the_same_bytes(model: ModelCard) -> None:
    params = Params(max_tokens=900, effort="high", ttl="1h", schema=Raw(b'{"type":"object"}'), extra=Raw(b'{"service_tier": "auto"}'))
    again = msgspec.json.decode(msgspec.json.encode(params), type=Params)
    tools = msgspec.json.decode(msgspec.json.encode(TOOLS), type=tuple[Tool, ...])
    assert encode(EVERYTHING, model, tools, again) == encode(EVERYTHING, model, TOOLS, params)
    assert json.loads(encode(EVERYTHING, model, TOOLS, params).body)["service_tier"] == "auto"


@pytest.mark.parametrize("model", WIRES)
def test_what_the_caller_writes_out_wins_and_stands_once(model: ModelCard) -> None:
    body = encode(EVERYTHING, model, (), Params(extra=Raw(b'{"model":"mine"}'))).body
    assert (body.count(b'"model":'), json.loads(body)["model"]) == (1, "mine")


@pytest.mark.parametrize("model", WIRES)
def test_a_view_that_grew_encodes_only_what_is_new(model: ModelCard) -> None:
    fetched: list[str] = []

    def fetch(address: str) -> bytes:
        fetched.append(address)
        return b"png"

    seeing = msgspec.structs.replace(model, images=True)
    encoder = Encoder(seeing, (), PLAIN, fetch)
    first = (item("1.0", "user", Image("image/png", blob="aa")),)
    grown = (*first, item("2.0", "user", Image("image/png", blob="bb")))
    encoder.encode(View(items=first))
    assert encoder.encode(View(items=grown)) == encode(View(items=grown), seeing, (), PLAIN, lambda _: b"png")
    assert fetched == ["aa", "bb"]
    encoder.encode(View(items=grown[1:]))
    encoder.encode(View(items=grown))
    assert fetched == ["aa", "bb", "aa"]


@pytest.mark.parametrize("model", WIRES)
def test_an_encoder_for_other_parameters_reuses_fragments_that_do_not_depend_on_them(model: ModelCard) -> None:
    fetched: list[str] = []

    def fetch(address: str) -> bytes:
        fetched.append(address)
        return b"png"

    seeing = msgspec.structs.replace(model, images=True)
    view = View(EVERYTHING.head, (*EVERYTHING.items, item("9.0", "user", Image("image/png", blob="aa"))))
    first = Encoder(seeing, TOOLS, PLAIN, fetch)
    first.encode(view)
    moved = Params(frontier="2.0", max_tokens=5)
    assert first.revised(moved).encode(view) == encode(view, seeing, TOOLS, moved, lambda _: b"png")
    assert first.revised(moved, ()).encode(view) == encode(view, seeing, (), moved, lambda _: b"png")
    assert fetched == ["aa"]
    newer = Params(dialect="codex-0.166", echo=True)
    assert first.revised(newer).encode(view) == encode(view, seeing, TOOLS, newer, lambda _: b"png")
    assert fetched == ["aa", "aa"]


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_blob_without_a_store_is_an_error_that_names_it(model: ModelCard) -> None:
    with pytest.raises(BadInput, match="encode: the blob aa is shown in the view and no store was given to read it from"):
        encode(View(items=(item("1.0", "user", Image("image/png", blob="aa")),)), model)


@pytest.mark.parametrize("model", [msgspec.structs.replace(CLAUDE, cache_edits=False), GPT, SOME])
def test_a_cached_mask_leaves_the_bytes(model: ModelCard) -> None:
    pair = (GO, BASH, item("3.0", "result", ToolResult("c", (Text("a.py"),))))
    masked = (*pair[:2], item("3.0", "result", ToolResult("c", (Text("a.py"),)), Cover("", "cached")))
    assert encode(View(items=masked), model).body == encode(View(items=pair), model).body


def test_a_cached_mask_asks_a_provider_that_can_to_clear_the_result() -> None:
    able = msgspec.structs.replace(CLAUDE, cache_edits=True)
    pair = (GO, BASH, item("3.0", "result", ToolResult("c", (Text("a.py"),))))
    masked = (*pair[:2], item("3.0", "result", ToolResult("c", (Text("a.py"),)), Cover("", "cached")))
    plain, asking = json.loads(encode(View(items=pair), able).body), json.loads(encode(View(items=masked), able).body)
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 0}}
    assert asking.pop("context_management") == {"edits": [edit]}
    assert asking == plain


@pytest.mark.parametrize(
    ("args", "expected"),
    [("", "{}"), ("[1]", '{"input":"[1]"}'), ("{broken", '{"input":"{broken"}'), ('{"a": 1}', '{"a": 1}')],
)
def test_arguments_that_are_no_object_are_wrapped(args: str, expected: str) -> None:
    call = item("2.0", "call", ToolCall("c", "mcp.server:tool", args))
    claude, gpt, some = (json.loads(encode(View(items=(GO, call)), model).body) for model in WIRES)
    assert (claude["messages"][1]["content"][0]["input"], claude["messages"][1]["content"][0]["name"]) == (
        json.loads(expected),
        "mcp_server_tool",
    )
    assert (gpt["input"][1]["arguments"], gpt["input"][1]["name"]) == (expected, "mcp_server_tool")
    assert some["messages"][1]["tool_calls"][0]["function"] == {"name": "mcp_server_tool", "arguments": expected}


@pytest.mark.parametrize(("model", "ending"), [(CLAUDE, b"]}]}"), (GPT, b"]}"), (SOME, b"]}")])
def test_a_longer_conversation_keeps_the_bytes_it_had(model: ModelCard, ending: bytes) -> None:
    talk = (
        GO,
        BASH,
        item("2.1", "call", ToolCall("d", "bash", "{}")),
        item("3.0", "result", ToolResult("c", (Text("one"),))),
        item("4.0", "result", ToolResult("d", (Text("two"),))),
        item("5.0", "steering", Text("hurry")),
        item("6.0", "assistant", Text("done", "assistant")),
        item("7.0", "user", Text("thanks")),
    )
    bodies = [encode(View(EVERYTHING.head, talk[:size]), model, TOOLS, PLAIN).body for size in (1, 5, 6, 7, 8)]
    for shorter, longer in pairwise(bodies):
        assert shorter.endswith(ending)
        assert longer.startswith(shorter.removesuffix(ending))
