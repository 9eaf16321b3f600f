"""A coding agent with memory in a home and a project of its own, whose model and whose jobs answer from scripts."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_
from pathlib import Path

from job_stubs import notices
from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import Body, JobRan, ModelReplied
from palimpsest.core.items import ToolCall
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.providers.scripted import RoutedScripts, Scripted, ScriptedReply
from palimpsest.stores.home import FolderHome
from palimpsest.stores.memory_config import MemoryConfig

MODEL = "claude-sonnet-4-5"
# What only the requests of a job contain.
EXTRACTION = "You keep the notes that outlive a conversation"
RUNNING_NOTES = "You keep the running notes of this session"
DRAFT = {"kind": "user", "about": "deploys on fridays", "body": "The user deploys on fridays.", "backstory": "the user said so"}


class LaterClock:
    """A clock by which the pause of a job is always over."""

    def __init__(self) -> None:
        self.calls = 0

    def now(self) -> int:
        """Return a time that is a day later with each call, in milliseconds."""
        self.calls += 1
        return 1_900_000_000_000 + 86_400_000 * self.calls


@dataclass
class RememberingAgent:
    """An agent over several turns. `replies` answer turns, `extractions` and `updates` the requests of the two jobs."""

    folder: Path
    replies: tuple[ScriptedReply, ...] = ()
    extractions: tuple[ScriptedReply, ...] = ()
    updates: tuple[ScriptedReply, ...] = ()
    config: MemoryConfig = field(default_factory=lambda: MemoryConfig(jobs="auto"))
    profile: str = "palimpsest"
    goes_on: bool = True

    def __post_init__(self) -> None:
        self.home = FolderHome(self.folder / "home")
        self.root = self.folder / "project"
        self.root.mkdir(exist_ok=True)
        self.turns, self.asked, self.updating = Scripted(*self.replies), Scripted(*self.extractions), Scripted(*self.updates)

    def opened(self, resume: str = "") -> Agent:
        """Return the agent, equipped, with a clock by which no job has to pause."""
        provider = RoutedScripts({EXTRACTION: self.asked, RUNNING_NOTES: self.updating}, self.turns)
        agent = Agent(MODEL, profile=self.profile, provider=provider, home=self.home, cwd=self.root, resume=resume, jobs=())
        settings = CodingSettings(
            mode="auto",
            allow=("bash",),
            sandbox="off",
            tools=(),
            snapshots=False,
            memory=without_pipeline(self.config),
            memory_jobs=self.goes_on,
        )
        equip(agent, self.home, settings)
        agent.session.environment = with_(agent.session.environment, clock=LaterClock())
        return agent

    def work(self, *prompts: str, between: Callable[[Agent], None] = lambda _: None) -> list[Body]:
        """Run a turn for each prompt, the jobs to their end after each, and return all events of the session."""

        async def run() -> list[Body]:
            async with self.opened() as agent:
                for prompt in prompts:
                    await agent.ask(prompt)
                    await agent.jobs.wait()
                    between(agent)
                self.notices = notices(agent.session.log)
                return [event.body for event in agent.session.log.events()]

        return asyncio.run(run())

    @property
    def memories(self) -> Memories:
        """The notes of the project."""
        found = memories_of(self.home, self.root)
        assert found is not None
        return found

    def notes(self) -> dict[str, Note]:
        """The active notes by name."""
        return {note.name: note for _, note in self.memories.active()}

    def asked_texts(self) -> list[str]:
        """The prompts of the extractions."""
        return [json.loads(request.body)["messages"][-1]["content"][0]["text"] for request in self.asked.requests]


def without_pipeline(config: MemoryConfig) -> MemoryConfig:
    """Return the settings without the pipeline, whose requests would take replies of the script."""
    return replace(config, sessions_per_start=0)


def runs_of(bodies: list[Body], job: str) -> list[tuple[str, str]]:
    """How the runs of a job ended, and why."""
    return [(body.status, body.why) for body in bodies if isinstance(body, JobRan) and body.job == job]


def changes(*given: object) -> str:
    """The reply of a model that proposes some changes."""
    return json.dumps({"changes": given})


def add(evidence: str, quote: str, **draft: object) -> dict[str, object]:
    """A change that adds a note."""
    return {"type": "add", "note": {**DRAFT, **draft}, "evidence": [evidence], "quote": quote}


def calling(tool: str, **arguments: object) -> ModelReplied:
    """A reply that calls a tool."""
    return ModelReplied((ToolCall(f"call_{tool}", tool, json.dumps(arguments)),))
