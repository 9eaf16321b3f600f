"""Coding tasks: a scripted model works on a project with the real tools of a coding agent, and its log is checked afterwards."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from git_projects import Project
from msgspec.structs import replace

from palimpsest.agent.agent import Agent, Approve
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, refuse_all
from palimpsest.core.events import Body, Failed, ModelReplied, ToolReturned
from palimpsest.core.items import Item, ToolCall, text_of
from palimpsest.core.ports import Provider, Sendable
from palimpsest.core.verify import verify
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted, ScriptedAnswer, StalledReply
from palimpsest.stores.home import FolderHome

MODEL = "claude-sonnet-4-5"
# The rule is for machines without a sandbox; where there is one, it holds the commands all the same.
AUTO = CodingSettings(mode="auto", allow=("bash",))

Reply: TypeAlias = str | ToolCall | tuple[ToolCall, ...] | StalledReply


@dataclass(frozen=True)
class FromMessage:
    """A reply that follows from the whole text of the last message: results, and what hooks and sub-agents state behind them."""

    reply: Callable[[str], Reply]


Step: TypeAlias = Reply | Callable[[str], Reply] | FromMessage
"""One reply of the model: a text, which ends the turn, calls of tools, or a function of the text of the last results or message."""


def use(tool: str, **arguments: object) -> ToolCall:
    """A call of a tool; its id is given when the reply is sent."""
    return ToolCall("", tool, json.dumps(arguments, ensure_ascii=False))


def bash(command: str, **more: object) -> ToolCall:
    """A call of the shell."""
    return use("bash", command=command, **more)


def scripted(*steps: Step, model: str = "scripted") -> Scripted:
    """A provider that replies with the steps, in order; the replies of a `model` that is known have a price."""
    return Scripted(*(_on_request(number, step) for number, step in enumerate(steps, 1)), model=model, piece=4_000)


def _on_request(number: int, step: Step) -> Callable[[Sendable], ScriptedAnswer]:
    def answer(request: Sendable) -> ScriptedAnswer:
        if isinstance(step, FromMessage):
            reply = step.reply(last_message(request))
        else:
            reply = step(last_results(request)) if callable(step) else step
        if isinstance(reply, str | StalledReply):
            return reply
        calls = (reply,) if isinstance(reply, ToolCall) else reply
        return ModelReplied(tuple(replace(call, call_id=f"toolu_{number}_{index}") for index, call in enumerate(calls)))

    return answer


def last_results(request: Sendable) -> str:
    """The text of the tool results in the last message of a request, as the model gets it."""
    content = json.loads(request.body)["messages"][-1]["content"]
    results = [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]
    return "\n".join(_block_text(block["content"]) for block in results)


def last_message(request: Sendable) -> str:
    """All text of the last message of a request, as the model gets it."""
    content = json.loads(request.body)["messages"][-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return "\n".join(_block_text(block["content"]) if block["type"] == "tool_result" else block.get("text", "") for block in blocks)


def _block_text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@dataclass(frozen=True)
class Coder:
    """A coding agent in a project, or in a folder of it, with a home of its own beside the project."""

    project: Project
    settings: CodingSettings = AUTO
    approve: Approve = refuse_all
    profile: str | Profile = "palimpsest"
    folder: str = "."
    home: FolderHome = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", FolderHome(self.project.root.parent / "sessions"))

    def agent(self, provider: Provider, resume: str = "") -> Agent:
        """A new agent, or the one of an earlier session."""
        agent = Agent(MODEL, provider=provider, cwd=self.project.root / self.folder, home=self.home, resume=resume, profile=self.profile)
        equip(agent, self.home, self.settings, self.approve)
        return agent

    def do(self, prompt: str, *steps: Step, failing: tuple[str, ...] = (), resume: str = "") -> "TaskRun":
        """Let the model do a task in one turn, and check the log. `failing` are the tools of the calls that must fail, in order."""

        async def run() -> str:
            async with self.agent(provider, resume) as agent:
                answer = await agent.ask(prompt)
                assert (answer.stop, answer.text) == ("done", steps[-1])
                return agent.id

        provider = scripted(*steps)
        done = self.checked(asyncio.run(run()), provider)
        assert done.failing == failing, done.results
        return done

    def checked(self, session: str, *providers: Scripted) -> "TaskRun":
        """The run of a session, whose log is whole and holds exactly one result for every call, and whose scripts were used up."""
        with self.home.open(session, write=False) as log:
            done = TaskRun(session, tuple(event.body for event in log.events()), tuple(log.view.items))
            # A fork has the events before its first in another file, and a rewind leaves events beside the path.
            own_events = log.tip - log.reader.first + 1
        report = verify(self.home.store, session, self.home.blobs)
        assert (report.findings, report.events) == ((), own_events)
        replies = [body for body in done.bodies if isinstance(body, ModelReplied) and body.purpose == "turn"]
        called = [part.call_id for reply in replies for part in reply.parts if isinstance(part, ToolCall)]
        assert sorted(body.result.call_id for body in done.returned) == sorted(set(called)) == sorted(called)
        assert [body for body in done.bodies if isinstance(body, Failed)] == []
        assert [provider.remaining for provider in providers] == [0] * len(providers)
        return done


@dataclass(frozen=True)
class TaskRun:
    """What a session recorded."""

    session: str
    bodies: tuple[Body, ...]
    items: tuple[Item, ...]

    @property
    def returned(self) -> tuple[ToolReturned, ...]:
        """The results of tools, in order."""
        return tuple(body for body in self.bodies if isinstance(body, ToolReturned))

    @property
    def results(self) -> list[str]:
        """The texts of the results, in order."""
        return [text_of(body.result) for body in self.returned]

    @property
    def failing(self) -> tuple[str, ...]:
        """The tools of the calls that failed."""
        return tuple(body.tool for body in self.returned if body.result.error)

    def kinds(self, *wanted: type) -> list[Body]:
        """The events of some types, in order."""
        return [body for body in self.bodies if isinstance(body, wanted)]


def do(project: Project, prompt: str, *steps: Step, failing: tuple[str, ...] = ()) -> TaskRun:
    """Let a coding agent in mode `auto` do a task in one turn."""
    return Coder(project).do(prompt, *steps, failing=failing)
