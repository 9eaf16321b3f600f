"""Threads of a session: its own work is done in one, and what takes long does not hold it up."""

import asyncio
import threading

from palimpsest.agent.session import Environment, inline
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


def environment() -> Environment:
    return Environment(MemorySessions(), MemoryBlobs(), FixedClock(0))


def test_all_work_of_a_session_is_done_in_one_thread_that_no_other_session_uses() -> None:
    async def threads(of: Environment) -> set[int]:
        return set(await asyncio.gather(*(of.offload(threading.get_ident) for _ in range(20))))

    async def both() -> tuple[set[int], set[int]]:
        first, second = environment(), environment()
        return await threads(first), await threads(second)

    first, second = asyncio.run(both())
    assert (len(first), len(second)) == (1, 1)
    assert len(first | second | {threading.get_ident()}) == 3


def test_work_that_takes_long_does_not_hold_up_that_of_the_session() -> None:
    ended = threading.Event()

    async def run() -> str:
        here = environment()
        long = asyncio.ensure_future(here.offload_long(ended.wait))
        done = await asyncio.wait_for(here.offload(lambda: "done"), 120)
        ended.set()
        assert await long
        return done

    assert asyncio.run(run()) == "done"


def test_an_environment_without_threads_has_none_for_long_work() -> None:
    assert Environment(MemorySessions(), MemoryBlobs(), FixedClock(0), offload=inline).offload_long is inline
