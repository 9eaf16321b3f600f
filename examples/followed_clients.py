"""A loop with the anthropic and the openai SDK whose lists are kept within a window; the model is a server on this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai

from palimpsest.adapters.anthropic import followed as followed_anthropic
from palimpsest.adapters.openai import followed as followed_openai

ROUNDS = 12
SMALL_WINDOW = {"PAL_COMPACT_AT": "20000"}


def read(path: str) -> str:
    return f"# {path}\nvalue = 1\n" * 800


def loop_with_anthropic(url: str) -> None:
    client = followed_anthropic(anthropic.Anthropic(api_key="none", base_url=url), settings=SMALL_WINDOW)
    messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
    while True:
        reply = client.messages.create(model="claude-sonnet-4-6", max_tokens=1_000, messages=messages)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": read(str(call.input))} for call in calls]
        messages.append({"role": "user", "content": results})
    report("anthropic", client, messages)


def loop_with_openai(url: str) -> None:
    client = followed_openai(openai.OpenAI(api_key="none", base_url=f"{url}/v1"), settings=SMALL_WINDOW)
    messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
    while True:
        reply = client.chat.completions.create(model="gpt-5", messages=messages).choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            break
        messages += [{"role": "tool", "tool_call_id": call.id, "content": read(str(call))} for call in reply.tool_calls]
    report("openai", client, messages)


def report(name: str, client: Any, messages: list[Any]) -> None:
    (conversation,) = client.conversations.all()
    print(
        f"{name}: {len(messages)} messages in the list, at most {SENT[name] // 1000} kB were sent, edited by {conversation.audit()[0].by}"
    )


SENT = {"anthropic": 0, "openai": 0}


@contextmanager
def model() -> Iterator[str]:
    """A model that asks for one part after the other, and then is done."""

    class Answering(BaseHTTPRequestHandler):
        count = 0

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            name = "anthropic" if self.path.endswith("/messages") else "openai"
            SENT[name] = max(SENT[name], len(json.dumps(body["messages"])))
            Answering.count += 1
            number = Answering.count % (ROUNDS + 1)
            data = json.dumps(reply_of(name, number)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reply_of(name: str, number: int) -> dict[str, Any]:
    path = {"path": f"part_{number}.py"}
    if name == "anthropic":
        block = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": path} if number else {"type": "text", "text": "Done."}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": [block], "stop_sequence": None}
        return message | {
            "stop_reason": "tool_use" if number else "end_turn",
            "usage": {"input_tokens": 3_000 * number, "output_tokens": 9},
        }
    function = {"name": "read", "arguments": json.dumps(path)}
    calls = {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]} if number else {}
    said = {"role": "assistant", "content": None if number else "Done.", **calls}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if number else "stop"}
    return {"id": f"c_{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def main() -> None:
    with model() as url:
        loop_with_anthropic(url)
        loop_with_openai(url)


if __name__ == "__main__":
    main()
