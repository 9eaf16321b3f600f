import json
from typing import Any

import pytest

from pal.gateway.hosting import Exchange, RecordedConversation
from pal.gateway.routing import fields_of, with_breakpoint
from palimpsest.core.events import ViewEdited
from palimpsest.follow.conversation import Conversation
from palimpsest.stores.home import Home

MARK = {"cache_control": {"type": "ephemeral"}}


def request(messages: list[Any], marks: int = 1) -> bytes:
    """A request with a breakpoint at its last message, and one less than `marks` in its system prompt."""
    last = messages[-1]
    marked = {**last, "content": [*last["content"][:-1], {**last["content"][-1], **MARK}]}
    system = [{"type": "text", "text": "An agent. " * 500 + str(number), **MARK} for number in range(marks - 1)]
    return json.dumps({"model": "claude-sonnet-4-5", "system": system, "messages": [*messages[:-1], marked]}).encode()


def reply(written: int, read: int = 0) -> bytes:
    usage = {"input_tokens": 0, "cache_creation_input_tokens": written, "cache_read_input_tokens": read, "output_tokens": 5}
    text = {"type": "text", "text": "Yes."}
    return json.dumps(
        {"id": "m", "type": "message", "role": "assistant", "content": [text], "stop_reason": "end_turn", "usage": usage}
    ).encode()


def rounds(count: int) -> list[Any]:
    """A question, and a round of so many calls at once."""
    question = {"role": "user", "content": [{"type": "text", "text": "Read all of these files, please. " * 400}]}
    calls = [{"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": f"{number}.py"}} for number in range(count)]
    results = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": f"text {number}"} for number in range(count)]
    return [question, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def prepared(recorded: RecordedConversation, body: bytes) -> Exchange:
    return recorded.plan(recorded.follow(body, fields_of(body) or {}), lambda: True)


@pytest.mark.parametrize(
    ("count", "marks", "anchored"),
    [(12, 3, True), (12, 4, False), (4, 3, False)],
    ids=["many new blocks", "no breakpoint is free", "the client's own finds the entry"],
)
@pytest.mark.states("MI-16")
def test_a_free_breakpoint_is_set_where_the_cached_prefix_ends_and_that_is_recorded(count: int, marks: int, anchored: bool) -> None:
    home, messages = Home.in_memory(), rounds(count)
    conversation = Conversation.open(model="claude-sonnet-4-5", home=home, profile="lossless", shape="anthropic")
    recorded = RecordedConversation(conversation, "anthropic", "lossless", home)
    first, second = request(messages[:1], marks), request(messages, marks)
    recorded.observe(prepared(recorded, first), reply(6_000), streamed=False)
    exchange = prepared(recorded, second)
    recorded.observe(exchange, reply(200, 6_000), streamed=False)
    given, sent = json.loads(second), json.loads(exchange.body)
    expected = [with_breakpoint(given["messages"][0], ""), *given["messages"][1:]] if anchored else given["messages"]
    assert sent == {**given, "messages": expected}
    edits = [event.body.by for event in conversation.session.log.events() if isinstance(event.body, ViewEdited)]
    assert edits == (["cache_breakpoint"] if anchored else [])


def test_a_breakpoint_is_set_at_the_last_block_with_the_lifetime_of_the_others() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert with_breakpoint(message, "1h") == {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    }
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    assert [with_breakpoint(each, "5m") for each in (thinking, {"role": "user", "content": "a"}, with_breakpoint(message, "5m"))] == [
        None
    ] * 3
