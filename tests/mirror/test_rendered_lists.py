"""A view as messages of its owner: parts of messages, moved and merged messages, and ids without their reasoning."""

from typing import Any

import pytest
from anthropic.types import ToolUseBlock

from palimpsest.core.events import SessionOpened, ViewEdited
from palimpsest.core.items import Edit, Fold, Insert, Keep, Mask, Put, Text
from palimpsest.core.log import Log
from palimpsest.follow.mirror import Mirror
from palimpsest.follow.shapes import detected_wire, shape_of
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import WireName, card

MODELS = {"anthropic": "claude-sonnet-4-5", "chat": "gpt-5", "responses": "gpt-5"}


def rendered(wire: WireName, messages: list[Any], *edits: Edit) -> list[Any]:
    """The messages after edits, which break no rule; the events of the messages are 1, 2, 3 and so on."""
    sent, broken = rendered_or_broken(wire, messages, *edits)
    assert broken == []
    assert sent is not None
    return sent


def rendered_or_broken(wire: WireName, messages: list[Any], *edits: Edit) -> tuple[list[Any] | None, list[str]]:
    """The messages after edits, and the rules that they break; any edit is made, as those of an owner are."""
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock())
    mirror = Mirror(shape_of(wire, card(MODELS[wire]), MemoryBlobs()))
    comparison = mirror.compare(messages)
    for body in mirror.bodies(comparison.new):
        mirror.take(log.append(body))
    mirror.adopt(messages, comparison, None, ())
    log.append(ViewEdited(edits, by="test"), foreign=True)
    return mirror.rendered(log.view)


ASKED = {"role": "user", "content": "Read both."}
CALLS = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Both."},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "a.py"}},
        {"type": "tool_use", "id": "b", "name": "Read", "input": {"file_path": "b.py"}},
    ],
}
RESULTS = {
    "role": "user",
    "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": "x = 1", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "b", "content": "y = 1", "is_error": True},
        {"type": "text", "text": "Be quick."},
    ],
}
DONE = {"role": "assistant", "content": "Done."}
SUMMARY = Put("summary", Text("What was done."))


def test_a_masked_result_keeps_its_id_its_error_and_its_breakpoint_and_other_blocks_are_the_same_objects() -> None:
    sent = rendered("anthropic", [ASKED, CALLS, RESULTS, DONE], Mask(("3.0",), "[cleared]"))
    assert sent[2] == {**RESULTS, "content": [{**RESULTS["content"][0], "content": "[cleared]"}, *RESULTS["content"][1:]]}  # type: ignore[dict-item]  # blocks
    assert [sent[0] is ASKED, sent[1] is CALLS, sent[3] is DONE] == [True, True, True]
    assert sent[2]["content"][1] is RESULTS["content"][1]
    assert RESULTS["content"][0]["content"] == "x = 1"  # type: ignore[index]  # a block


def test_a_call_without_its_result_breaks_a_rule_as_a_dictionary_and_as_an_object_of_an_sdk() -> None:
    blocks: Any = CALLS["content"]
    objects = {"role": "assistant", "content": [*blocks[:2], *(ToolUseBlock(**block) for block in blocks[2:])]}
    for said in (CALLS, objects):
        _, broken = rendered_or_broken("anthropic", [ASKED, said, RESULTS, DONE], Fold("2.1", "2.1"), Fold("3.0", "3.0"))
        assert broken == ["messages[2]: the call 'a' has no result in the message after it"]


def test_a_call_that_is_kept_with_its_result_leaves_the_rest_of_its_messages() -> None:
    fold = Fold("1.0", "5.0", (SUMMARY, Keep("2.2"), Keep("3.0")))
    assert rendered("anthropic", [ASKED, CALLS, RESULTS, DONE], fold) == [
        {"role": "user", "content": [{"type": "text", "text": "What was done."}]},
        {"role": "assistant", "content": [CALLS["content"][2]]},
        {"role": "user", "content": [RESULTS["content"][0]]},
        DONE,
    ]


def test_new_text_between_a_call_and_its_result_comes_after_the_result_in_one_message() -> None:
    insert = Insert((SUMMARY,), "3.0")
    sent = rendered("anthropic", [ASKED, CALLS, RESULTS, DONE], insert)
    assert sent == [ASKED, CALLS, {**RESULTS, "content": [*RESULTS["content"], {"type": "text", "text": "What was done."}]}, DONE]


def test_a_call_of_the_server_that_lost_its_result_is_left_out_with_it() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    message = {"role": "assistant", "content": [search, found, {"type": "text", "text": "Found."}]}
    sent = rendered("anthropic", [ASKED, message], Fold("2.1", "2.1"))
    assert sent == [ASKED, {"role": "assistant", "content": [{"type": "text", "text": "Found."}]}]


