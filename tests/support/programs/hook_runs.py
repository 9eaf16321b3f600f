"""Agents with hooks, and what a run leaves in the log and in the table of processes."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from loops import ECHO, PROFILE, bodies, calls
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.agent.hooks import Hook
from palimpsest.agent.tool import AgentTool
from palimpsest.core.events import HookRan
from palimpsest.core.items import text_of
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted, ScriptedReply

PLAIN_ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
TWO_CALLS = (calls(("a", "echo", '{"a":1}')), calls(("b", "echo", '{"b":2}')), "done")


class HookedRun:
    """The outcome of one prompt of an agent with hooks; times are left out."""

    def __init__(self, agent: Agent, stop: str) -> None:
        self.stop = stop
        session = agent.session
        self.bodies = bodies(session)
        self.runs = [replace(body, took_ms=0) for body in self.bodies if isinstance(body, HookRan)]
        self.shown = [(item.kind, text_of(item.content)) for item in session.log.view.items]

    @property
    def notices(self) -> list[str]:
        return [run.notice for run in self.runs if run.notice]


def run_hooked(
    *replies: ScriptedReply,
    hooks: Iterable[Hook],
    cwd: Path,
    tools: tuple[AgentTool, ...] = (ECHO,),
    prompts: tuple[str, ...] = ("go",),
    profile: Profile = PROFILE,
) -> HookedRun:
    """Run prompts, one turn each, and return what the last left."""

    async def work() -> HookedRun:
        stop = ""
        async with Agent("claude-sonnet-4-5", tools=tools, provider=Scripted(*replies), cwd=cwd, hooks=hooks, profile=profile) as agent:
            for prompt in prompts:
                stop = (await agent.ask(prompt)).stop
            await agent.end()
            return HookedRun(agent, stop)

    return asyncio.run(work())


def processes_with(variable: str) -> list[int]:
    """The living processes that have a variable `NAME=value` in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
