"""`pal gateway` as a process between a client and a provider on the loopback, and the requests and replies of a long conversation."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from palimpsest.core.errors import StoreError
from palimpsest.lab.bench.processes.memory import resident_kb

_MODEL: Final = "claude-sonnet-4-6"
LONG_ROUNDS: Final = 400
"""Rounds of a list of about 200,000 tokens: a call, and its result of 1,400 characters."""
_TOKEN_BYTES: Final = 3
# Every so many rounds, a tool gives the result that it gave before.
_REPEAT: Final = 8
_PATIENCE_S: Final = 60.0
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


def round_of(number: int) -> list[dict[str, Any]]:
    """Return the messages of a round as a client sends them: a call of a tool, and its result."""
    shown = number - number % 3 if number % _REPEAT == 0 else number
    words = f"value_{shown} = part_{shown}.of(main, other)\n" * 32
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"make t{shown}"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": words}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def rounds_before(count: int) -> list[dict[str, Any]]:
    """Return a list of messages with so many rounds."""
    first = {"role": "user", "content": [{"type": "text", "text": "Read all of it, and never touch a.py."}]}
    return [first, *(message for number in range(count) for message in round_of(number))]


def stream_of(number: int, tokens: int) -> bytes:
    """Return the reply before a round: the call as a stream of events. Most of its prompt was read from the cache."""
    call = round_of(number)[0]["content"][0]
    usage = {"input_tokens": 5, "cache_read_input_tokens": max(0, tokens - 805), "cache_creation_input_tokens": 800, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": _MODEL, "content": [], "usage": usage}
    arguments = msgspec.json.encode(call["input"]).decode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": call | {"input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events)


def body_of(messages: Sequence[dict[str, Any]]) -> bytes:
    """Return a request with these messages: as clients do, with a breakpoint at the system prompt and one at the last message."""
    *before, last = messages
    content = last["content"]
    marked = {**last, "content": [*content[:-1], content[-1] | {"cache_control": {"type": "ephemeral"}}]}
    system = [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]
    return msgspec.json.encode(
        {"model": _MODEL, "max_tokens": 8_000, "stream": True, "system": system, "tools": tools, "messages": [*before, marked]}
    )


class LoopbackProvider:
    """A provider that notes when the first byte of each request arrives, and answers with the call before `round` once it is whole."""

    def __init__(self) -> None:
        self.round = 0
        self.arrived: SimpleQueue[float] = SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while received := connection.recv(1 << 20):
                self.arrived.put(time.perf_counter())
                reply = stream_of(self.round, _rest_of_message(connection, received) // _TOKEN_BYTES)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(reply)
                connection.sendall(head + reply)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()


def _rest_of_message(connection: socket.socket, received: bytes) -> int:
    """Read a message of HTTP to its end, by its length in bytes, and return that. Raises `OSError` if the connection ends before."""
    while _HEAD_END not in received:
        received += _some_of(connection)
    head, _, body = received.partition(_HEAD_END)
    length = next(int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH))
    left = length - len(body)
    while left > 0:
        left -= len(_some_of(connection))
    return length


def _some_of(connection: socket.socket) -> bytes:
    found = connection.recv(1 << 20)
    if not found:
        raise ConnectionResetError
    return found


class GatewayProcess:
    """`pal gateway` as a process that ends with its standard input, and a client of it."""

    def __init__(self, command: tuple[str, ...], mode: str, home: Path, upstream: str) -> None:
        read, write = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - measured
            (*command, "gateway", "--mode", mode, "--port", "0", "--anthropic", upstream, "--wrapped", str(write), "--json-stream"),
            env={**os.environ, "PAL_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(write,),
        )
        os.close(write)
        self._reports = os.fdopen(read, "rb")
        line = self._reports.readline().decode().strip()
        if not line:
            raise StoreError("the gateway did not start", where="pal bench")
        self.port = int(line.rpartition(":")[2])
        self._connection = socket.create_connection(("127.0.0.1", self.port), _PATIENCE_S)

    def memory_kb(self) -> int:
        """Return the memory of the process and of those that it started, now, in kB."""
        return sum(size for number, (parent, size) in resident_kb().items() if self._process.pid in (number, parent))

    def request(self, body: bytes, session: str) -> bytes:
        """Return the bytes of a request of a session."""
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nx-claude-code-session-id: {session}\r\n"
            f"anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def ask(self, body: bytes, session: str) -> float:
        """Send a request, read its reply, wait until both are recorded, and return when its first byte was sent."""
        request = self.request(body, session)
        begun = time.perf_counter()
        self._connection.sendall(request)
        _rest_of_message(self._connection, b"")
        if self._process.stdout is None or not self._process.stdout.readline():
            raise StoreError("the gateway did not record a request", where="pal bench")
        return begun

    def close(self) -> None:
        """End the process, and wait for it."""
        self._connection.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(_PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._reports.close()


@contextmanager
def gateway_between(command: tuple[str, ...], mode: str, home: Path) -> Iterator[tuple[GatewayProcess, LoopbackProvider]]:
    """The gateway in a mode, and its provider, while they run."""
    provider = LoopbackProvider()
    try:
        process = GatewayProcess(command, mode, home, provider.url)
        try:
            yield process, provider
        finally:
            process.close()
    finally:
        provider.close()
