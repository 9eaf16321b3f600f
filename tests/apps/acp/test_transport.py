"""Lines as messages: any bytes are survived, each line that is none is answered, and long ones are not kept."""

import asyncio
import json
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pal.acp.transport import LineTransport

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}


async def connected(reader: asyncio.StreamReader, largest: int = 1_000) -> tuple[LineTransport, int]:
    """A transport whose output goes to a pipe, and the end from which that can be read."""
    read_end, write_end = os.pipe()
    loop, pipe = asyncio.get_running_loop(), os.fdopen(write_end, "wb", 0)
    output, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe)
    return LineTransport(reader, asyncio.StreamWriter(output, protocol, None, loop), largest), read_end


def everything(read_end: int) -> bytes:
    with os.fdopen(read_end, "rb") as pipe:
        return pipe.read()


async def exchange(data: bytes) -> tuple[list[Any], list[Any]]:
    """The messages that a transport takes from some input, and what it answers by itself."""
    reader = asyncio.StreamReader(limit=64)
    reader.feed_data(data)
    reader.feed_eof()
    transport, read_end = await connected(reader)
    written = asyncio.ensure_future(asyncio.to_thread(everything, read_end))
    found = []
    while (message := await transport.receive()) is not None:
        found.append(message)
    await transport.close()
    return found, [json.loads(line) for line in (await written).splitlines()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=200)))
def test_any_bytes_are_survived_and_a_request_behind_them_arrives(lines: list[bytes]) -> None:
    garbage = b"\n".join(line.replace(b"\n", b"") for line in lines)
    found, answers = asyncio.run(exchange(garbage + b"\n" + json.dumps(REQUEST).encode() + b"\n"))
    assert found[-1] == REQUEST
    assert all(answer["error"]["code"] in (-32700, -32600) and answer["id"] is None for answer in answers)


def test_a_line_of_more_bytes_than_a_message_may_have_is_refused_once() -> None:
    line = json.dumps({**REQUEST, "params": {"text": "x" * 5_000}}).encode()
    found, answers = asyncio.run(exchange(line + b"\n" + json.dumps(REQUEST).encode() + b"\n"))
    assert found == [REQUEST]
    assert [answer["error"]["message"] for answer in answers] == ["Invalid request: a message has at most 1,000 bytes"]


def test_a_message_that_is_cut_off_by_the_end_is_no_message() -> None:
    assert asyncio.run(exchange(json.dumps(REQUEST).encode())) == ([], [])


def test_halves_of_surrogate_pairs_are_written_as_what_every_parser_reads() -> None:
    async def scenario() -> bytes:
        transport, read_end = await connected(asyncio.StreamReader())
        await transport.send({"text": "a\ud800b 好"})
        await transport.close()
        return await asyncio.to_thread(everything, read_end)

    assert asyncio.run(scenario()) == '{"text":"a?b 好"}\n'.encode()
