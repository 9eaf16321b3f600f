"""Agents of LangChain with their messages followed, with the real package and a model of scripted messages."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from message_lists import source_of

from palimpsest.adapters.langchain import middleware
from palimpsest.core.events import Failed, ModelReplied, Rewound

SMALL = {"PAL_COMPACT_AT": "4000"}
ROUNDS = 8
PROMPTS = [300 + 900 * number for number in range(ROUNDS + 1)]
ASKED: Any = {"messages": [{"role": "user", "content": "Read all parts."}]}


def read(number: int) -> str:
    """Read a part."""
    return source_of(number, 60)


class Reader(BaseChatModel):
    """A model that asks for one part after the other, whole or in chunks; `sizes` are the characters of what it was sent."""

    model_name: str = "gpt-5"
    sizes: list[int]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _next(self, given: list[BaseMessage]) -> dict[str, Any]:
        number = len(self.sizes)
        self.sizes.append(sum(len(str(message.content)) for message in given))
        if number > ROUNDS:
            raise ConnectionError("the model is gone")
        tokens = {"input_tokens": PROMPTS[number], "output_tokens": 5, "total_tokens": PROMPTS[number] + 5}
        call = {"name": "read", "args": {"number": number}, "id": f"c{number}"}
        return {"content": "", "tool_calls": [call], "usage_metadata": tokens} if number < ROUNDS else {"content": "Done."}

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(**self._next(messages)))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        fields = self._next(messages)
        for call in fields.pop("tool_calls", []):
            piece: Any = {"name": "read", "args": f'{{"number": {call["args"]["number"]}', "id": call["id"], "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
            fields["tool_call_chunks"] = [{"name": None, "args": "}", "id": None, "index": 0}]
        yield ChatGenerationChunk(message=AIMessageChunk(**fields))


def invoked(agent: Any) -> list[Any]:
    return list(agent.invoke(ASKED)["messages"])


def invoked_async(agent: Any) -> list[Any]:
    return list(asyncio.run(agent.ainvoke(ASKED))["messages"])


def streamed(agent: Any) -> list[Any]:
    parts = list(agent.stream(ASKED, stream_mode=["messages", "values"]))
    assert len([part for mode, part in parts if mode == "messages" and isinstance(part[0], AIMessageChunk)]) > ROUNDS
    return list(parts[-1][1]["messages"])


def streamed_async(agent: Any) -> list[Any]:
    async def run() -> list[Any]:
        return [part async for part in agent.astream(ASKED, stream_mode=["messages", "values"])]

    parts = asyncio.run(run())
    assert len([part for mode, part in parts if mode == "messages" and isinstance(part[0], AIMessageChunk)]) > ROUNDS
    return list(parts[-1][1]["messages"])


@pytest.mark.parametrize("run", [invoked, invoked_async, streamed, streamed_async])
def test_an_agent_sends_folded_messages_and_keeps_its_own(run: Callable[[Any], list[Any]]) -> None:
    following, model = middleware(settings=SMALL), Reader(sizes=[])
    messages = run(create_agent(model, [read], system_prompt="You fix bugs.", middleware=[following]))
    assert [message.content for message in messages if message.type == "tool"] == [read(number) for number in range(ROUNDS)]
    assert messages[-1].content == "Done."
    assert max(model.sizes) < ROUNDS * len(read(0))
    (conversation,) = following.conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Rewound | Failed)] == []
    observed = [body.usage.prompt for body in bodies if isinstance(body, ModelReplied) and body.message]
    assert observed == [*PROMPTS[:ROUNDS], 0]
    assert "fold" in {edit.by for edit in conversation.audit()}


@pytest.mark.parametrize("run", [invoked, invoked_async])
def test_an_error_of_the_model_reaches_the_caller_and_the_next_call_is_followed_again(run: Callable[[Any], list[Any]]) -> None:
    following, model = middleware(), Reader(sizes=[0] * (ROUNDS + 1))
    agent = create_agent(model, [read], middleware=[following])
    for _ in range(2):
        with pytest.raises(ConnectionError, match="the model is gone"):
            run(agent)
    model.sizes[:] = [0] * ROUNDS
    assert [message.content for message in run(agent)] == ["Read all parts.", "Done."]
    (conversation,) = following.conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [len(body.parts) for body in bodies if isinstance(body, ModelReplied)] == [1]
