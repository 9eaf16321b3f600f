"""The agent as a library: a function as a tool, a question before it runs, limits, and a session that goes on later."""

import asyncio
import json
import tempfile

from palimpsest.agent.agent import Agent, Answer
from palimpsest.agent.decision import Allow, Approval, AskUser, Decision
from palimpsest.agent.limits import Limits
from palimpsest.agent.tool import AgentTool
from palimpsest.core.deltas import TextDelta
from palimpsest.core.events import Event, ModelReplied, PermissionAsked, ToolReturned
from palimpsest.core.items import ToolCall, text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home

MODEL = "claude-sonnet-4-5"
STOCK = {"bolt": 12, "nut": 0}


def take(part: str, count: int = 1) -> str:
    """Take parts out of the store. Fails if there are not enough of them."""
    if STOCK.get(part, 0) < count:
        raise ValueError(f"there are {STOCK.get(part, 0)} of {part}")
    STOCK[part] -= count
    return f"{STOCK[part]} of {part} are left"


def decide(tool: AgentTool, call: ToolCall) -> Decision:
    """Ask before large withdrawals; everything else runs."""
    count = json.loads(call.args).get("count", 1)
    return AskUser(f"take {count} parts?") if count > 10 else Allow("small")


async def approve(asked: PermissionAsked) -> Approval:
    """Stands for a user who says no."""
    return Approval("no", why="keep ten in store")


def wants(call_id: str, **arguments: object) -> ModelReplied:
    return ModelReplied((ToolCall(call_id, "take", json.dumps(arguments)),))


async def work(home: Home) -> str:
    model = Scripted(wants("a", part="bolt", count=2), wants("b", part="nut"), wants("c", part="bolt", count=11), "Two bolts taken.")
    limits = Limits(calls=10, usd=0.50)
    async with Agent(MODEL, tools=[take], provider=model, home=home, limits=limits, decide=decide, approve=approve) as agent:
        async for piece in agent.run("I need two bolts and a nut, and eleven more bolts if you can."):
            match piece:
                case TextDelta(text=text):
                    print(text, end="")
                case Event(body=ToolReturned(result=result)):
                    print("take:", text_of(result))
                case _:
                    pass
    print()
    return agent.id


async def go_on(home: Home, session: str) -> Answer:
    async with Agent(MODEL, tools=[take], provider=Scripted("You have two bolts."), home=home, resume=session) as agent:
        return await agent.ask("What do I have now?")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = asyncio.run(work(Home.at(folder)))
        print(asyncio.run(go_on(Home.at(folder), session)))
        # From a shell: PAL_HOME=FOLDER pal show SESSION, or pal -p TEXT --resume SESSION.
        with Home.at(folder).open(session, write=False) as log:
            print(f"{log.health.turns} turns, {log.health.calls} model calls, {len(log.view.items)} items in the view")


if __name__ == "__main__":
    main()
