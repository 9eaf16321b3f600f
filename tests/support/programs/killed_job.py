"""A process whose job has run once and is in the middle of its second run, in which its model never answers; run as a program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from palimpsest.agent.agent import Agent
from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.core.plans import Ask, JobLimits, JobMoment, JobPlan, JobSituation, JobSteps
from palimpsest.core.ports import Sendable
from palimpsest.stores.home import FolderHome

ASK = Ask((), "a word, please", purpose="word", head=False, tools=False)


@dataclass(frozen=True)
class Asking:
    name: str = "probe"
    moments: frozenset[JobMoment] = frozenset({"turn_ends"})
    limits: JobLimits = JobLimits()  # noqa: RUF009 - a frozen value

    def plan(self, situation: JobSituation) -> JobPlan:
        def steps() -> JobSteps:
            yield ASK
            return ()

        return steps()


class OnceAnswering:
    """Answers everything but the second request of the job."""

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
        self.asked += b"a word, please" in request.body
        if self.asked == 2:
            yield TextDelta("half a")
            print("in the middle of the second run", flush=True)
            await asyncio.Event().wait()
        yield ModelReplied((Text("ok", "assistant"),), stop="end_turn", model="claude-sonnet-4-5")


async def main(folder: str) -> None:
    agent = Agent("claude-sonnet-4-5", provider=OnceAnswering(), home=FolderHome(Path(folder)), jobs=(Asking(),), profile="none")
    print(agent.id, flush=True)
    for prompt in ("first", "second"):
        await agent.ask(prompt)
        await agent.jobs.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
