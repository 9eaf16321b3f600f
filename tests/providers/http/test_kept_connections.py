"""The calls of a session go over one connection, and over a new one where the server has closed it."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler

import pytest
from loopback import serving

from palimpsest.agent.agent import Agent

STREAM = (
    {
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "nothing", "arguments": "{}"}}]},
            }
        ]
    },
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}},
)
DONE = ({"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}, STREAM[-1])


def nothing() -> str:
    """Do nothing."""
    return "ok"


@pytest.mark.parametrize(("closes", "connections"), [(False, 1), (True, 5)])
def test_five_calls_open_one_connection_unless_the_server_closes_it(
    closes: bool, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    ended: list[object] = []
    asked: list[object] = []

    class Model(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            opened.append(self)
            super().setup()

        def finish(self) -> None:
            super().finish()
            ended.append(self)

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in (STREAM if len(asked) < 5 else DONE)) + "data: [DONE]\n\n"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(lines):x}\r\n{lines}\r\n0\r\n\r\n".encode())
            # Without a word before, as a server that is restarted.
            self.close_connection = closes

        def log_message(self, *_: object) -> None:
            return

    async def run(url: str) -> str:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        async with Agent("openai-compatible/mine", tools=[nothing]) as agent:
            return (await agent.ask("go")).stop

    with serving(Model) as url:
        assert asyncio.run(run(url)) == "done"
    assert (len(asked), len(opened), len(ended)) == (5, connections, connections)
