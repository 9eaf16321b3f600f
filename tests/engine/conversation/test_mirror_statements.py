"""The statements MI-01 to MI-03, MI-05 to MI-08 and MI-21 of conversations that another program owns, on all three shapes."""

import json
from pathlib import Path
from typing import Any

import pytest
from followed_lists import SYSTEM, folded, new_events, opened
from message_lists import PICTURE, WIRES, Messages, source_of, tool_loop, tool_round

from palimpsest.core.events import ModelReplied, Rewound, ToolReturned, UserSaid, ViewEdited
from palimpsest.follow.conversation import Conversation
from palimpsest.follow.output import new_violations
from palimpsest.follow.shapes import copied
from palimpsest.stores.home import Home
from palimpsest.wire.models import WireName

each_wire = pytest.mark.parametrize("wire", [*WIRES])


@each_wire
@pytest.mark.states("MI-01")
def test_a_list_that_needs_no_edit_comes_back_as_the_same_elements(wire: WireName) -> None:
    messages = tool_loop(wire, 2)
    with opened(wire) as conversation:
        assert conversation.prepare(messages, system="You fix bugs.", tools=[]) is messages
        tail = tuple(messages)
        assert conversation.prepare(tail) is tail


@each_wire
@pytest.mark.states("MI-01")
def test_after_an_edit_the_elements_that_it_left_are_the_same_objects(wire: WireName) -> None:
    conversation, messages = folded(wire)
    messages += tool_round(wire, 14)
    sent = conversation.prepare(messages)
    count = len(tool_round(wire, 0))
    assert 2 * len(json.dumps(sent)) < len(json.dumps(messages))
    assert [one is other for one, other in zip(sent[-count:], messages[-count:], strict=True)] == [True] * count


@each_wire
@pytest.mark.parametrize("lead", [[], [SYSTEM]], ids=["without system message", "with system message"])
@pytest.mark.states("MI-02")
def test_what_comes_back_after_edits_is_accepted_by_the_rules_of_the_provider(wire: WireName, lead: Messages) -> None:
    lead = lead if wire != "anthropic" else []
    messages = [*lead, *tool_loop(wire, 40)]
    with opened(wire) as conversation:
        for count in range(1, len(messages), 4):
            sent = conversation.prepare(messages[:count])
            assert new_violations(wire, messages[:count], sent) == []
            assert list(sent[: len(lead)]) == messages[: len(lead)]
            # None of the edits had to be taken back for it.
            assert conversation.reason == ""
        assert {(edit.by, edit.undone) for edit in conversation.audit()} == {("fold", False), ("clear_dead", False)}


@each_wire
@pytest.mark.states("MI-03")
def test_an_extended_list_appends_the_events_of_what_is_new_and_a_replayed_one_none(wire: WireName) -> None:
    messages = tool_loop(wire, 3)
    with opened(wire) as conversation:
        conversation.prepare(messages)
        tip = conversation.session.log.tip
        conversation.prepare(json.loads(json.dumps(messages)))
        assert conversation.session.log.tip == tip
        conversation.prepare([*messages, *tool_round(wire, 3), {"role": "user", "content": "And now the tests."}])
        entered = [type(event.body) for event in new_events(conversation, tip)]
        assert [kind for kind in entered if kind in (ModelReplied, ToolReturned, UserSaid)] == [ModelReplied, ToolReturned, UserSaid]
        assert ViewEdited not in entered


@each_wire
@pytest.mark.states("MI-03")
def test_breakpoints_the_order_of_keys_and_a_text_as_a_list_of_one_text_are_no_change(wire: WireName) -> None:
    messages: Messages = [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Done."}]
    kinds = {"anthropic": ("text", "text"), "chat": ("text", "text"), "responses": ("input_text", "output_text")}[wire]
    with Conversation.open(model=WIRES[wire], shape=wire) as conversation:
        conversation.prepare(messages)
        tip = conversation.session.log.tip
        asked = {"type": kinds[0], "text": "Fix it.", "cache_control": {"type": "ephemeral"}}
        conversation.prepare(
            [{"content": [asked], "role": "user"}, {"content": [{"text": "Done.", "type": kinds[1]}], "role": "assistant"}]
        )
        assert conversation.session.log.tip == tip


@each_wire
@pytest.mark.states("MI-05")
def test_edits_are_stable_in_the_same_process_and_after_a_restart(wire: WireName, tmp_path: Path) -> None:
    conversation, messages = folded(wire, tmp_path, "work")
    first = json.dumps(conversation.prepare(messages))
    assert json.dumps(conversation.prepare(json.loads(json.dumps(messages)))) == first
    conversation.close()
    with opened(wire, tmp_path, "work") as restarted:
        assert json.dumps(restarted.prepare(messages)) == first
        messages += tool_round(wire, 14)
        assert json.dumps(restarted.prepare(messages)).startswith(first[:-1])


UNTOUCHED: dict[str, Messages] = {
    "anthropic": [
        {
            "role": "user",
            "content": [PICTURE, {"type": "document", "source": {"type": "file", "file_id": "f1"}}, {"type": "new", "x": [1]}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "rounding"}},
                {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result", "url": "u"}]},
                {"type": "text", "text": "Found.", "citations": [{"type": "web", "url": "u"}]},
            ],
        },
    ],
    "chat": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, {"type": "new", "x": [1]}]},
        {
            "role": "assistant",
            "content": "Found.",
            "reasoning_content": "Hm.",
            "annotations": [{"type": "url_citation"}],
            "audio": {"id": "a"},
        },
    ],
    "responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_file", "file_id": "f1"}, {"type": "input_image", "file_id": "f2"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rounding"}},
        {"type": "brand_new_item", "id": "n_1", "payload": {"x": [1]}},
        {"type": "message", "id": "m_1", "role": "assistant", "content": [{"type": "output_text", "text": "Found.", "annotations": []}]},
    ],
}


