"""Agents of LangChain and of the OpenAI Agents SDK with their lists followed, each with its real package."""

import asyncio
from typing import Any

import openai
import pytest
from message_lists import source_of
from wire_server import Said, wire_server

from palimpsest.adapters.langchain import middleware
from palimpsest.adapters.openai_agents import InputFilter
from palimpsest.core.events import Failed, ModelReplied, Rewound

SMALL = {"PAL_COMPACT_AT": "4000"}
ROUNDS = 8


def read(number: int) -> str:
    """Read a part."""
    return source_of(number, 60)


def recorded(conversations: Any) -> tuple[list[str], list[int]]:
    """Who edited the list, and the prompt tokens of the observed replies; nothing was taken back, and nothing failed."""
    (conversation,) = conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Rewound) or (isinstance(body, Failed) and body.what == "mirror")] == []
    prompts = [body.usage.prompt for body in bodies if isinstance(body, ModelReplied) and body.message]
    return sorted({edit.by for edit in conversation.audit()}), prompts


def test_an_agent_of_langchain_sends_folded_messages_and_keeps_its_own() -> None:
    agents: Any = pytest.importorskip("langchain.agents", reason="the agents of LangChain come with the extra `langchain`")
    models: Any = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    messages: Any = pytest.importorskip("langchain_core.messages")
    scripted, sizes = models.GenericFakeChatModel, []

    def generate(self: Any, given: list[Any], *args: Any, **more: Any) -> Any:
        sizes.append(sum(len(str(message.content)) for message in given))
        return scripted._generate(self, given, *args, **more)

    attributes = {"_generate": generate, "bind_tools": lambda self, _, **__: self, "model_name": "gpt-5"}
    model = type("Model", (scripted,), attributes | {"__annotations__": {"model_name": str}, "__module__": __name__})
    calls = [
        messages.AIMessage(
            "",
            tool_calls=[{"name": "read", "args": {"number": number}, "id": f"c{number}"}],
            usage_metadata={"input_tokens": 300 + 900 * number, "output_tokens": 5, "total_tokens": 305 + 900 * number},
        )
        for number in range(ROUNDS)
    ]
    following = middleware(settings=SMALL)
    agent = agents.create_agent(
        model(messages=iter([*calls, messages.AIMessage("Done.")])), [read], system_prompt="You fix bugs.", middleware=[following]
    )
    state = agent.invoke({"messages": [{"role": "user", "content": "Read all parts."}]})
    assert [message.content for message in state["messages"] if message.type == "tool"] == [read(number) for number in range(ROUNDS)]
    assert max(sizes) < ROUNDS * len(read(0))
    edits, prompts = recorded(following.conversations)
    assert "fold" in edits
    assert prompts == [*(300 + 900 * number for number in range(ROUNDS)), 0]


@pytest.mark.long
def test_an_agent_of_the_openai_agents_sdk_sends_a_folded_input() -> None:
    agents: Any = pytest.importorskip("agents", reason="the OpenAI Agents SDK comes with the extra `openai-agents`")
    replies = [Said("", (("read", f'{{"number":{number}}}'),)) for number in range(ROUNDS)]
    following = InputFilter(settings=SMALL)
    with wire_server(*replies, Said("Done.")) as server:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)

        async def run() -> Any:
            model = agents.OpenAIResponsesModel("gpt-5", client)
            agent = agents.Agent("reader", instructions="You fix bugs.", tools=[agents.function_tool(read)], model=model)
            config = agents.RunConfig(call_model_input_filter=following, tracing_disabled=True)
            result = await agents.Runner.run(agent, "Read all parts.", run_config=config, max_turns=ROUNDS + 2)
            await client.close()
            return result

        assert asyncio.run(run()).final_output == "Done."
    assert len(server.requests[-1][1]["input"]) < 2 * ROUNDS + 1
    assert "fold" in recorded(following.conversations)[0]