def test_a_reply_of_chat_keeps_some_of_its_calls_and_has_no_text_then() -> None:
    calls = [{"id": name, "type": "function", "function": {"name": "Read", "arguments": "{}"}} for name in ("a", "b")]
    messages = [
        ASKED,
        {"role": "assistant", "content": "Both.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "x = 1"},
        {"role": "tool", "tool_call_id": "b", "content": "y = 1"},
        DONE,
    ]
    assert rendered("chat", messages, Fold("1.0", "4.0", (SUMMARY, Keep("2.2"), Keep("4.0")))) == [
        {"role": "user", "content": "What was done."},
        {"role": "assistant", "content": None, "tool_calls": [calls[1]]},
        messages[3],
        DONE,
    ]
    assert rendered("chat", messages, Mask(("3.0",), "[cleared]"))[2] == {"role": "tool", "tool_call_id": "a", "content": "[cleared]"}


def test_a_call_of_responses_whose_reasoning_is_gone_has_no_id_of_the_provider() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "Read", "arguments": "{}"}
    messages = [
        ASKED,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "z"},
        call,
        {"type": "function_call_output", "call_id": "a", "output": "x = 1"},
        DONE,
    ]
    without_id = {key: value for key, value in call.items() if key != "id"}
    sent = rendered("responses", messages, Fold("1.0", "2.0", (SUMMARY,)))
    assert sent[1:] == [without_id, messages[3], DONE]
    masked = rendered("responses", messages, Mask(("3.0",), "[cleared]"))
    assert masked == [*messages[:3], {"type": "function_call_output", "call_id": "a", "output": "[cleared]"}, DONE]
    assert masked[2] is call


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (CALLS, "anthropic"),
        ({"role": "tool", "tool_call_id": "a", "content": "x"}, "chat"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "chat"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, "chat"),
        ({"type": "function_call", "call_id": "a"}, "responses"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "responses"),
        (ASKED, None),
    ],
)
def test_the_shape_of_a_list_is_told_by_the_first_message_that_only_one_shape_has(message: Any, wire: str | None) -> None:
    assert detected_wire([ASKED, message]) == wire


def test_a_text_that_breaks_a_rule_is_found_in_its_message_and_what_the_owner_broke_is_not() -> None:
    unanswered = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "Read", "input": {}}]}
    listed = [ASKED, CALLS, RESULTS, unanswered]
    assert rendered_or_broken("anthropic", listed, Mask(("1.0",), " "))[1] == ["messages[0].content[0]: a text is empty"]
    assert rendered_or_broken("anthropic", listed, Mask(("1.0",), "[cleared]"))[1] == []


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
# A message with all kinds of blocks beside one text or result, the field and the number of that one, and the id of its item.
BESIDE: dict[WireName, tuple[list[Any], str, int, str]] = {
    "anthropic": (
        [
            ASKED,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "xyz"},
                    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "rounding"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result", "url": "u"}]},
                    {"type": "text", "text": "Found."},
                    {"type": "brand_new", "x": [1]},
                ],
            },
        ],
        "content",
        4,
        "2.4",
    ),
    "chat": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "text", "text": "Found."},
                    {"type": "brand_new", "x": [1]},
                ],
                "name": "anna",
            }
        ],
        "content",
        1,
        "1.1",
    ),
    "responses": (
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_file", "file_id": "f1"},
                    {"type": "input_text", "text": "Found."},
                    {"type": "input_image", "file_id": "f2"},
                    {"type": "brand_new", "x": [1]},
                ],
            }
        ],
        "content",
        1,
        "1.1",
    ),
}


@pytest.mark.parametrize("wire", [*BESIDE])
@pytest.mark.states("MI-06")
def test_blocks_beside_an_edited_one_in_the_same_message_come_back_as_they_are(wire: WireName) -> None:
    messages, field, place, item = BESIDE[wire]
    sent = rendered(wire, messages, Mask((item,), "[cleared]"))
    given = messages[-1]
    edited = [{**block, "text": "[cleared]"} if number == place else block for number, block in enumerate(given[field])]
    assert sent == [*messages[:-1], {**given, field: edited}]
    assert [block is other for block, other in zip(sent[-1][field], given[field], strict=True)] == [
        number != place for number in range(len(edited))
    ]


@pytest.mark.states("MI-06")
def test_media_and_unknown_blocks_beside_a_cleared_result_come_back_as_they_are() -> None:
    blocks: list[Any] = [*RESULTS["content"], PICTURE, {"type": "document", "source": {"type": "file", "file_id": "f1"}}, {"type": "new"}]
    sent = rendered("anthropic", [ASKED, CALLS, {"role": "user", "content": blocks}], Mask(("3.0",), "[cleared]"))
    assert sent[2]["content"] == [{**blocks[0], "content": "[cleared]"}, *blocks[1:]]
    assert [block is other for block, other in zip(sent[2]["content"][1:], blocks[1:], strict=True)] == [True] * 5