@each_wire
@pytest.mark.states("MI-06")
def test_media_thinking_server_tools_and_unknown_blocks_come_back_as_they_are_beside_edits(wire: WireName) -> None:
    conversation, messages = folded(wire)
    messages += UNTOUCHED[wire]
    before = copied(messages)
    sent = conversation.prepare(messages)
    assert 2 * len(json.dumps(sent)) < len(json.dumps(messages))
    assert messages == before
    for kept, given in zip(sent[-len(UNTOUCHED[wire]) + 1 :], UNTOUCHED[wire][1:], strict=True):
        assert kept is given
    # The first one follows a tool result, and on Anthropic's wire stays a message of its own.
    assert UNTOUCHED[wire][0] in sent


USAGE = {
    "anthropic": {"input_tokens": 3_000, "cache_read_input_tokens": 9_000, "output_tokens": 50},
    "chat": {"prompt_tokens": 12_000, "prompt_tokens_details": {"cached_tokens": 9_000}, "completion_tokens": 50},
    "responses": {"input_tokens": 12_000, "input_tokens_details": {"cached_tokens": 9_000}, "output_tokens": 50},
}


def response(wire: WireName, messages: Messages) -> dict[str, Any]:
    """The response that adds these messages."""
    match wire:
        case "anthropic":
            return {"id": "msg_1", "type": "message", **messages[0], "stop_reason": "tool_use", "usage": USAGE[wire]}
        case "chat":
            return {"id": "c_1", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": messages[0]}], "usage": USAGE[wire]}
        case _:
            items = [{**item, "id": f"i_{number}", "status": "completed"} for number, item in enumerate(messages)]
            return {"id": "r_1", "status": "completed", "output": items, "usage": USAGE[wire]}


@each_wire
@pytest.mark.states("MI-07")
def test_an_observed_reply_calibrates_tokens_and_is_not_appended_again(wire: WireName) -> None:
    messages = tool_loop(wire, 2)
    next_round = tool_round(wire, 2)
    with opened(wire) as conversation:
        conversation.prepare(messages)
        conversation.observe(response(wire, next_round[:-1]))
        assert conversation.reason == ""
        assert conversation.session.used == 12_050
        assert conversation.session.log.ledger.usage.cache_read == 9_000
        assert conversation.session.derived.cache.value().reads.read == 9_000
        tip = conversation.session.log.tip
        longer = [*messages, *next_round]
        assert conversation.prepare(longer) is longer
        assert [type(event.body).__name__ for event in new_events(conversation, tip)] == ["ToolReturned", "CallStarted"]


@pytest.mark.states("MI-07")
def test_a_reply_that_its_owner_wrote_down_without_thinking_is_still_that_reply() -> None:
    messages = tool_loop("anthropic", 2)
    said, result = tool_round("anthropic", 2)
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    with opened("anthropic") as conversation:
        conversation.prepare(messages)
        conversation.observe(response("anthropic", [{**said, "content": [thinking, *said["content"]]}]))
        longer = [*messages, said, result]
        assert conversation.prepare(longer) is longer
        assert [(edit.by, edit.why) for edit in conversation.audit()] == [("owner", "left out when the reply was written down")]
        assert conversation.session.log.ledger.usage.cache_read == 9_000
        assert not [event for event in conversation.session.log.events() if isinstance(event.body, Rewound)]


@each_wire
@pytest.mark.states("MI-08")
def test_an_undone_edit_brings_the_original_messages_back_into_the_next_list(wire: WireName) -> None:
    messages = tool_loop(wire, 14)
    with Conversation.open(model=WIRES[wire]) as conversation:
        compacted = conversation.compact(messages)
        assert 2 * len(json.dumps(compacted.messages)) < len(json.dumps(messages))
        conversation.undo(compacted.edits[0])
        longer = [*messages, {"role": "user", "content": "Go on."}]
        assert conversation.prepare(longer) is longer


@pytest.mark.states("MI-21")
def test_two_conversations_of_one_home_are_kept_apart(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    one, other = tool_loop("anthropic", 2), tool_loop("chat", 3)
    with opened("anthropic", home, "one") as first, opened("chat", home, "other") as second:
        for count in (1, 3, 5):
            assert first.prepare(one[:count]) == one[:count]
            assert second.prepare(other[:count]) == other[:count]
    texts = [home.store.open(name).read(0, 100_000).decode() for name in ("one", "other")]
    assert [source_of(2)[:40] in text for text in texts] == [False, False]
    assert [text.count('"user_said"') for text in texts] == [1, 1]
