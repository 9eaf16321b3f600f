"""An agent of pydantic-ai whose requests stay within a small window while its run keeps all messages; the model is a function."""

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from palimpsest.adapters.pydantic_ai import capability

ROUNDS = 12
SENT: list[int] = []


def size_of(messages: list[Any]) -> int:
    return sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts)


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Ask for one part after the other, and then be done."""
    SENT.append(size_of(messages))
    number = len(SENT)
    call = ToolCallPart("read", {"number": number}, tool_call_id=f"call_{number}")
    usage = RequestUsage(input_tokens=SENT[-1] // 4, output_tokens=9)
    return ModelResponse(parts=[call if number <= ROUNDS else TextPart("Done.")], usage=usage)


def read(number: int) -> str:
    """Read a part."""
    return f"# part {number}\nvalue = {number}\n" * 800


def main() -> None:
    following = capability(settings={"PAL_COMPACT_AT": "20000"})
    agent = Agent(FunctionModel(answer, model_name="gpt-5"), instructions="You read files.", tools=[read], capabilities=[following])
    messages = asyncio.run(agent.run("Read all parts.")).all_messages()
    print(f"{len(messages)} messages of {size_of(messages) // 1000} kB in the run, at most {max(SENT) // 1000} kB were sent")
    (conversation,) = following.conversations.all()
    print(sorted({edit.by for edit in conversation.audit()}))


if __name__ == "__main__":
    main()
