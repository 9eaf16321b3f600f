"""Messages as plain values: what counts as the same message, what is seen as changed, and what cannot be read."""

from typing import Any

import anthropic.types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.follow.shapes import DEEPEST, copied, digest_of_message, equals, plain_value, snapshot

SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "user", "content": "a"}, {"content": [{"text": "a", "type": "text"}], "role": "user"}),
    ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "a"}]}),
    (
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "a"},
    ),
    ({"role": "assistant", "content": "a", "refusal": None, "annotations": []}, {"role": "assistant", "content": "a"}),
    (
        {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"role": "assistant", "content": "a"},
    ),
    (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]}]},
    ),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
    ({"role": "user", "content": "a"}, {"role": "user", "content": "a "}),
    ({"role": "user", "content": [{"type": "tool_use", "id": "c1"}]}, {"role": "user", "content": [{"type": "tool_use", "id": "c2"}]}),
    ({"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"}),
    ({"type": "function_call_output", "call_id": "c", "output": []}, {"type": "function_call_output", "call_id": "c"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_messages_that_say_the_same_have_one_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest_of_message(one) == digest_of_message(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_messages_that_say_something_else_have_other_digests(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest_of_message(one) != digest_of_message(other)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_a_snapshot_equals_its_message_and_shares_none_of_its_containers(message: dict[str, Any]) -> None:
    taken = snapshot(message)
    assert equals(message, taken.seen)
    assert taken.plain == message
    message["another key"] = 1
    assert not equals(message, taken.seen)
    for value in message.values():
        if isinstance(value, list):
            before = copied(message)
            value.append(0)
            assert not equals(message, before)


def test_a_text_that_is_changed_in_place_inside_of_a_block_is_seen() -> None:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "long"}]}]}
    before = copied(message)
    message["content"][0]["content"][0]["text"] = "[cleared]"  # type: ignore[index]  # a list of dictionaries
    assert not equals(message, before)


def test_an_object_of_an_sdk_is_read_with_the_fields_that_it_was_given() -> None:
    block = anthropic.types.TextBlock(type="text", text="Hello")
    taken = snapshot({"role": "assistant", "content": [block]})
    assert taken.plain == {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
    assert equals({"role": "assistant", "content": [block]}, taken.seen)
    assert equals({"role": "assistant", "content": [anthropic.types.TextBlock(type="text", text="Hello")]}, taken.seen)


def test_an_object_of_an_sdk_with_an_odd_field_is_read_without_a_warning() -> None:
    block: Any = anthropic.types.ToolUseBlock.model_construct(type="tool_use", id="c", name="Read", input="no object")
    assert plain_value(block) == {"type": "tool_use", "id": "c", "name": "Read", "input": "no object"}


def test_an_object_of_an_sdk_that_is_changed_in_place_is_seen() -> None:
    paths, block = ["a.py"], anthropic.types.ToolUseBlock.model_construct(type="tool_use", id="c", name="Read")
    block.input = {"paths": paths}
    odd: Any = anthropic.types.TextBlock.model_validate({"type": "text", "text": "Hello", "brand_new": [1]})
    message = {"role": "assistant", "content": (block, odd)}
    for change in (
        lambda: setattr(block, "name", "Write"),
        lambda: paths.append("b.py"),
        lambda: odd.brand_new.append(2),
    ):
        before = copied(message)
        assert equals(message, before)
        change()
        assert not equals(message, before)


class _Refusing:
    """A value that can neither be compared nor read."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # it cannot be compared

    def __eq__(self, other: object) -> bool:
        raise TypeError("no")


def test_what_cannot_be_compared_is_not_equal_and_what_cannot_be_read_is_refused() -> None:
    assert not equals([_Refusing()], [_Refusing()])
    with pytest.raises(BadInput, match="a _Refusing in a message cannot be read"):
        plain_value({"content": [_Refusing()]})
    with pytest.raises(BadInput, match="a message is list and not an object"):
        snapshot([])
    deep: Any = "x"
    for _ in range(DEEPEST + 1):
        deep = [deep]
    with pytest.raises(BadInput, match=f"nested deeper than {DEEPEST} levels"):
        snapshot({"content": deep})
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        digest_of_message({"content": {1: object()}})
