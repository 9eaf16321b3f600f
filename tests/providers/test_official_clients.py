import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Item, Opaque, Text, Thinking, ToolCall, ToolResult, kind_of
from palimpsest.core.view import View
from palimpsest.wire.encode import encode
from palimpsest.wire.models import ModelCard, WireName, card
from palimpsest.wire.request import Params, Tool
from palimpsest.wire.stream import decode_response, decoder

anthropic = pytest.importorskip("anthropic", reason="the official client comes with the extra `sdk`")
openai = pytest.importorskip("openai", reason="the official client comes with the extra `sdk`")

STREAMS = Path(__file__).parents[1] / "golden" / "streams"
CARDS: dict[WireName, ModelCard] = {
    "anthropic": card("claude-sonnet-4-5"),
    "responses": card("gpt-5.5"),
    "chat": card("openai-compatible/qwen3-coder"),
}
WIRES: list[WireName] = ["anthropic", "responses", "chat"]

Serve: TypeAlias = Callable[..., tuple[str, list[tuple[str, dict[str, str], bytes]]]]
Summary: TypeAlias = tuple[str, str, list[tuple[str, str, str]], list[str], str, str, Usage]


def ours(wire: WireName, data: bytes, *, stream: bool) -> ModelReplied:
    if not stream:
        return decode_response(wire, data, CARDS[wire])
    decoding = decoder(wire, CARDS[wire])
    decoding.feed(data)
    return decoding.finish()


def summary(reply: ModelReplied) -> Summary:
    """Text, thinking, calls, seals and opaque data, id, stop, usage."""
    parts = reply.parts
    sealed = [part.signature.data for part in parts if isinstance(part, Thinking) and part.signature]
    return (
        "".join(part.text for part in parts if isinstance(part, Text)),
        "".join(part.text for part in parts if isinstance(part, Thinking)),
        [(part.call_id, part.tool, _plain(part)) for part in parts if isinstance(part, ToolCall)],
        sealed + [str(json.loads(part.data).get("id") or json.loads(part.data)["type"]) for part in parts if isinstance(part, Opaque)],
        reply.message,
        reply.provider_stop or reply.stop,
        reply.usage,
    )


def _plain(call: ToolCall) -> str:
    return call.args if call.form == "free" else _sorted(json.loads(call.args))


def _sorted(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _of_message(message: Any) -> Summary:
    blocks = message.content
    usage = message.usage
    return (
        "".join(block.text for block in blocks if block.type == "text"),
        "".join(block.thinking for block in blocks if block.type == "thinking"),
        [(block.id, block.name, _sorted(block.input)) for block in blocks if block.type == "tool_use"],
        [block.signature for block in blocks if block.type == "thinking"] + ["redacted_thinking"],
        message.id,
        message.stop_reason,
        Usage(
            usage.input_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation.ephemeral_5m_input_tokens,
            usage.cache_creation.ephemeral_1h_input_tokens,
            usage.output_tokens,
        ),
    )


def _of_response(response: Any) -> Summary:
    calls: list[tuple[str, str, str]] = []
    for item in response.output:
        if item.type == "function_call":
            calls.append((item.call_id, item.name, _sorted(json.loads(item.arguments))))
        elif item.type == "custom_tool_call":
            calls.append((item.call_id, item.name, item.input))
        elif item.type == "local_shell_call":
            calls.append((item.call_id, "local_shell", _sorted(item.action.to_dict())))
    thoughts = [item for item in response.output if item.type == "reasoning"]
    usage = response.usage
    cached = usage.input_tokens_details.cached_tokens
    return (
        response.output_text,
        "".join(part.text for item in thoughts for part in item.summary),
        calls,
        [item.encrypted_content for item in thoughts]
        + [item.id for item in response.output if item.type in ("web_search_call", "compaction")],
        response.id,
        response.status,
        Usage(usage.input_tokens - cached, cached, output=usage.output_tokens, reasoning=usage.output_tokens_details.reasoning_tokens),
    )


def _of_completion(completion: Any) -> Summary:
    message = completion.choices[0].message
    usage = completion.usage
    cached = usage.prompt_tokens_details.cached_tokens
    return (
        message.content,
        message.reasoning_content,
        [(call.id, call.function.name, _sorted(json.loads(call.function.arguments))) for call in message.tool_calls],
        [],
        completion.id,
        completion.choices[0].finish_reason,
        Usage(
            usage.prompt_tokens - cached,
            cached,
            output=usage.completion_tokens,
            reasoning=usage.completion_tokens_details.reasoning_tokens,
        ),
    )


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def theirs(wire: WireName, url: str, *, stream: bool) -> Summary:
    if wire == "anthropic":
        with anthropic.Anthropic(base_url=url, api_key="k") as client:
            if not stream:
                return _of_message(client.messages.create(max_tokens=9, **ASKED))
            with client.messages.stream(max_tokens=9, **ASKED) as events:
                return _of_message(events.get_final_message())
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        if wire == "responses":
            if not stream:
                return _of_response(client.responses.create(model="m", input="hi"))
            with client.responses.stream(model="m", input="hi") as events:
                return _of_response(events.get_final_response())
        if not stream:
            return _of_completion(client.chat.completions.create(**ASKED))
        with client.chat.completions.stream(stream_options={"include_usage": True}, **ASKED) as events:
            return _of_completion(events.get_final_completion())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("wire", WIRES)
def test_the_official_client_reads_the_same_from_the_same_bytes(wire: WireName, stream: bool, serve: Serve) -> None:
    data = (STREAMS / f"{wire}.{'sse' if stream else 'json'}").read_bytes()
    url, seen = serve(data, kind="text/event-stream" if stream else "application/json")
    assert summary(ours(wire, data, stream=stream)) == theirs(wire, url, stream=stream)
    assert seen[0][0] == {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}[wire]


def conversation(wire: WireName) -> View:
    """A conversation that goes on after the recorded reply."""
    reply = ours(wire, (STREAMS / f"{wire}.sse").read_bytes(), stream=True)
    said = tuple(Item(f"2.{place}", kind_of(part), part) for place, part in enumerate(reply.parts))
    results = tuple(
        Item(f"{3 + place}.0", "result", ToolResult(part.call_id, (Text(f"result {place}"),), form=part.form))
        for place, part in enumerate(part for part in reply.parts if isinstance(part, ToolCall))
    )
    head = (Item("0.0", "context", Text("Be brief.", role="system"), source="base"),)
    return View(head=head, items=(Item("1.0", "user", Text("Fix a.py")), *said, *results))


TOOLS = (
    Tool("read", "Reads a file."),
    Tool("todo", "Keeps a list."),
)


# The client warns of models that will go away one day; what is sent does not depend on it.
@pytest.mark.filterwarnings("ignore:The model '.*' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("wire", WIRES)
def test_the_official_client_sends_our_request_as_we_would(wire: WireName, serve: Serve) -> None:
    request = encode(conversation(wire), CARDS[wire], TOOLS, Params(max_tokens=64, stream=False))
    fields = json.loads(request.body)
    url, seen = serve((STREAMS / f"{wire}.json").read_bytes(), kind="application/json")
    if wire == "anthropic":
        with anthropic.Anthropic(base_url=url, api_key="k") as client:
            client.messages.create(**fields)
    else:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
            (client.responses if wire == "responses" else client.chat.completions).create(**fields)
    assert json.loads(seen[0][2]) == fields
