"""Agents of the OpenAI Agents SDK with their items followed, with the real package and a model on the loopback."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import openai
import pytest
from message_lists import source_of
from wire_server import Said, WireServer, wire_server

from palimpsest.adapters.openai_agents import ConversationSession, InputFilter
from palimpsest.core.errors import BadInput
from palimpsest.core.events import Failed, ModelReplied, Rewound
from palimpsest.follow.conversation import Conversation

SMALL = {"PAL_COMPACT_AT": "4000"}
ROUNDS = 8
PROMPTS = [*(100 + 900 * number for number in range(ROUNDS)), 2_000]


def read(number: int) -> str:
    """Read a part."""
    return source_of(number, 60)


@pytest.fixture
def server() -> Iterator[WireServer]:
    replies = [Said("", (("read", f'{{"number":{number}}}'),), prompt=100 + 900 * number) for number in range(ROUNDS)]
    with wire_server(*replies, Said("Done.", prompt=2_000)) as running:
        yield running


def run(server: WireServer, prompt: str, following: InputFilter, *, streamed: bool = False, **more: Any) -> object:
    """The final output of an agent that reads parts."""

    async def running() -> object:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
        model = agents.OpenAIResponsesModel("gpt-5", client)
        agent = agents.Agent("reader", instructions="You fix bugs.", tools=[agents.function_tool(read)], model=model)
        config = agents.RunConfig(call_model_input_filter=following, tracing_disabled=True)
        given: dict[str, Any] = {"run_config": config, "max_turns": ROUNDS + 2, **more}
        if streamed:
            result = agents.Runner.run_streamed(agent, prompt, **given)
            async for _ in result.stream_events():
                pass
            output: object = result.final_output
        else:
            output = (await agents.Runner.run(agent, prompt, **given)).final_output
        await client.close()
        return output

    return asyncio.run(running())


def prompts_of(conversation: Conversation) -> list[int]:
    """The prompt tokens of the observed replies; nothing was taken back, and nothing failed."""
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Rewound | Failed)] == []
    return [body.usage.prompt for body in bodies if isinstance(body, ModelReplied) and body.message]


def sizes(server: WireServer) -> list[int]:
    return [len(json.dumps(body["input"])) for _, body in server.requests]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_agent_sends_a_folded_input_and_its_hooks_observe_the_usage(server: WireServer, *, streamed: bool) -> None:
    following = InputFilter(settings=SMALL)
    assert run(server, "Read all parts.", following, streamed=streamed, hooks=following.hooks()) == "Done."
    assert max(sizes(server)) < ROUNDS * len(read(0))
    (conversation,) = following.conversations.all()
    assert prompts_of(conversation) == PROMPTS
    assert {edit.by for edit in conversation.audit()} <= {"fold", "clear_dead"}


def test_a_session_keeps_all_items_in_the_log_and_the_next_process_goes_on_with_them(server: WireServer, tmp_path: Path) -> None:
    outputs: list[list[Any]] = []
    for prompt in ("Read all parts.", "Thanks."):
        with Conversation.open("work", model="gpt-5", home=tmp_path, settings=SMALL, shape="responses") as conversation:
            session = ConversationSession(conversation)
            following = InputFilter(session=session)
            assert run(server, prompt, following, session=session, hooks=following.hooks()) == "Done."
            assert following.conversations.all() == ()
            outputs.append(asyncio.run(session.get_items()))
            observed = prompts_of(conversation)
    first, second = outputs
    assert [item["output"] for item in first if item.get("type") == "function_call_output"] == [read(number) for number in range(ROUNDS)]
    assert second[: len(first)] == first
    assert [item.get("role") for item in second[len(first) :]] == ["user", "assistant"]
    assert observed == [*PROMPTS, 2_000]
    # The other process sends the edited items byte for byte, and what is new.
    before, after = (json.dumps(body["input"]) for _, body in server.requests[-2:])
    assert after.startswith(before[:-1])
    assert len(after) < ROUNDS * len(read(0))


def test_items_are_added_popped_and_cleared_as_the_protocol_says_and_a_reopened_session_has_them(tmp_path: Path) -> None:
    items: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Go."}]

    async def change(session: ConversationSession) -> None:
        assert isinstance(session, agents.Session)
        assert await session.pop_item() is None
        await session.add_items(items)
        await session.add_items([])
        assert await session.pop_item() == items[2]
        assert [await session.get_items(limit) for limit in (None, 0, 1, 5)] == [items[:2], [], items[1:2], items[:2]]
        with pytest.raises(BadInput, match="cannot be written as JSON"):
            await session.add_items([{"role": "user", "content": "\ud800"}])

    async def clear(session: ConversationSession) -> None:
        assert await session.get_items() == items[:2]
        await session.clear_session()
        await session.add_items(items[2:])
        assert await session.get_items() == items[2:]

    for steps in (change, clear):
        with Conversation.open("work", model="gpt-5", home=tmp_path) as conversation:
            asyncio.run(steps(ConversationSession(conversation)))
    with Conversation.open("work", model="gpt-5", home=tmp_path) as conversation:
        assert asyncio.run(ConversationSession(conversation).get_items()) == items[2:]


@pytest.mark.states("MI-09")
def test_a_list_that_begins_in_another_way_than_the_session_has_a_conversation_of_its_own(server: WireServer) -> None:
    with Conversation.open(model="gpt-5", shape="responses") as conversation:
        session = ConversationSession(conversation)
        asyncio.run(session.add_items([{"role": "user", "content": "Hi"}]))
        following = InputFilter(session=session)
        run(server, "Read all parts.", following)
        assert conversation.session.log.view.items == ()
        (other,) = following.conversations.all()
        assert len(other.session.log.view.items) > ROUNDS
