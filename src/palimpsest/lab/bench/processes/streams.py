"""How long the gateway keeps the events of replies: many streams at once, while a long conversation beside them is edited."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import StoreError
from palimpsest.lab.bench.processes.gateway import LONG_ROUNDS, GatewayProcess, body_of, round_of, rounds_before, stream_of

# Milliseconds between two events of a stream: with 50 streams, as many as 25 fast models give.
_EVENT_MS: Final = 50
_PATIENCE_S: Final = 60.0
_MARK: Final = re.compile(rb"@(\d+)\.(\d+)@")
_NUMBER: Final = re.compile(rb"stream (\d+)\.")
_LENGTH: Final = re.compile(rb"content-length: (\d+)")
_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class StreamTimes:
    """When each event was sent and arrived, in seconds, by stream and number; and the bytes of each reply, sent and arrived."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], float] = {}
        self.arrived: dict[tuple[int, int], float] = {}
        self.replies: dict[int, bytes] = {}
        self.received: dict[int, bytes] = {}
        self.edited = 0

    def delays_ms(self) -> list[float]:
        """Return how long each event took from the provider to the client, in milliseconds, sorted."""
        return sorted((self.arrived[key] - sent) * 1_000 for key, sent in self.sent.items())


async def time_streams(command: tuple[str, ...], mode: str, home: Path, *, streams: int, events: int) -> StreamTimes:
    """Run streams through a gateway process, while one conversation of 200,000 tokens beside them asks and is edited again and again."""
    times, bodies = StreamTimes(), _edited_bodies()
    async with _provider(times, events) as url:
        process = await asyncio.to_thread(GatewayProcess, command, mode, home, url)
        try:
            # The first request of a long conversation is recorded before anything is timed.
            await _ask(process, "edited", bodies[0])
            beside = asyncio.create_task(_ask_again_and_again(process, bodies[1:], times))
            await asyncio.gather(*(_follow(process, number, times) for number in range(streams)))
            beside.cancel()
            await asyncio.wait((beside,))
        finally:
            await asyncio.to_thread(process.close)
    return times


def _edited_bodies() -> list[bytes]:
    messages = rounds_before(LONG_ROUNDS)
    bodies = []
    for number in range(LONG_ROUNDS, LONG_ROUNDS + 100):
        bodies.append(body_of(messages))
        messages = [*messages, *round_of(number)]
    return bodies


async def _ask_again_and_again(process: GatewayProcess, bodies: Sequence[bytes], times: StreamTimes) -> None:
    for body in bodies:
        await _ask(process, "edited", body)
        times.edited += 1
        await asyncio.sleep(0.1)


async def _ask(process: GatewayProcess, session: str, body: bytes) -> None:
    """Send a request on a connection of its own, and read the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    async with _closing(writer):
        writer.write(process.request(body, session))
        await _read_message(reader)


async def _follow(process: GatewayProcess, number: int, times: StreamTimes) -> None:
    """Read one stream, and note when each of its events arrives."""
    body = body_of([{"role": "user", "content": [{"type": "text", "text": f"stream {number}."}]}])
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    received = b""
    async with _closing(writer):
        writer.write(process.request(body, f"stream-{number}"))
        while not received.endswith(b"\r\n0\r\n\r\n"):
            data = await asyncio.wait_for(reader.read(1 << 16), _PATIENCE_S)
            now = time.perf_counter()
            if not data:
                raise StoreError(f"stream {number} ended early", where="pal bench")
            # An event is never in two pieces: the provider writes it at once, and it is far shorter than a packet.
            for stream, event in _MARK.findall(data):
                times.arrived[int(stream), int(event)] = now
            received += data
    times.received[number] = _unchunked(received.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection at the end, whatever its other side does."""
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _unchunked(data: bytes) -> bytes:
    """The bytes of a body that was sent in chunks."""
    found = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        found.append(rest[: int(size, 16)])
        data = rest[int(size, 16) + 2 :]
    return b"".join(found)


@asynccontextmanager
async def _provider(times: StreamTimes, events: int) -> AsyncIterator[str]:
    """A provider that answers requests of streams event by event, and others at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rounds = LONG_ROUNDS
        async with _closing(writer):
            while body := await _read_message(reader):
                found = _NUMBER.search(body[-200:])
                if found is None:
                    await _send(writer, [stream_of(rounds, len(body) // 3)])
                    rounds += 1
                else:
                    await _stream(writer, int(found[1]), times, events)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _send(writer: asyncio.StreamWriter, pieces: Sequence[bytes]) -> None:
    writer.write(_STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, number: int, times: StreamTimes, events: int) -> None:
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 9}}
    first: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    said = (
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"@{number}.{event}@ "}}
        for event in range(events)
    )
    last: list[dict[str, Any]] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 90}},
        {"type": "message_stop"},
    ]
    pieces = [_written(first), *(_written([event]) for event in said), _written(last)]
    times.replies[number] = b"".join(pieces)
    writer.write(_STREAM_HEAD)
    for event, piece in enumerate(pieces, -1):
        # Streams are out of step, as those of clients that do not know of each other are.
        await asyncio.sleep((_EVENT_MS + number % 7) / 1_000)
        if 0 <= event < events:
            times.sent[number, event] = time.perf_counter()
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")


def _written(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """The body of a message of HTTP, by its length or in chunks; empty at the end of the connection."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE_S)
        length = _LENGTH.search(head.lower())
        if length is not None:
            return await reader.readexactly(int(length[1]))
        return await reader.readuntil(b"\r\n0\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
