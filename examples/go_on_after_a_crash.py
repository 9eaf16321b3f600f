"""A session with a system prompt and a profile whose process is killed while a tool runs; the next process goes on with it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from palimpsest.agent.calls import call
from palimpsest.agent.named_profiles import profile
from palimpsest.agent.session import Environment, Session
from palimpsest.core.events import ContextStated, ModelReplied, SessionOpened, Statement, ToolStarted, UserSaid
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

MODEL, PROFILE = card("claude-sonnet-4-5"), profile("palimpsest")
DEPLOY = Tool("deploy", "Put the shop online.", kind="runs")
PROMPT = ContextStated(head=(Statement("base", "You look after a shop. Say what you did in one sentence.", "system"),))


def environment(folder: str, *replies: str | ModelReplied) -> Environment:
    home, model = Home.at(folder), Scripted(*replies)
    return Environment(home.store, home.blobs, home.clock, provider=lambda *_: model)


def first_process(folder: str) -> None:
    asks = ModelReplied((ToolCall("c1", "deploy", "{}"),), stop="tool_use")
    session = Session.create(SessionOpened("shop"), PROFILE, MODEL, environment(folder, asks), (DEPLOY,))
    session.log.append(PROMPT)
    session.log.append(UserSaid((Text("Deploy the shop, please."),)))
    reply = asyncio.run(call(session))
    session.log.extend(ToolStarted(part.call_id, part.tool) for part in reply.parts if isinstance(part, ToolCall))
    os.kill(os.getpid(), 9)  # the tool has started; how it ended is lost with the process


def second_process(folder: str) -> None:
    around = environment(folder, "I do not know whether the deployment went through; I will look first.")
    with Session.resume("shop", PROFILE, MODEL, around, (DEPLOY,)) as session:  # `recover` answers what was open, and runs nothing again
        asyncio.run(call(session))
        for item in session.log.view.items:
            print(f"{item.kind}: {item.content.tool if isinstance(item.content, ToolCall) else text_of(item.content)[:80]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        first_process(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        killed = subprocess.run([sys.executable, Path(__file__), folder], check=False)
        print("the first process ended with", killed.returncode)
        second_process(folder)
