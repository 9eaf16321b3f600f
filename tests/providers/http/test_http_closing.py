"""Streams that are abandoned before their end: the server sees the connection close, and no task remains."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from palimpsest.core.deltas import Delta, TextDelta, UsageDelta
from palimpsest.core.errors import ConnectionLost, ProviderError
from palimpsest.core.events import ModelReplied
from palimpsest.core.ports import closing
from palimpsest.providers.http import HttpProvider
from palimpsest.wire.models import card
from palimpsest.wire.stream import decoder

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
SONNET = card("claude-sonnet-4-5")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = (STREAMS / "anthropic.sse").read_bytes()
PART = WHOLE[: WHOLE.index(b'event: content_block_stop\ndata: {"type":"content_block_stop","index":2}')]
PATIENCE = 10.0


@dataclass(frozen=True)
class Letter:
    wire: str = "anthropic"
    body: bytes = b'{"stream":true}'


@dataclass
class Server:
    """Sends some bytes, and then waits for the client to go."""

    sends: bytes
    url: str = ""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(Letter().body))
        writer.write(self.sends)
        await writer.drain()
        self.asked.set()
        await reader.read()
        self.left.set()
        writer.close()

    async def run(self, client: Callable[[str], Awaitable[None]]) -> None:
        """Serve while the client works, and see it go; then no task is left but this one."""
        async with await asyncio.start_server(self, "127.0.0.1", 0) as server:
            await client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await asyncio.wait_for(self.left.wait(), PATIENCE)
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*handlers), PATIENCE)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_closing_a_stream_closes_its_connection_at_once() -> None:
    async def scenario() -> None:
        server = Server(HEAD + chunk(PART))

        async def client(url: str) -> None:
            async with closing(HttpProvider(SONNET, url, "k").stream(Letter())) as stream:
                assert isinstance(await anext(stream), UsageDelta)

        await server.run(client)

    asyncio.run(scenario())


@pytest.mark.parametrize("sends", [b"", HEAD, HEAD + chunk(PART)], ids=["before an answer", "before an event", "within the stream"])
def test_cancelling_a_task_closes_the_connection_wherever_it_waits(sends: bytes) -> None:
    async def scenario() -> None:
        server = Server(sends)

        async def read(url: str, got: asyncio.Event) -> None:
            async for each in HttpProvider(SONNET, url, "k").stream(Letter()):
                if each == TextDelta("the file – 读取。"):
                    got.set()

        async def client(url: str) -> None:
            got = asyncio.Event()
            task = asyncio.create_task(read(url, got))
            await (got.wait() if PART in sends else server.asked.wait())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        await server.run(client)

    asyncio.run(scenario())


def test_a_reused_connection_is_closed_too_when_its_stream_is_abandoned() -> None:
    async def scenario() -> None:
        server = Server(HEAD + chunk(PART))

        async def client(url: str) -> None:
            async with HttpProvider(SONNET, url, "k") as provider:
                async with closing(provider.stream(Letter())) as stream:
                    await anext(stream)
                await asyncio.wait_for(server.left.wait(), PATIENCE)

        await server.run(client)

    asyncio.run(scenario())


@pytest.mark.parametrize("sends", [b"", HEAD + chunk(PART)], ids=["before an answer", "within the stream"])
def test_a_silent_provider_fails_after_its_timeout(sends: bytes) -> None:
    async def scenario() -> None:
        server = Server(sends)

        async def client(url: str) -> None:
            line = rf"^anthropic: {url} did not answer in time: it was silent for 0.2 seconds; ask again, or allow a longer timeout$"
            with pytest.raises(ProviderError, match=line) as caught:
                async for _ in HttpProvider(SONNET, url, "k", timeout=0.2).stream(Letter()):
                    pass
            assert not isinstance(caught.value, ConnectionLost)

        await server.run(client)

    asyncio.run(scenario())


def test_a_complete_reply_is_returned_although_the_server_never_ends_the_stream() -> None:
    async def scenario() -> None:
        server = Server(HEAD + chunk(WHOLE))
        got: list[Delta | ModelReplied] = []

        async def client(url: str) -> None:
            got.extend([each async for each in HttpProvider(SONNET, url, "k", timeout=0.2).stream(Letter())])

        await server.run(client)
        decoding = decoder("anthropic", SONNET)
        assert got == [*decoding.feed(WHOLE), decoding.finish()]

    asyncio.run(scenario())


def test_a_connection_that_is_dropped_before_an_answer_is_lost() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(drop, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(ConnectionLost, match=f"^anthropic: {url} cannot be reached: "):
                await anext(HttpProvider(SONNET, url, "k").stream(Letter()))

    asyncio.run(scenario())
