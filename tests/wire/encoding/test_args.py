"""Arguments and names that a wire does not accept as they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.items import Item, Text, ToolCall, ToolResult
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.json_reading import is_object
from palimpsest.wire.models.cards import ModelCard, card
from palimpsest.wire.rules.check import check_request

CARDS = [card("claude-sonnet-4-5"), card("gpt-5.5"), card("openai-compatible/x")]


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def from_deep_within(frames: int, text: str) -> bool:
    return from_deep_within(frames - 1, text) if frames else is_object(text)


@pytest.mark.parametrize("model", CARDS, ids=lambda model: model.wire)
@pytest.mark.parametrize("depth", [199, 3_000, 200_000])
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
