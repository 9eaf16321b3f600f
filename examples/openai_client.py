"""Loops with the openai SDK, over Responses and over Chat Completions, within a small window; the model is a function of this file."""

import json
from typing import Any

import httpx2
import openai

from palimpsest.adapters.openai import followed

ROUNDS = 12
SENT: list[int] = []


def answer(request: httpx2.Request) -> httpx2.Response:
    """Ask for one part after the other, and then be done."""
    SENT.append(len(request.content))
    number, tokens = len(SENT), len(request.content) // 4
    arguments = json.dumps({"path": f"part_{number}.py"})
    if request.url.path.endswith("/responses"):
        call: dict[str, Any] = {"type": "function_call", "call_id": f"call_{number}", "name": "read", "arguments": arguments}
        parts = [{"type": "output_text", "text": "Done.", "annotations": []}]
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": parts}
        response = {"id": f"r_{number}", "object": "response", "status": "completed", "output": [call if number <= ROUNDS else said]}
        return httpx2.Response(200, json=response | {"usage": {"input_tokens": tokens, "output_tokens": 9}})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
    message = (
        {"role": "assistant", "content": None, "tool_calls": [call]} if number <= ROUNDS else {"role": "assistant", "content": "Done."}
    )
    completion = {"id": f"c_{number}", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    return httpx2.Response(200, json=completion | {"usage": {"prompt_tokens": tokens, "completion_tokens": 9}})


def read(arguments: str) -> str:
    return f"# {arguments}\nvalue = 1\n" * 800


def loop_over_responses(client: openai.OpenAI) -> list[Any]:
    items: list[Any] = [{"role": "user", "content": "Read all parts."}]
    while True:
        reply = client.responses.create(model="gpt-5", input=items)
        items += reply.output
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return items
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": read(call.arguments)} for call in calls]


def loop_over_chat(client: openai.OpenAI) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
    while True:
        reply = client.chat.completions.create(model="gpt-5", messages=messages).choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            return messages
        messages += [{"role": "tool", "tool_call_id": call.id, "content": read(str(call))} for call in reply.tool_calls]


def main() -> None:
    for name, loop in (("responses", loop_over_responses), ("chat", loop_over_chat)):
        SENT.clear()
        offline = openai.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
        client: Any = followed(openai.OpenAI(api_key="none", http_client=offline), settings={"PAL_COMPACT_AT": "20000"})
        messages = loop(client)
        (conversation,) = client.conversations.all()
        edited = sorted({edit.by for edit in conversation.audit()})
        print(f"{name}: {len(messages)} messages in the list, at most {max(SENT) // 1000} kB were sent, edited by {', '.join(edited)}")


if __name__ == "__main__":
    main()
