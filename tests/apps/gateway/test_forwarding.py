"""What is passed on of a request, whether its length is known or not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pal.gateway.routing import read_body


@pytest.mark.parametrize(
    ("most", "found", "held"),
    [(9, b"aaabbbccc", 3), (8, [b"aaa", b"bbb", b"ccc"], 3), (5, [b"aaa", b"bbb", b"ccc"], 2), (0, [b"aaa", b"bbb", b"ccc"], 1)],
)
def test_a_body_that_is_too_long_is_a_stream_of_all_its_chunks_of_which_few_were_read(
    most: int, found: bytes | list[bytes], held: int
) -> None:
    given: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"aaa", b"bbb", b"ccc"):
            given.append(chunk)
            yield chunk

    async def read() -> tuple[bytes | list[bytes], int]:
        body = await read_body(chunks(), most)
        count = len(given)
        return (body if isinstance(body, bytes) else [chunk async for chunk in body]), count

    assert asyncio.run(read()) == (found, held)
