"""A conversation compacts once, recalls what it hid, offers the recall tool, takes objects of the SDKs, and works in an event loop."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from message_lists import WIRES, source_of, tool_loop, tool_round

from palimpsest.core.deltas import Delta
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import CallStarted, Failed, ModelReplied
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.ports import Sendable
from palimpsest.follow.conversation import Compacted, Conversation, compact
from palimpsest.follow.output import new_violations
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import WireName

each_wire = pytest.mark.parametrize("wire", [*WIRES])


@each_wire
def test_compact_returns_a_shorter_list_of_the_same_shape_with_its_edit_and_tokens(wire: WireName) -> None:
    messages = tool_loop(wire, 10)
    compacted = compact(messages, model=WIRES[wire], system="You fix bugs.")
    assert new_violations(wire, messages, compacted.messages) == []
    assert [(edit.by, edit.why, edit.moment) for edit in compacted.edits] == [("fold", "the user asked for it", "asked")]
    assert compacted.tokens_after * 2 < compacted.tokens_before
    assert compacted.reason == ""
    assert messages == tool_loop(wire, 10)
    assert compact(messages, model=WIRES[wire], system="You fix bugs.").messages == compacted.messages


def test_compact_keeps_what_the_user_said_and_names_the_files_that_were_read() -> None:
    text = json.dumps(compact(tool_loop("chat", 10), model="gpt-5").messages)
    assert "leave main.py alone" in text
    assert all(f"src/part_{number}.py" in text for number in range(10))


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "Hello"}]])
def test_compact_leaves_a_small_list_as_it_is_and_says_so(messages: list[Any]) -> None:
    compacted = compact(messages, model="claude-sonnet-4-5")
    assert compacted.messages is messages
    assert (compacted.edits, compacted.reason) == ((), "no fold of profile palimpsest would make the list much smaller")


def test_compact_leaves_what_is_no_list_of_messages_as_it_is_with_a_reason() -> None:
    assert compact([3], model="claude-sonnet-4-5") == Compacted([3], reason="a message is int and not an object")


def test_an_unknown_model_gets_the_card_of_one_that_is_like_it_and_an_unknown_profile_is_refused() -> None:
    assert compact([], model="claude-sonnet-99").reason == "no fold of profile palimpsest would make the list much smaller"
    with pytest.raises(BadInput, match="there is no profile 'nothing'"):
        compact([], model="claude-sonnet-4-5", profile="nothing")


@each_wire
def test_what_was_folded_is_recalled_by_the_id_in_the_list_and_by_words(wire: WireName) -> None:
    with Conversation.open(model=WIRES[wire]) as conversation:
        conversation.compact(tool_loop(wire, 10))
        results = [event for event in conversation.session.log.events() if type(event.body).__name__ == "ToolReturned"]
        recalled = conversation.recall(f"{results[2].seq}.0")
        assert recalled.startswith(f"[item {results[2].seq}.0, result, ")
        assert source_of(2) in recalled
        assert conversation.recall("part_4 value").startswith(f"{results[4].seq}.0 of session {conversation.id}, result, ")
        assert conversation.recall(id=f"{results[2].seq}.0") == recalled
        with pytest.raises(PalimpsestError, match=r"there is no item 99\.0"):
            conversation.recall("99.0")


def test_the_recall_tool_has_the_shape_of_the_list() -> None:
    shapes = {}
    for wire in WIRES:
        with Conversation.open(model=WIRES[wire], shape=wire) as conversation:
            shapes[wire] = conversation.tool()
    function = shapes["chat"]["function"]
    schema, description = function["parameters"], function["description"]
    assert [*schema["properties"]] == ["id", "words", "offset", "lines"]
    assert shapes == {
        "anthropic": {"name": "recall", "description": description, "input_schema": schema},
        "chat": {"type": "function", "function": {"name": "recall", "description": description, "parameters": schema}},
        "responses": {"type": "function", "name": "recall", "description": description, "strict": False, "parameters": schema},
    }


def test_blocks_of_the_anthropic_sdk_are_read_and_come_back_as_the_same_objects() -> None:
    said = anthropic.types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "tool_use", "id": "call_9", "name": "Read", "input": {"file_path": "a.py"}},
            ],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 700, "output_tokens": 20},
        }
    )
    messages: list[Any] = tool_loop("anthropic", 10)
    with Conversation.open(model="claude-sonnet-4-5", settings={"PAL_COMPACT_AT": "20000"}) as conversation:
        conversation.prepare(messages)
        conversation.observe(said)
        result = {"type": "tool_result", "tool_use_id": "call_9", "content": "x = 1"}
        messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
        sent = conversation.prepare(messages)
        assert conversation.reason == ""
        assert [one is other for one, other in zip(sent[-2:], messages[-2:], strict=True)] == [True, True]
        assert len([event for event in conversation.session.log.events() if isinstance(event.body, CallStarted)]) == 2


def test_objects_of_the_openai_sdk_are_read_and_are_no_change_where_a_dictionary_says_the_same() -> None:
    message = {"role": "assistant", "content": "Read.", "tool_calls": tool_round("chat", 1)[0]["tool_calls"]}
    reply = openai.types.chat.ChatCompletionMessage.model_validate({**message, "refusal": None})
    item = openai.types.responses.ResponseFunctionToolCall.model_validate(
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "Read", "arguments": "{}", "status": "completed"}
    )
    asked = {"role": "user", "content": "Read it."}
    for said, plain in ((reply, message), (item, {"type": "function_call", "call_id": "c", "name": "Read", "arguments": "{}"})):
        with Conversation.open(model="gpt-5") as conversation:
            messages = [asked, said]
            assert conversation.prepare(messages) is messages
            tip = conversation.session.log.tip
            conversation.prepare([asked, plain])
            assert (conversation.reason, conversation.session.log.tip) == ("", tip)


def test_a_reply_that_cannot_be_read_is_a_reason_and_no_exception() -> None:
    with Conversation.open(model="claude-sonnet-4-5") as conversation:
        conversation.prepare([{"role": "user", "content": "Hello"}])
        for wrong in (3, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, {"id": "x"}):
            conversation.observe(wrong)
            assert conversation.reason


def test_a_request_whose_reply_is_not_observed_has_that_as_its_outcome() -> None:
    with Conversation.open(model="claude-sonnet-4-5") as conversation:
        conversation.prepare([{"role": "user", "content": "Hello"}])
        conversation.prepare([{"role": "user", "content": "Hello"}, {"role": "user", "content": "Are you there?"}])
        failed = [event.body for event in conversation.session.log.events() if isinstance(event.body, Failed)]
    assert failed == [Failed("call", "unobserved", "the reply to this request was not observed", call=2, purpose="turn")]


def test_a_list_is_followed_in_an_event_loop_and_by_several_threads() -> None:
    messages = tool_loop("anthropic", 4)

    async def prepared(conversation: Conversation) -> bool:
        first = await conversation.aprepare(messages)
        await conversation.aobserve({"type": "message", "id": "m", "content": [{"type": "text", "text": "Done."}], "usage": {}})
        return first is messages

    with Conversation.open(model="claude-sonnet-4-5") as conversation:
        assert asyncio.run(prepared(conversation))
        results: list[Any] = []
        threads = [Thread(target=lambda: results.append(conversation.prepare(messages))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [result is messages for result in results] == [True] * 4


class _Broken:
    """A provider with an error of its own."""

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        if request.body:
            raise KeyError("no such model")
        yield ModelReplied(())


def test_a_policy_that_wants_a_model_gets_the_provider_and_without_one_the_fold_from_the_log() -> None:
    summary = ModelReplied((Text("<summary>All parts were read.</summary>", "assistant"),), stop="end_turn")
    messages = tool_loop("anthropic", 10)
    with Conversation.open(model="claude-sonnet-4-5", profile="claude-code", provider=Scripted(summary)) as conversation:
        assert "All parts were read." in json.dumps(conversation.compact(messages).messages)
    with Conversation.open(model="claude-sonnet-4-5", profile="claude-code", provider=_Broken()) as conversation:
        compacted = conversation.compact(messages)
        assert (compacted.messages, compacted.edits, compacted.reason) == (messages, (), "KeyError: 'no such model'")
        assert asyncio.run(conversation.aprepare(messages)) is messages
    assert compact(messages, model="claude-sonnet-4-5", profile="claude-code").reason != ""
    compacted = compact(tool_loop("anthropic", 40), model="claude-sonnet-4-5", profile="claude-code")
    assert [edit.by for edit in compacted.edits] == ["fold without a model"]
    assert compacted.tokens_after * 2 < compacted.tokens_before


class _Gated:
    """A provider whose first reply waits until it is asked for, and says so."""

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        assert request.body
        self.asked.set()
        await self.gate.wait()
        yield SUMMARY


SUMMARY = ModelReplied((Text("<summary>All parts were read.</summary>", "assistant"),), stop="end_turn")
EARLY = {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "1"}


def test_two_tasks_of_one_event_loop_prepare_one_after_the_other_while_the_loop_goes_on() -> None:
    messages = tool_loop("anthropic", 10)

    async def prepared(found: list[Any]) -> None:
        provider = _Gated()
        with Conversation.open(model="claude-sonnet-4-5", profile="claude-code", settings=EARLY, provider=provider) as conversation:
            first = asyncio.create_task(conversation.aprepare(messages))
            await provider.asked.wait()
            second = asyncio.create_task(conversation.aprepare(messages))
            await asyncio.wait((second,), timeout=0.01)
            provider.gate.set()
            found += await asyncio.gather(first, second)

    found: list[Any] = []
    # If the event loop stood still, nothing in it could end the test.
    thread = Thread(target=lambda: asyncio.run(prepared(found)), daemon=True)
    thread.start()
    thread.join(20)
    assert ["All parts were read." in json.dumps(each) for each in found] == [True, True]


def test_a_list_can_be_prepared_in_an_event_loop_without_waiting_for_it() -> None:
    async def prepared() -> Any:
        with Conversation.open(
            model="claude-sonnet-4-5", profile="claude-code", settings=EARLY, provider=Scripted(SUMMARY)
        ) as conversation:
            return conversation.prepare(tool_loop("anthropic", 10))

    assert "All parts were read." in json.dumps(asyncio.run(prepared()))


@pytest.mark.parametrize(
    ("profile", "said", "reason"),
    [
        ("claude-code", "All parts were read.\n" * 30_000, "the view would not be smaller"),
        ("claude-code", "", "no assistant message in summarization response"),
        ("lossless", "", "no fold of profile lossless would make the list much smaller"),
    ],
    ids=["refused", "failed", "never folds"],
)
def test_a_list_that_is_not_folded_when_asked_has_the_reason_of_the_gate_the_policy_or_the_profile(
    profile: str, said: str, reason: str
) -> None:
    summary = ModelReplied((Text(f"<summary>{said}</summary>", "assistant"),), stop="end_turn")
    messages = tool_loop("anthropic", 10)
    with Conversation.open(model="claude-sonnet-4-5", profile=profile, provider=Scripted(*[summary] * 4)) as conversation:
        compacted = conversation.compact(messages)
    assert (compacted.messages is messages, compacted.edits, compacted.reason) == (True, (), reason)


def test_a_conversation_is_found_again_by_its_id_and_its_results_stand_in_its_log(tmp_path: Path) -> None:
    messages = tool_loop("anthropic", 2)
    with Conversation.open("work", model="claude-sonnet-4-5", home=tmp_path) as conversation:
        conversation.prepare(messages)
        tip = conversation.session.log.tip
    with Conversation.open("work", model="claude-sonnet-4-5", home=str(tmp_path)) as conversation:
        assert conversation.prepare(messages) is messages
        kinds = [type(event.body).__name__ for event in conversation.session.log.events() if event.seq > tip]
        assert kinds == ["Interrupted"]
        contents = [item.content for item in conversation.session.log.view.items]
    assert ToolResult("call_1", (Text(source_of(1)),)) in contents
