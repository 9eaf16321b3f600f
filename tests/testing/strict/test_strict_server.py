"""The strict double over HTTP, as the official clients see it."""

from typing import Any

import anthropic
import openai
import pytest

from palimpsest.testing.strict.answers import ScriptedFailure
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

MODEL = "claude-opus-5-5"
TOOLS: Any = [{"name": "ls", "description": "List.", "input_schema": {"type": "object"}}]


@pytest.mark.states("PV-90", "PV-91")
def test_the_official_client_reads_the_same_reply_whole_and_streamed_and_is_refused_with_its_own_error() -> None:
    with StrictProvider(
        [[thinks("hm"), says("I look."), calls("ls", path="ä")], ScriptedFailure(529, "overloaded_error", "Overloaded")]
    ) as provider:
        client = anthropic.Anthropic(base_url=provider.url, api_key="key", max_retries=0)
        asked: Any = {"model": MODEL, "max_tokens": 4_096, "tools": TOOLS, "messages": [{"role": "user", "content": "look"}]}
        with client.beta.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        assert [block.type for block in streamed.content] == ["thinking", "text", "tool_use"]
        assert (streamed.stop_reason, streamed.content[2].to_dict()["input"]) == ("tool_use", {"path": "ä"})
        reply = [block.to_dict(exclude_none=True) for block in streamed.content]
        result = {"type": "tool_result", "tool_use_id": reply[2]["id"], "content": "a"}
        later: Any = [{"role": "user", "content": "away"}, {"role": "assistant", "content": reply}, {"role": "user", "content": [result]}]
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            client.messages.create(**{**asked, "messages": later})
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            client.messages.count_tokens(**{key: value for key, value in asked.items() if key != "max_tokens"} | {"messages": later})
        with pytest.raises(anthropic.InternalServerError, match="Overloaded"):
            client.messages.create(**{**asked, "messages": [asked["messages"][0], *later[1:]]})
        assert (provider.counts.requests, provider.counts.refused) == (4, {"binding": 2, "scripted": 1})


@pytest.mark.states("PV-41")
def test_the_list_of_models_says_which_compact_on_demand() -> None:
    with StrictProvider() as provider:
        found: dict[str, Any] = {model.id: model for model in anthropic.Anthropic(base_url=provider.url, api_key="key").beta.models.list()}
        listed = {model.id for model in openai.OpenAI(base_url=f"{provider.url}/v1", api_key="key").models.list()}
    compacts = {name: model.capabilities.compaction.summarize.supported for name, model in found.items()}
    assert (compacts["claude-opus-5-5"], compacts["claude-haiku-4-5"]) == (True, False)
    assert (found["claude-haiku-4-5"].max_input_tokens, "gpt-6-astra" in listed, "claude-opus-5-5" in listed) == (200_000, True, False)
