"""Tool names in both directions, and arguments and names that a wire does not accept as they are."""

import json

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from palimpsest.core.deltas import CallDelta, deltas_of
from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import Encoder, encode
from palimpsest.wire.encoding import offered_names, wire_names
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models import ModelCard, WireName, card
from palimpsest.wire.request import LONGEST_NAME, Params, Tool
from palimpsest.wire.stream import decode_response, decoder
from palimpsest.wire.wires import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
SOME = card("openai-compatible/some")
WIRES = pytest.mark.parametrize("model", [CLAUDE, GPT, SOME], ids=lambda model: model.wire)
USER = View(items=(Item("0.0", "user", Text("hi")),))


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ((Tool("read"), Tool("todo")), {"read": "read", "todo": "todo"}),
        ((Tool("mcp.git:log"),), {"mcp.git:log": "mcp_git_log"}),
        ((Tool("a.b"), Tool("a_b")), {"a_b": "a_b", "a.b": "a_b_2"}),
        ((Tool("a.b"), Tool("a:b"), Tool("a/b")), {"a.b": "a_b", "a:b": "a_b_2", "a/b": "a_b_3"}),
        ((Tool("a.b"), Tool("a:b"), Tool("a_b_2")), {"a_b_2": "a_b_2", "a.b": "a_b", "a:b": "a_b_3"}),
        ((Tool("x" * 70), Tool("x" * 71)), {"x" * 70: "x" * 64, "x" * 71: "x" * 62 + "_2"}),
        (
            (Tool("web search"), Tool("web_search", native=Raw(b'{"type":"web_search"}'))),
            {"web_search": "web_search", "web search": "web_search_2"},
        ),
    ],
    ids=["plain", "scrubbed", "one is right", "three alike", "a number that is taken", "too long", "a provider's own"],
)
def test_each_tool_has_a_name_of_its_own_on_the_wire(tools: tuple[Tool, ...], expected: dict[str, str]) -> None:
    assert wire_names(tools, "responses") == expected


@given(
    st.lists(st.text(alphabet="ab._:", max_size=3) | st.text("x", min_size=62, max_size=70), unique=True),
    st.sampled_from(("anthropic", "chat")),
)
def test_names_on_the_wire_are_never_the_same_and_never_too_long(drawn: list[str], wire: WireName) -> None:
    names = wire_names(tuple(Tool(name) for name in drawn), wire)
    assert len(set(names.values())) == len(drawn)
    assert all(0 < len(name) <= LONGEST_NAME[wire] for name in names.values())


STREAMS: dict[str, bytes] = {
    "anthropic": b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"git_log"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}\n\n',
    "responses": b'data: {"type":"response.output_item.added","item":{"type":"function_call","call_id":"c","name":"git_log"}}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n',
    "chat": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"git_log"}}]},'
    b'"finish_reason":"tool_calls"}]}\n\n',
}
WHOLE: dict[str, bytes] = {
    "anthropic": b'{"type":"message","content":[{"type":"tool_use","id":"c","name":"git_log","input":{}}]}',
    "responses": b'{"output":[{"type":"function_call","call_id":"c","name":"git_log","arguments":"{}"}]}',
    "chat": b'{"choices":[{"index":0,"message":{"tool_calls":[{"id":"c","function":{"name":"git_log"}}]}}]}',
}


@WIRES
@pytest.mark.parametrize(
    ("tools", "name"),
    [
        ((Tool("git_log"),), "git_log"),
        ((Tool("git.log"),), "git.log"),
        ((Tool("git.log"), Tool("git:log")), "git.log"),
        ((Tool("git.log"), Tool("git_log")), "git_log"),
        ((), "git_log"),
    ],
)
def test_a_reply_that_calls_a_scrubbed_name_has_the_name_we_offered(model: ModelCard, tools: tuple[Tool, ...], name: str) -> None:
    names = offered_names(encode(USER, model, tools))
    stream = decoder(model.wire, model, names)
    deltas = stream.feed(STREAMS[model.wire])
    whole = decode_response(model.wire, WHOLE[model.wire], model, names)
    assert [each for each in deltas if isinstance(each, CallDelta)] == [CallDelta("c", name, "")]
    assert [*deltas_of(whole.parts)] == [CallDelta("c", name, ""), CallDelta("c", name, "{}")]
    assert [stream.finish().parts, whole.parts] == [(ToolCall("c", name, "{}"),)] * 2


@WIRES
def test_a_call_goes_back_under_the_name_of_its_tool_on_the_wire(model: ModelCard) -> None:
    called = View(
        items=(*USER.items, Item("1.0", "call", ToolCall("c", "git.log", "{}")), Item("2.0", "result", ToolResult("c", (Text("ok"),))))
    )
    alone, both = (Tool("git.log"),), (Tool("git.log"), Tool("git_log"))
    encoder = Encoder(model, alone)
    assert encoder.encode(called).body.count(b'"git_log"') == 2
    revised = encoder.revised(Params(), both).encode(called)
    assert revised == encode(called, model, both)
    assert (revised.body.count(b'"git_log_2"'), revised.body.count(b'"git_log"')) == (2, 1)


def test_a_shell_call_keeps_the_name_of_the_wire() -> None:
    body = b'{"output":[{"type":"local_shell_call","call_id":"c","action":{"type":"exec","command":["ls"],"env":{}}}]}'
    assert decode_response("responses", body, GPT, {"local_shell": "local.shell"}).parts == (
        ToolCall("c", "local_shell", '{"type":"exec","command":["ls"],"env":{}}', form="shell"),
    )


CARDS = [card("claude-sonnet-4-5"), card("gpt-5.5"), card("openai-compatible/x")]


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def from_deep_within(frames: int, text: str) -> bool:
    return from_deep_within(frames - 1, text) if frames else is_object(text)


@every_case("model", CARDS)
@every_case("depth", [199, 3_000, 200_000])
def test_a_session_with_deep_arguments_still_encodes(model: ModelCard, depth: int) -> None:
    call = ToolCall("c", "t", nested(depth))
    items = (Item("0.0", "user", Text("hi")), Item("1.0", "call", call), Item("2.0", "result", ToolResult("c", (Text("ok"),))))
    request = encode(View(items=items), model)
    assert check_request(request.wire, request.body) == ()


def test_the_depth_of_an_object_does_not_depend_on_who_asks() -> None:
    assert [is_object(nested(depth)) for depth in (1, 200, 201, 3_000)] == [True, True, False, False]
    assert from_deep_within(400, nested(200))
    assert not from_deep_within(400, nested(201))


def test_brackets_in_strings_are_no_depth() -> None:
    assert is_object(json.dumps({"a": "[{" * 500, "b": '"' + "[" * 500, "c": "\\" * 3 + "[" * 300}))
    assert is_object(json.dumps({"a": [[] for _ in range(900)]}))


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_an_object_is_what_a_reader_reads_as_one(value: object) -> None:
    assert is_object(json.dumps(value)) == isinstance(value, dict)
