"""A loop with the anthropic SDK whose list is kept within a small window; the model is a function of this file."""

from typing import Any

import anthropic
import httpx2

from palimpsest.adapters.anthropic import followed

ROUNDS = 12
SENT: list[int] = []


def answer(request: httpx2.Request) -> httpx2.Response:
    """Ask for one part after the other, and then be done."""
    SENT.append(len(request.content))
    number = len(SENT)
    call = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {"path": f"part_{number}.py"}}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [call] if number <= ROUNDS else [{"type": "text", "text": "Done."}],
        "stop_reason": "tool_use" if number <= ROUNDS else "end_turn",
        "usage": {"input_tokens": len(request.content) // 4, "output_tokens": 9},
    }
    return httpx2.Response(200, json=message)


def read(path: str) -> str:
    return f"# {path}\nvalue = 1\n" * 800


def main() -> None:
    offline = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    client: Any = followed(anthropic.Anthropic(api_key="none", http_client=offline), settings={"PAL_COMPACT_AT": "20000"})
    messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
    while True:
        reply = client.messages.create(model="claude-sonnet-4-6", max_tokens=1_000, messages=messages)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": read(str(call.input))} for call in calls]
        messages.append({"role": "user", "content": results})
    (conversation,) = client.conversations.all()
    kept = sum(len(str(message["content"])) for message in messages)
    print(f"{len(messages)} messages of {kept // 1000} kB in the list, at most {max(SENT) // 1000} kB were sent")
    print(sorted({edit.by for edit in conversation.audit()}))


if __name__ == "__main__":
    main()
