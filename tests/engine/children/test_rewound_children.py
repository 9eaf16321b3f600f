"""Sub-agents and rewinds of their parent: an end belongs to the branches on which the sub-agent was started."""

import asyncio
from pathlib import Path

from coding_tasks import scripted
from families import Family, children_of, routed, spawn, stalled

from palimpsest.core.events import TurnStarted
from palimpsest.core.items import text_of
from palimpsest.core.undo import rewind


def before_turn(family: Family, session: str, number: int) -> int:
    """The event before a turn of the path, of which the first has number 0."""
    with family.home.open(session, write=False) as log:
        return [event.seq for event in log.events() if isinstance(event.body, TurnStarted)][number] - 1


def reports_after(family: Family, session: str, to: int, prompt: str) -> int:
    """Go back to an event and ask on. Returns how many statements about ends of sub-agents the model sees."""
    with family.home.open(session) as log:
        rewind(log, to)

    async def ask() -> int:
        provider = scripted("I see.")
        async with family.root(routed(provider, {}), resume=session) as agent:
            await agent.ask(prompt)
            return provider.requests[0].body.count(b"The sub-agent Ada (default, id ")

    return asyncio.run(ask())


def test_a_report_that_was_stated_in_a_turn_that_is_taken_back_is_stated_again_once(tmp_path: Path) -> None:
    family, slow = Family(tmp_path), stalled(text="Seven files.")

    async def run() -> str:
        async with family.agent(spawn("Ada", "count the files"), "Ada counts.", "There are six.", children={"Ada": (slow,)}) as agent:
            await agent.ask("count")
            slow.released.set()
            await children_of(agent).wait(["Ada"], 600.0)
            assert (await agent.ask("how many?")).text == "There are six."
            return agent.id

    session = asyncio.run(run())
    wrong = before_turn(family, session, 1)
    with family.home.open(session, write=False) as log:
        first_branch = log.tip
    assert reports_after(family, session, wrong, "how many are there?") == 1
    with family.home.open(session, write=False) as log:
        (stated,) = [item for item in log.view.items if item.source == "subagent_notification"]
        assert "<report>\nSeven files.\n</report>" in text_of(stated.content)
    # On the first branch it has been stated as well.
    assert reports_after(family, session, first_branch, "and now?") == 1


def test_the_end_of_a_child_is_not_stated_on_a_branch_that_has_not_started_it(tmp_path: Path) -> None:
    family = Family(tmp_path)

    async def run() -> str:
        async with family.agent("Hello.", spawn("Ada", "the task"), "I do not wait.", children={"Ada": (stalled(),)}) as agent:
            await agent.ask("hello")
            await agent.ask("start Ada")
            return agent.id

    session = asyncio.run(run())
    assert family.ends(session) == [("Ada", "interrupted", "The agent that started it was interrupted.")]
    assert reports_after(family, session, before_turn(family, session, 1), "do it yourself") == 0
