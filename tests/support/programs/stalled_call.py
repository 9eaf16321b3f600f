"""A process in the middle of a call: its provider has yielded some text and then waits for ever."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from palimpsest.core.events import ModelReplied, SessionOpened, Usage, UserSaid
from palimpsest.core.events.deltas import Delta, TextDelta, UsageDelta
from palimpsest.core.items import Text
from palimpsest.core.ports import Sendable
from palimpsest.engine.calls.call import call
from palimpsest.engine.calls.stopping import run
from palimpsest.engine.environment import Environment
from palimpsest.engine.session import Session
from palimpsest.profiles.named import profile
from palimpsest.stores.home import Home
from palimpsest.wire.models.cards import ModelCard, card


class Stalled:
    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        yield UsageDelta(Usage(input=12))
        yield TextDelta("Half of ")
        yield TextDelta("an answer")
        print("stalled", flush=True)
        await asyncio.Event().wait()


def provider(_card: ModelCard, _purpose: str) -> Stalled:
    return Stalled()


def main(folder: str) -> None:
    home = Home.at(Path(folder))
    environment = Environment(home.store, home.blobs, home.clock, provider=provider)
    with Session.create(SessionOpened("s"), profile("none"), card("claude-sonnet-4-5"), environment) as session:
        session.log.append(UserSaid((Text("go"),)))
        run(call(session))


if __name__ == "__main__":
    main(sys.argv[1])
