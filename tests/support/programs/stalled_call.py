"""A process in the middle of a call: its provider has yielded some text and then waits for ever."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from palimpsest.agent.agent import run
from palimpsest.agent.calls import call
from palimpsest.agent.session import Environment, Session
from palimpsest.core.deltas import Delta, TextDelta, UsageDelta
from palimpsest.core.events import ModelReplied, SessionOpened, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.ports import Sendable
from palimpsest.policies.named import profile
from palimpsest.stores.home import Home
from palimpsest.wire.models import ModelCard, card


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
