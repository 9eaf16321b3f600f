"""An agent of pydantic-ai with its messages followed, with the real package and a model that is a function."""

from typing import Any

import pytest
from message_lists import source_of

from palimpsest.adapters.pydantic_ai import capability
from palimpsest.core.events import Failed, Rewound

ROUNDS = 8


def read(number: int) -> str:
    """Read a part."""
    return source_of(number, 60)


def test_an_agent_of_pydantic_ai_sends_folded_messages_and_keeps_its_own() -> None:
    ai: Any = pytest.importorskip("pydantic_ai", reason="the agents of pydantic-ai come with the extra `pydantic-ai`")
    functions: Any = pytest.importorskip("pydantic_ai.models.function")
    types: Any = pytest.importorskip("pydantic_ai.messages")
    seen: list[list[Any]] = []

    def model(messages: list[Any], info: Any) -> Any:
        seen.append(messages)
        number = len(seen) - 1
        if number == ROUNDS:
            return types.ModelResponse(parts=[types.TextPart("Done.")])
        return types.ModelResponse(parts=[types.ToolCallPart("read", {"number": number}, tool_call_id=f"c{number}")])

    following = capability(settings={"PAL_COMPACT_AT": "4000"})
    agent = ai.Agent(functions.FunctionModel(model), instructions="You fix bugs.", tools=[read], capabilities=[following])
    result = agent.run_sync("Read all parts.")
    assert result.output == "Done."
    returned = [part.content for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    assert returned == [read(number) for number in range(ROUNDS)]
    sizes = [sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts) for messages in seen]
    assert max(sizes) < ROUNDS * len(read(0))
    assert all(messages[-1].instructions == "You fix bugs." for messages in seen)
    (conversation,) = following.conversations.all()
    bodies = [event.body for event in conversation.session.log.events()]
    assert [body for body in bodies if isinstance(body, Rewound) or (isinstance(body, Failed) and body.what == "mirror")] == []
    assert "fold" in {edit.by for edit in conversation.audit()}
