"""An agent of pydantic-ai with its messages followed, with the real package and a model that is a function."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from message_lists import source_of
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from palimpsest.adapters.pydantic_ai import capability
from palimpsest.core.events import Failed, ModelReplied, Rewound

ROUNDS = 8
PROMPTS = [100 + 900 * number for number in range(ROUNDS + 1)]


def read(number: int) -> str:
    """Read a part."""
    return source_of(number, 60)


def reader(seen: list[list[Any]]) -> FunctionModel:
    """A model that asks for one part after the other, whole or streamed, and keeps what it was sent."""

    def whole(messages: list[Any], info: AgentInfo) -> ModelResponse:
        del info
        seen.append(messages)
        number = len(seen) - 1
        part = ToolCallPart("read", {"number": number}, tool_call_id=f"c{number}") if number < ROUNDS else TextPart("Done.")
        usage = RequestUsage(input_tokens=PROMPTS[number], output_tokens=5, cache_read_tokens=50)
        return ModelResponse(parts=[part], usage=usage, provider_response_id=f"r{number}")

    async def streamed(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        (part,) = whole(messages, info).parts
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall("read", '{"number":', tool_call_id=part.tool_call_id)}
            yield {0: DeltaToolCall(json_args=f"{part.args_as_dict()['number']}}}")}
        else:
            yield "Do"
            yield "ne."

    return FunctionModel(whole, stream_function=streamed, model_name="gpt-5")


def recorded(following: Any) -> list[ModelReplied]:
    """The observed replies of the one conversation; nothing was taken back, and nothing failed."""
    (conversation,) = following.conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Rewound | Failed)] == []
    return [body for body in bodies if isinstance(body, ModelReplied) and body.message]


def results(messages: list[Any]) -> list[str]:
    return [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]


def test_an_agent_sends_folded_messages_and_keeps_its_own() -> None:
    seen: list[list[Any]] = []
    following = capability(settings={"PAL_COMPACT_AT": "4000"})
    agent = Agent(reader(seen), instructions="You fix bugs.", tools=[read], capabilities=[following])
    # `run_sync` would leave an event loop open.
    result = asyncio.run(agent.run("Read all parts."))
    assert result.output == "Done."
    assert results(result.all_messages()) == [read(number) for number in range(ROUNDS)]
    sizes = [sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts) for messages in seen]
    assert max(sizes) < ROUNDS * len(read(0))
    assert all(messages[-1].instructions == "You fix bugs." for messages in seen)
    assert [(body.usage.prompt, body.usage.cache_read, body.message) for body in recorded(following)] == [
        (tokens, 50, f"r{number}") for number, tokens in enumerate(PROMPTS)
    ]
    (conversation,) = following.conversations.all()
    assert "fold" in {edit.by for edit in conversation.audit()}


def test_a_streamed_run_is_followed_too() -> None:
    following = capability()

    async def running() -> tuple[str, list[Any]]:
        async with Agent(reader([]), tools=[read], capabilities=[following]).run_stream("Read all parts.") as result:
            return await result.get_output(), result.all_messages()

    output, messages = asyncio.run(running())
    assert (output, results(messages)) == ("Done.", [read(number) for number in range(ROUNDS)])
    assert len(recorded(following)) == ROUNDS + 1


def test_an_error_of_the_model_reaches_the_caller() -> None:
    def fail(messages: list[Any], info: AgentInfo) -> ModelResponse:
        del messages, info
        raise ConnectionError("the model is gone")

    with pytest.raises(ConnectionError, match="the model is gone"):
        asyncio.run(Agent(FunctionModel(fail), capabilities=[capability()]).run("Hi"))


def test_parts_that_are_no_text_call_or_result_stay_themselves_in_an_edited_list() -> None:
    following = capability(settings={"PAL_COMPACT_AT": "6000"})
    messages: list[Any] = [
        ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(["Look.", ImageUrl("http://127.0.0.1/a.png")])])
    ]

    async def run() -> list[Any]:
        for number in range(ROUNDS):
            call = ToolCallPart("read", {"number": number}, tool_call_id=f"c{number}")
            result = ToolReturnPart("read", source_of(number, 60), tool_call_id=f"c{number}")
            image = UserPromptPart(["This too.", ImageUrl(f"http://127.0.0.1/{number}.png")])
            messages.extend((ModelResponse(parts=[ThinkingPart("Hm."), call]), ModelRequest(parts=[result, image])))
            request = SimpleNamespace(messages=list(messages))
            await following.before_model_request(SimpleNamespace(model=reader([])), request)
        return list(request.messages)

    sent = asyncio.run(run())
    kept = {id(part) for message in messages for part in message.parts}
    changed = [part.part_kind for message in sent for part in message.parts if id(part) not in kept]
    assert changed
    assert set(changed) <= {"text", "user-prompt", "tool-return"}
    assert [part.content for part in sent[-1].parts if part.part_kind == "user-prompt"] == [messages[-1].parts[1].content]
