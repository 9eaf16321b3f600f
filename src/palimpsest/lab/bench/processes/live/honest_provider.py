"""A provider on the loopback that bills each request by its own cache, and answers with the reply that was recorded."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from palimpsest.lab.bench.processes.live.honest_cache import BilledTokens, MarkedCache, PrefixCache, tokens_of


class HonestProvider:
    """Answers on a port of the loopback. `reply` is the next answer and `now` the time in seconds; `billed` are its bills so far."""

    def __init__(self, *, marked: bool, writes: bool = False) -> None:
        self.reply: list[dict[str, Any]] = []
        self.now = 0.0
        self.billed: list[BilledTokens] = []
        self.bodies: list[dict[str, Any]] = []
        self._cache = MarkedCache() if marked else PrefixCache(writes=writes)
        provider = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = provider.answered(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answered(self, body: dict[str, Any]) -> bytes:
        """Bill a request and return the bytes of its reply."""
        tokens = self._cache.bill(body, self.now)._replace(output=output_of(self.reply))
        self.billed.append(tokens)
        self.bodies.append(body)
        return (
            stream_of(self.reply, tokens, len(self.billed)) if body.get("stream") else completion_of(self.reply, tokens, len(self.billed))
        )

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def output_of(reply: list[dict[str, Any]]) -> int:
    """Return the tokens of a reply."""
    return sum(tokens_of(json.dumps(block)) for block in reply)


def stream_of(reply: list[dict[str, Any]], tokens: BilledTokens, number: int) -> bytes:
    """Return a reply as the events of Anthropic Messages, with its usage."""
    created = {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": tokens.written_long}
    usage = {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.read,
        "cache_creation_input_tokens": tokens.written + tokens.written_long,
        "cache_creation": created,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(reply):
        if block["type"] == "tool_use":
            opened = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block.get("input", {}))}
        else:
            opened, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = "tool_use" if any(block["type"] == "tool_use" for block in reply) else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": tokens.output}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def completion_of(reply: list[dict[str, Any]], tokens: BilledTokens, number: int) -> bytes:
    """Return a reply as a completion, with its usage."""
    words = "".join(block["text"] for block in reply if block["type"] == "text")
    calls = [
        {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": json.dumps(block.get("input", {}))}}
        for block in reply
        if block["type"] == "tool_use"
    ]
    message = {"role": "assistant", "content": words or None, **({"tool_calls": calls} if calls else {})}
    prompt = tokens.input + tokens.read + tokens.written
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.read, "cache_write_tokens": tokens.written},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return json.dumps({"id": f"c{number}", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()
