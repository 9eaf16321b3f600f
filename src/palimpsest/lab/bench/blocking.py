"""How long the engine keeps an event loop from everything else while it folds and calls a model, at 200,000 tokens."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.events import ModelReplied, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.ports import Sendable
from palimpsest.engine.call import call
from palimpsest.engine.environment import Environment
from palimpsest.engine.moments import compact, end_turn, start_turn
from palimpsest.engine.session import Session
from palimpsest.lab.bench.bars import Bar, bar
from palimpsest.lab.bench.room import Room
from palimpsest.lab.sessions import made_up
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import MemoryBlobs
from palimpsest.wire.cards import ModelCard, card

_MODEL = "claude-sonnet-4-5"
_TICK_S = 0.001
# A session says so many unscaled tokens that its view has about 200,000 of the model's.
_TOKENS = 135_000
_RUNS = 3


class _Talking:
    """A provider that streams a few words."""

    def provider(self, _card: ModelCard, _purpose: str) -> "_Talking":
        return self

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        words = ("Three ", "files ", "changed.")
        for word in words:
            yield TextDelta(word)
            await asyncio.sleep(0)
        yield ModelReplied((Text("".join(words), "assistant"),), stop="end_turn", model=_MODEL)


class _Watch:
    """Measures how late a timer of one millisecond is: so long nothing else could run."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def tick(self) -> None:
        """Tick until it is cancelled."""
        with suppress(asyncio.CancelledError):
            while True:
                begun = time.perf_counter()
                await asyncio.sleep(_TICK_S)
                self.longest = max(self.longest, time.perf_counter() - begun - _TICK_S)


def measure_blocking(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`loop_ms`."""
    room.tell("how long the event loop is blocked")
    found = [_run(room, number) for number in range(_RUNS)]
    yield bar("loop_ms", min(each[0] for each in found) * 1_000, tokens=min(each[1] for each in found))


def _run(room: Room, number: int) -> tuple[float, int]:
    """The longest block in seconds over a turn that begins with a fold, and the tokens before it."""
    log = made_up(number + 1, _TOKENS, room.store, f"blocking-{number}")
    environment = Environment(room.store, MemoryBlobs(), room.clock, provider=_Talking().provider)
    with Session(log, profile("palimpsest"), card(_MODEL), environment) as session:
        tokens = session.used
        return asyncio.run(_turn(session)), tokens


async def _turn(session: Session) -> float:
    watch = _Watch()
    ticking = asyncio.create_task(watch.tick())
    await start_turn(session)
    session.log.append(UserSaid((Text("Summarise what you changed, file by file."),)))
    await call(session)
    await compact(session)
    await call(session)
    await end_turn(session)
    ticking.cancel()
    await ticking
    return watch.longest
