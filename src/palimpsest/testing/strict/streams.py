"""A finished reply as the events of a stream, as Anthropic Messages, Responses and Chat Completions send them."""

import json
from collections.abc import Iterator
from typing import Final

from palimpsest.testing.strict.answers import JsonObject

_PIECE: Final = 12


def message_stream(message: JsonObject) -> Iterator[bytes]:
    """The events of a message of Anthropic; what it says of the input comes with its start, its stop reason and output at the end."""
    start = {key: value for key, value in message.items() if key not in {"content", "stop_reason", "stop_sequence", "context_management"}}
    usage = {**message["usage"], "output_tokens": 1}
    usage.pop("iterations", None)
    start |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        opened, deltas = _pieces_of(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": opened})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    final = {key: value for key, value in message["usage"].items() if key not in {"cache_creation", "service_tier"}}
    last: JsonObject = {"type": "message_delta", "delta": ended, "usage": final}
    if "context_management" in message:
        last["context_management"] = message["context_management"]
    yield _event(last)
    yield _event({"type": "message_stop"})


def _pieces_of(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _cut(block["text"])]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"])]
            return {**block, "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use" | "server_tool_use":
            pieces = _cut(json.dumps(block["input"], ensure_ascii=False))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case "compaction" if "signature" not in block:
            return {**block, "content": ""}, [{"type": "compaction_delta", "content": block["content"]}]
        case _:
            return block, []


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _event(event: JsonObject) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode(errors="replace")


def response_stream(response: JsonObject) -> Iterator[bytes]:
    """The events of a response of OpenAI; sealed reasoning is whole only when its item is done."""
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    listed: list[JsonObject] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        opened = {**item, "content": []} if item["type"] == "message" else {**item, "status": "in_progress"}
        if item["type"] == "reasoning":
            opened = {**item, "encrypted_content": ""}
        if item["type"] == "function_call":
            opened["arguments"] = ""
        listed.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        place = {"output_index": index, "item_id": item.get("id")}
        if item["type"] == "message":
            part = {"content_index": 0, **place}
            text = item["content"][0]["text"]
            empty = {"type": "output_text", "text": "", "annotations": []}
            listed.append({"type": "response.content_part.added", **part, "part": empty})
            listed += [{"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []} for piece in _cut(text)]
            listed.append({"type": "response.output_text.done", **part, "text": text, "logprobs": []})
            listed.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
        if item["type"] == "function_call":
            listed += [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in _cut(item["arguments"])]
            listed.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
        listed.append({"type": "response.output_item.done", "output_index": index, "item": item})
    listed.append({"type": "response.completed", "response": response})
    for number, event in enumerate(listed):
        yield _event({**event, "sequence_number": number})


def completion_stream(completion: JsonObject) -> Iterator[bytes]:
    """The chunks of a completion of OpenAI, with its usage in the last one."""
    facts = {**{key: completion[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    choice = completion["choices"][0]
    message = choice["message"]
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _cut(message["content"] or ""))]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message.get("tool_calls", ()))]
    for delta in deltas:
        yield _chunk({**facts, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _chunk({**facts, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _chunk({**facts, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def _chunk(chunk: JsonObject) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode(errors="replace")
