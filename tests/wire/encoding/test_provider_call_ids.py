"""The provider's own call ids: a request carries them where they are unique in it, and the recorded ids elsewhere."""

import json
from typing import Any

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.core.items import Content, Cover, Image, Item, Text, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import Encoder, encode
from palimpsest.wire.models import ModelCard, card
from palimpsest.wire.request import Params
from palimpsest.wire.wires import check_request

CLAUDE = card("claude-sonnet-4-5")
GPT = card("gpt-5.5")
SOME = card("openai-compatible/some")
MISTRAL = card("openai-compatible/mistral-large")
WIRES = (CLAUDE, GPT, SOME)
PLAIN = Params(breakpoint_rule="none")


def view_of(*contents: Content) -> View:
    return View(items=tuple(Item(f"{number}.0", kind_of(content), content) for number, content in enumerate((Text("go"), *contents), 1)))


def pair(call_id: str, given: str = "", text: str = "out") -> tuple[ToolCall, ToolResult]:
    return ToolCall(call_id, "read", "{}", given=given), ToolResult(call_id, (Text(text),))


def ids(model: ModelCard, view: View) -> list[str]:
    """The ids of calls and results as they are sent, in order; a result has an arrow before its own."""
    body = json.loads(encode(view, model, (), PLAIN).body)
    found: list[str] = []
    entries: list[dict[str, Any]] = body["input"] if model.wire == "responses" else body["messages"]
    for entry in entries:
        if entry.get("type") in {"function_call", "function_call_output"}:
            found.append(("" if entry["type"] == "function_call" else ">") + entry["call_id"])
        found += [call["id"] for call in entry.get("tool_calls", ())]
        found += [f">{entry['tool_call_id']}"] if entry.get("role") == "tool" else []
        for block in entry["content"] if isinstance(entry.get("content"), list) else ():
            found += [block["id"]] if block["type"] == "tool_use" else []
            found += [f">{block['tool_use_id']}"] if block["type"] == "tool_result" else []
    return found


@every_case("model", WIRES)
@every_case(
    ("contents", "expected"),
    [
        ((*pair("c1"),), ["c1", ">c1"]),
        ((*pair("ours", "call_0"),), ["call_0", ">call_0"]),
        ((*pair("call_0"), *pair("ours", "call_0")), ["call_0", ">call_0", "ours", ">ours"]),
        ((*pair("ours", "call_0"), *pair("ours2", "call_0")), ["call_0", ">call_0", "ours2", ">ours2"]),
        ((*pair("ours", "call_0"), *pair("call_0")), ["ours", ">ours", "call_0", ">call_0"]),
    ],
)
def test_a_call_and_its_result_carry_the_given_id_where_it_is_unique(
    model: ModelCard, contents: tuple[Content, ...], expected: list[str]
) -> None:
    assert ids(model, view_of(*contents)) == expected


def test_an_id_that_a_server_would_refuse_is_not_carried() -> None:
    assert ids(CLAUDE, view_of(*pair("ours", "call 0"))) == ["ours", ">ours"]
    assert ids(SOME, view_of(*pair("ours", "call 0"))) == ["call 0", ">call 0"]
    assert ids(MISTRAL, view_of(*pair("ours00001", "call_1"))) == ["ours00001", ">ours00001"]
    assert ids(MISTRAL, view_of(*pair("ours00001", "abcdefgh9"))) == ["abcdefgh9", ">abcdefgh9"]


def test_a_given_id_that_looks_like_a_recorded_one_on_the_wire_is_not_carried() -> None:
    assert ids(CLAUDE, view_of(*pair("a.b"), *pair("ours", "a_b"))) == ["a_b", ">a_b", "ours", ">ours"]


def test_a_search_that_the_provider_ran_stays_without_an_id() -> None:
    body = json.loads(encode(view_of(ToolCall("", "tool_search", "{}", "search", given="x")), GPT, (), PLAIN).body)
    assert body["input"][1] == {"type": "tool_search_call", "status": "completed", "execution": "server", "arguments": {}}


@pytest.mark.parametrize("model", WIRES, ids=lambda model: model.wire)
def test_an_unanswered_call_is_answered_under_the_id_it_carries(model: ModelCard) -> None:
    assert ids(model, view_of(ToolCall("ours", "read", "{}", given="call_0"))) == ["call_0", ">call_0"]


def test_a_result_that_the_provider_shall_clear_is_sent_under_the_id_of_its_call() -> None:
    able = replace(CLAUDE, cache_edits=True)
    call, result = pair("ours", "call_0")
    items = (Item("1.0", "user", Text("go")), Item("2.0", "call", call), Item("3.0", "result", result, mask=Cover("", "cached")))
    body = json.loads(encode(View(items=items), able, (), PLAIN).body)
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 0}}
    assert (body["context_management"], body["messages"][-1]["content"][0]["tool_use_id"]) == ({"edits": [edit]}, "call_0")


@pytest.mark.parametrize("model", WIRES, ids=lambda model: model.wire)
def test_what_was_encoded_under_a_given_id_is_encoded_once(model: ModelCard) -> None:
    fetched: list[str] = []

    def fetch(address: str) -> bytes:
        fetched.append(address)
        return b"png"

    call = ToolCall("ours", "read", "{}", given="call_0")
    result = ToolResult("ours", (Image("image/png", blob="aa"), Text("seen")))
    view = view_of(call, result)
    seeing = SOME if model.wire == "chat" else model
    grown = View(items=(*view.items, Item("9.0", "user", Text("and?"))))
    encoder = Encoder(seeing, (), PLAIN, fetch)
    encoder.encode(view)
    count = len(fetched)
    assert encoder.encode(grown) == encode(grown, seeing, (), PLAIN, lambda _: b"png")
    assert encoder.revised(Params(breakpoint_rule="none", max_tokens=5)).encode(grown).repairs == ()
    assert len(fetched) == count


names = st.sampled_from(("call_0", "call_1", "x y"))
calls = st.lists(st.tuples(st.booleans(), names), max_size=10)


@given(calls, st.sampled_from((*WIRES, MISTRAL)))
def test_whatever_ids_are_given_those_of_a_request_are_unique_and_a_view_that_grows_keeps_them(
    drawn: list[tuple[bool, str]], model: ModelCard
) -> None:
    seen: set[str] = set()
    contents: list[Content] = []
    for number, (absent, name) in enumerate(drawn):
        taken = absent or name in seen
        contents += pair(f"ours{number:05}" if taken else name, "" if absent else name if taken else "")
        seen.add(name)
    view = view_of(*contents)
    whole = ids(model, view)
    sent = [each for each in whole if not each.startswith(">")]
    assert len(set(sent)) == len(sent)
    assert whole == [each for name in sent for each in (name, f">{name}")]
    assert check_request(model.wire, encode(view, model).body) == ()
    encoder = Encoder(model, (), PLAIN)
    for size in range(1, len(view.items) + 1, 2):
        part = View(items=view.items[:size])
        assert ids(model, part) == whole[: size - 1]
        assert encoder.encode(part) == encode(part, model, (), PLAIN)
